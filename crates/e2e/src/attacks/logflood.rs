//! Every line of a daemon's log that an ordinary user can cause, as fast as that goes: complaints about its own streams, quotas
//! that are used up, packets in another's name, ends that nobody holds, sessions that come and go.

use super::{LIFE, begun, greeted};
use anyhow::{Context, Result};
use crosslane_client::session::{Session, socket_path};
use crosslane_shm::state::State;
use crosslane_wire::local::{Reply, Request};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Listeners that are asked for: more than a user may have.
const LISTENERS: usize = 5000;
/// Ends that are left behind in one go.
const ENDS: usize = 20;
/// Complaints in one go, each about a stream of its own, and the pause after them: a hundred times the permitted rate.
const COMPLAINTS: usize = 10;
const BREATH: Duration = Duration::from_millis(1);
/// Pause of the most expensive operation.
const PAUSE: Duration = Duration::from_millis(10);

/// `OWN-ADDRESS SERVER`: floods until it is ended. At `SERVER` an accelerated program listens.
///
/// # Errors
/// There is no daemon, or no stream to `SERVER`.
pub fn run(words: &[String]) -> Result<()> {
    let [own, server] = words else { anyhow::bail!("OWN-ADDRESS SERVER") };
    let (own, server): (IpAddr, SocketAddr) = (own.parse()?, server.parse()?);
    let session = greeted("logflood")?;
    end(&session, own, server)?.context("no stream of our own")?;
    begun();
    let until = Instant::now() + LIFE;
    let work: [&(dyn Fn() -> Result<()> + Sync); 4] =
        [&|| left_behind(own, server), &quotas, &|| packets(server), &come_and_go];
    std::thread::scope(|scope| {
        for work in work {
            scope.spawn(move || {
                while Instant::now() < until {
                    // A refused attacker tries again.
                    let _ = work();
                    std::thread::sleep(PAUSE);
                }
            });
        }
        while Instant::now() < until {
            for _ in 0..COMPLAINTS {
                let text = "x\nERROR forged\u{202e}".repeat(20);
                if let Ok(Some((_socket, circuit, token))) = end(&session, own, server) {
                    let _ = session.tell(&Request::Violated { circuit, token, text });
                }
            }
            std::thread::sleep(BREATH);
        }
    });
    Ok(())
}

/// `OWN-ADDRESS SERVER TEXT`: what an honest user's program does once, about a stream of its own.
///
/// # Errors
/// There is no daemon, or no stream to `SERVER`.
pub fn complain(words: &[String]) -> Result<()> {
    let [own, server, text] = words else { anyhow::bail!("OWN-ADDRESS SERVER TEXT") };
    let session = greeted("complain")?;
    let (_socket, circuit, token) = end(&session, own.parse()?, server.parse()?)?.context("no stream")?;
    session.tell(&Request::Violated { circuit, token, text: text.clone() })?;
    // The message has been read once a later one is answered.
    session.text(&Request::Hosts)?;
    Ok(())
}

/// A stream end that was asked for, with its socket and its proof; none if there are no more.
fn end(
    session: &Session,
    own: IpAddr,
    server: SocketAddr,
) -> Result<Option<(OwnedFd, crosslane_wire::CircuitId, u64)>> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(own, 0))?;
    let (_, state) = State::create()?;
    let connect = Request::Connect { remote: server };
    match session.request(&connect, &[socket.as_fd(), state.as_fd()])?.0 {
        Reply::Circuit { circuit, token, .. } => Ok(Some((socket, circuit, token))),
        _ => Ok(None),
    }
}

/// Ends whose sockets are closed while the session lives on for a while.
fn left_behind(own: IpAddr, server: SocketAddr) -> Result<()> {
    let session = greeted("logflood")?;
    for _ in 0..ENDS {
        if end(&session, own, server)?.is_none() {
            break;
        }
    }
    std::thread::sleep(PAUSE * 10);
    Ok(())
}

/// More listeners than there may be, of which those that are refused are asked for again and again.
fn quotas() -> Result<()> {
    let session = greeted("logflood")?;
    let ask = || -> Result<bool> {
        let listener = TcpListener::bind("0.0.0.0:0")?;
        Ok(session.request(&Request::Listen, &[listener.as_fd()])?.0 == Reply::Done)
    };
    let mut asked = 0;
    while asked < LISTENERS && ask()? {
        asked += 1;
    }
    let until = Instant::now() + LIFE;
    while Instant::now() < until {
        ask()?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Packets in the name of a host that is not there: anybody may bind to such an address.
fn packets(server: SocketAddr) -> Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_ip_freebind(&socket, true)?;
    bind(&socket, &SocketAddr::new(Ipv4Addr::new(192, 0, 2, 7).into(), 0))?;
    let socket = UdpSocket::from(socket);
    for _ in 0..50 {
        socket.send_to(b"forged", server)?;
    }
    Ok(())
}

/// Sessions that say nothing.
fn come_and_go() -> Result<()> {
    for _ in 0..10 {
        drop(Session::connect(&socket_path())?);
    }
    Ok(())
}
