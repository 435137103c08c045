//! Listeners that are registered with the daemon and end in every possible way, while the session stays: the daemon
//! must not take later servers at their ports for them.

use super::{LIFE, begun};
use anyhow::{Result, bail, ensure};
use crosslane_client::session::{Session, socket_path};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socket_with, sockopt};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

/// Siblings at one port.
const SIBLINGS: usize = 4;
/// How a listener ends; each has a port of its own.
const WAYS: [fn(u16, &Session) -> Result<()>; 6] =
    [closed, shown_often, shut_down, duplicated, inherited, sibling];

/// `FIRST`: listeners from this port on, all of which have ended when `attacking` is printed; then how many there were. The session
/// stays.
///
/// # Errors
/// There is no daemon, or it takes no listener.
pub fn run(words: &[String]) -> Result<()> {
    let [first] = words else { bail!("FIRST") };
    let session = Session::connect(&socket_path())?;
    session.hello("blackhole")?;
    for (port, way) in (first.parse()?..).zip(WAYS) {
        way(port, &session)?;
    }
    println!("{} listeners ended", WAYS.len());
    begun();
    std::thread::sleep(LIFE);
    drop(session);
    Ok(())
}

fn listener(port: u16) -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

fn shown(port: u16, session: &Session) -> Result<OwnedFd> {
    let socket = listener(port)?;
    session.listen(socket.as_fd())?;
    Ok(socket)
}

fn closed(port: u16, session: &Session) -> Result<()> {
    shown(port, session).map(drop)
}

/// And from another session, which has ended.
fn shown_often(port: u16, session: &Session) -> Result<()> {
    let socket = shown(port, session)?;
    let other = Session::connect(&socket_path())?;
    other.hello("blackhole")?;
    for session in [session, &other, session] {
        session.listen(socket.as_fd())?;
    }
    Ok(())
}

/// It no longer listens, but keeps its number, its descriptor and its port.
fn shut_down(port: u16, session: &Session) -> Result<()> {
    let socket = shown(port, session)?;
    rustix::net::shutdown(&socket, Shutdown::Read)?;
    // Others that share their ports may listen there.
    std::mem::forget(socket);
    Ok(())
}

fn duplicated(port: u16, session: &Session) -> Result<()> {
    let socket = shown(port, session)?;
    let copy = socket.try_clone()?;
    session.listen(copy.as_fd())?;
    drop(socket);
    session.listen(copy.as_fd())?;
    Ok(())
}

/// By a process that has ended as well.
fn inherited(port: u16, session: &Session) -> Result<()> {
    let socket = shown(port, session)?;
    fcntl_setfd(&socket, FdFlags::empty())?;
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn()?;
    drop(socket);
    child.kill()?;
    ensure!(!child.wait()?.success(), "it slept to its end");
    Ok(())
}

fn sibling(port: u16, session: &Session) -> Result<()> {
    (0..SIBLINGS).map(|_| shown(port, session)).collect::<Result<Vec<_>>>().map(drop)
}
