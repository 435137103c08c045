//! A client that misuses every wake event that it holds to delay or rob its other holders: it clears `O_NONBLOCK` again
//! and again, fills it, reads it, connects it elsewhere, shuts it down. `wake ADDRESS PORT`, with the socket library,
//! against a Redis server that has to ring it.

use super::{LIFE, begun};
use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, shutdown, socket_with, sockopt,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Clients that sleep until the server rings them.
const SLEEPERS: usize = 4;
/// Between two wakes of each.
const PAUSE: Duration = Duration::from_millis(2);
/// From when on sockets are connected elsewhere and shut down, too: nobody wakes the client itself after that.
const LAST: Duration = Duration::from_secs(3);

/// A wake event, of either kind there ever was.
#[derive(Debug)]
enum Wake {
    Counter(OwnedFd),
    Socket(OwnedFd),
}

/// Attacks until it is ended.
///
/// # Errors
/// There is no server, or no wake event.
pub fn run(words: &[String]) -> Result<()> {
    let [address, port] = words else { anyhow::bail!("wake ADDRESS PORT") };
    let to = format!("{address}:{port}");
    for number in 0..SLEEPERS {
        let key = format!("attack-{}-{number}", std::process::id());
        let (mut sleeper, mut pusher) = (TcpStream::connect(&to)?, TcpStream::connect(&to)?);
        exchange(&mut pusher, "PING")?;
        let pop = format!("BLPOP {key} 0\r\n");
        sleeper.write_all(pop.as_bytes())?;
        let sleeps = std::thread::spawn(move || sleep(sleeper, pop.as_bytes()));
        std::thread::spawn(move || {
            while exchange(&mut pusher, &format!("LPUSH {key} x")).is_ok() {
                std::thread::sleep(PAUSE);
            }
        });
        ensure!(!sleeps.is_finished(), "the server does not answer");
    }
    std::thread::sleep(50 * PAUSE);
    let begin = Instant::now();
    ensure!(!wakes()?.is_empty(), "there is no wake event to attack");
    begun();
    while begin.elapsed() < LIFE {
        for wake in wakes()? {
            torment(&wake, begin.elapsed() > LAST);
        }
    }
    Ok(())
}

/// Pops again and again: the server has to wake this thread each time.
fn sleep(stream: TcpStream, pop: &[u8]) -> Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        // `*2`, and two strings, each with its length before it.
        for _ in 0..5 {
            let mut line = String::new();
            ensure!(lines.read_line(&mut line)? > 0, "the server has ended");
        }
        stream.write_all(pop)?;
    }
}

fn exchange(stream: &mut TcpStream, command: &str) -> Result<String> {
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    Ok(line)
}

/// The wake events that this process holds, its own and those of others.
fn wakes() -> Result<Vec<Wake>> {
    let me = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").context("descriptors")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(fd) = pidfd_getfd(&me, number, PidfdGetfdFlags::empty()) else { continue };
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        let is_local = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
        if name.as_os_str() == "anon_inode:[eventfd]" {
            found.push(Wake::Counter(fd));
        } else if is_local && sockopt::socket_type(&fd) == Ok(SocketType::DGRAM) {
            found.push(Wake::Socket(fd));
        }
    }
    Ok(found)
}

fn torment(wake: &Wake, last: bool) {
    match wake {
        Wake::Counter(fd) => {
            for _ in 0..200 {
                flag(fd, true);
                // As full as it gets.
                for bit in (0..64).rev() {
                    let _ = rustix::io::write(fd, &((1_u64 << bit) - u64::from(bit == 63)).to_ne_bytes());
                }
                flag(fd, false);
            }
        }
        Wake::Socket(fd) => {
            let (_pipe, gift) = rustix::pipe::pipe().map_or((None, None), |(a, b)| (Some(a), Some(b)));
            for len in [0, 1, 8, 16, 17, 4000, 100_000] {
                flag(fd, len % 2 == 0);
                let _ = send(fd, &vec![7; len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                let _ = gift.as_ref().map(|gift| attach(fd, gift));
                let _ = recv(fd, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK);
            }
            if last {
                let _ = elsewhere().and_then(|(_kept, to)| connect(fd, &to));
                let _ = recv(fd, &mut [0; 16], RecvFlags::DONTWAIT);
                let _ = shutdown(fd, Shutdown::Both);
            }
        }
    }
}

fn flag(fd: &OwnedFd, nonblocking: bool) {
    if let Ok(flags) = fcntl_getfl(fd) {
        let flags = if nonblocking { flags | OFlags::NONBLOCK } else { flags - OFlags::NONBLOCK };
        let _ = fcntl_setfl(fd, flags);
    }
}

fn attach(fd: &OwnedFd, gift: &OwnedFd) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = [gift.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&rights));
    sendmsg(fd, &[IoSlice::new(&[0; 16])], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// A socket of the attacker's own, to lead wakes to.
fn elsewhere() -> rustix::io::Result<(OwnedFd, SocketAddrUnix)> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, address))
}
