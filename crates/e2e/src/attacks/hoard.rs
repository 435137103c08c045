//! Everything that a daemon can run out of, taken by one user: sessions, descriptors, circuits and windows, listeners.

use super::{LIFE, begun};
use anyhow::{Result, bail};
use crosslane_client::session::Session;
use crosslane_shm::state::State;
use crosslane_wire::local::{Reply, Request};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Sessions that take descriptors, and how often each tries.
const TAKERS: usize = 6;
const TRIES: usize = 20_000;
/// Circuits and listeners that are asked for.
const MANY: usize = 4000;
/// Pause of an attacker that has all that it can get, before it tries again.
const PAUSE: Duration = Duration::from_millis(5);

/// Takes the resource named by the first argument, until it is ended.
///
/// # Errors
/// There is no daemon, or no such attack.
pub fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["sessions"] => sessions(),
        ["descriptors"] => descriptors(),
        ["circuits", own, ref servers @ ..] => circuits(own.parse()?, servers),
        ["listeners"] => listeners(),
        _ => bail!("sessions | descriptors | circuits OWN-ADDRESS SERVER... | listeners"),
    }
}

fn until_the_end() -> impl Iterator<Item = ()> {
    let end = Instant::now() + LIFE;
    std::iter::from_fn(move || (Instant::now() < end).then_some(()))
}

fn greeted() -> Result<Session> {
    super::greeted("hoard")
}

/// As many sessions as there are, and those that are refused again and again.
fn sessions() -> Result<()> {
    let mut held = vec![greeted()?];
    begun();
    let mut said = false;
    for () in until_the_end() {
        match greeted() {
            Ok(session) => held.push(session),
            Err(_) => std::thread::sleep(PAUSE),
        }
        if !said && held.len() > MANY {
            println!("{} sessions", held.len());
            said = true;
        }
    }
    Ok(())
}

/// Wake events without end: each is a descriptor of the daemon's.
fn descriptors() -> Result<()> {
    let sessions = (0..TAKERS).map(|_| greeted()).collect::<Result<Vec<_>>>()?;
    let take = |session: &Session| (0..TRIES).take_while(|_| session.waiter().is_ok()).count();
    let taken: usize = sessions.iter().map(take).sum();
    println!("{taken} descriptors");
    begun();
    for () in until_the_end() {
        let more: usize = sessions.iter().map(take).sum();
        if more == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Circuits to listeners of others, which are never connected.
fn circuits(own: IpAddr, servers: &[&str]) -> Result<()> {
    let servers = servers.iter().map(|server| server.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
    let session = greeted()?;
    let mut held = Vec::new();
    for server in &servers {
        let before = held.len();
        while held.len() < before + MANY {
            match circuit(&session, own, *server)? {
                Some(socket) => held.push(socket),
                None => break,
            }
        }
        println!("{} circuits to {server}", held.len() - before);
    }
    begun();
    for () in until_the_end() {
        for server in &servers {
            held.extend(circuit(&session, own, *server)?);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A socket with a circuit; `None` if there are no more.
fn circuit(session: &Session, own: IpAddr, remote: SocketAddr) -> Result<Option<OwnedFd>> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(own, 0))?;
    let (_, state) = State::create()?;
    match session.request(&Request::Connect { remote }, &[socket.as_fd(), state.as_fd()]) {
        Ok((Reply::Circuit { .. }, _)) => Ok(Some(socket)),
        Ok((Reply::Plain { .. }, _)) => Ok(None),
        Ok((other, _)) => bail!("no answer but {other:?}"),
        Err(error) => Err(error.into()),
    }
}

/// Listeners that stay registered when their sockets are closed.
fn listeners() -> Result<()> {
    let session = greeted()?;
    let mut taken = 0;
    let take = || -> Result<bool> {
        let listener = TcpListener::bind("0.0.0.0:0")?;
        Ok(session.request(&Request::Listen, &[listener.as_fd()])?.0 == Reply::Done)
    };
    while taken < 2 * MANY && take()? {
        taken += 1;
    }
    println!("{taken} listeners");
    begun();
    for () in until_the_end() {
        take()?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
