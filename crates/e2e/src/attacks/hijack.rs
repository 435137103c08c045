//! Announces connections that are not its own: from other hosts' addresses, from ports shared with a victim, before and
//! after the victim, in the place of what `/proc/net/tcp` shows, and from a network namespace with all of these
//! addresses. It leaves ends of its own connections behind, for the next connection of the same addresses.

use super::{LIFE, begun};
use crate::raw::{End, Program};
use anyhow::{Context, Result, bail};
use crosslane_wire::PROTOCOL_VERSION;
use crosslane_wire::local::Request;
use crosslane_wire::record::Kind;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Content of the victim's messages, and of nobody else's.
const MARK: &[u8] = b"victim ";
/// Bytes of what comes back that are looked at.
const SEEN: usize = 4096;
/// Between two rounds: the victim has to get its ports, too.
const PAUSE: Duration = Duration::from_millis(80);

/// Rounds between two reports.
const ROUNDS: u32 = 5;

/// The victim.
struct Aim {
    program: Program,
    own: Ipv4Addr,
    server: SocketAddr,
    /// A listener of its own: this host's daemon alone decides about requests for it.
    local: TcpListener,
    ports: Range<u16>,
}

/// `OWN SERVER:PORT FIRST COUNT ADDRESS...`: the victim on this host at address `OWN` connects from `COUNT` ports to the server, which
/// echoes; the other addresses are of nobody here. `namespace` instead of those: this network namespace has both addresses and
/// no daemon. Prints a line with `taken` for each thing that it got.
///
/// # Errors
/// There is no daemon, or it ends the session.
pub fn run(words: &[String]) -> Result<()> {
    let [own, server, first, count, foreign @ ..] = words else {
        bail!("OWN SERVER:PORT FIRST COUNT (ADDRESS... | namespace)");
    };
    let (first, count): (u16, u16) = (first.parse()?, count.parse()?);
    let aim = Aim {
        program: Program::greet("hijack")?,
        own: own.parse()?,
        server: server.parse()?,
        local: TcpListener::bind("0.0.0.0:0")?,
        ports: first..first + count,
    };
    aim.program.session().listen(aim.local.as_fd())?;
    let is_namespace = matches!(foreign, [word] if word == "namespace");
    let listener = is_namespace.then(|| TcpListener::bind(aim.server)).transpose()?;
    begun();
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < LIFE {
        match &listener {
            Some(listener) => aim.announce_in_a_namespace(listener)?,
            None => {
                foreign.iter().try_for_each(|address| aim.announce_elsewhere(address.parse()?))?;
                aim.announce_what_is_seen()?;
                aim.leave_behind()?;
            }
        }
        rounds += 1;
        if rounds == ROUNDS {
            println!("{rounds} rounds");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

impl Aim {
    /// Another host's address, or nobody's.
    fn announce_elsewhere(&self, address: Ipv4Addr) -> Result<()> {
        let local = SocketAddrV4::new(self.own, self.local.local_addr()?.port());
        for server in [self.server, local.into()] {
            let socket = fresh()?;
            sockopt::set_ip_freebind(&socket, true)?;
            rustix::net::bind(&socket, &SocketAddrV4::new(address, 0)).context("IP_FREEBIND")?;
            if self.program.announce_by(socket, server)?.is_ok() {
                println!("taken: an end to {server} in the name of {address}");
            }
        }
        Ok(())
    }

    /// Ports that are in use: those that wait for an answer, are connected, or wait to be accepted.
    fn announce_what_is_seen(&self) -> Result<()> {
        for port in seen(self.own, self.server)? {
            let Ok(socket) = shared(self.own, port) else { continue };
            let accepted = self.program.session().circuit(&Request::Accept, socket.as_fd())?;
            if accepted.is_ok() {
                println!("taken: the accepted end of port {port}");
            }
            if let Ok(end) = self.program.announce_by(socket, self.server)? {
                self.end(end)?;
            }
        }
        Ok(())
    }

    /// Ends of connections of its own, whose ports are free again before anybody accepts.
    fn leave_behind(&self) -> Result<()> {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for port in self.ports.clone() {
            let Ok(socket) = shared(self.own, port) else { continue };
            let Ok(mut end) = self.program.announce_by(socket, self.server)? else { continue };
            end.push(Kind::Data, &[b"e".as_slice(), &[b'i'; 64]].concat())?;
            if end.connect().is_ok() { own.push(end) } else { others.push(end) }
        }
        others.into_iter().try_for_each(|end| self.end(end))?;
        let sockets = own.into_iter().map(End::close).collect::<Result<Vec<_>>>()?;
        self.wait_for_daemon()?;
        for socket in sockets {
            let accepted = self.program.session().circuit(&Request::Accept, socket.as_fd())?;
            if accepted.is_ok() {
                println!("taken: an accepted end by the connecting socket");
            }
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        }
        Ok(())
    }

    /// The same addresses, in a network of its own.
    fn announce_in_a_namespace(&self, listener: &TcpListener) -> Result<()> {
        for port in self.ports.clone() {
            let Ok(socket) = shared(self.own, port) else { continue };
            let copy = socket.try_clone()?;
            if self.program.announce_by(copy, self.server)?.is_ok() {
                println!("taken: an end from another network");
            }
            rustix::net::connect(&socket, &self.server)?;
            let (accepted, _) = listener.accept()?;
            for request in [Request::Accept, Request::Adopt] {
                if self.program.session().circuit(&request, accepted.as_fd())?.is_ok() {
                    println!("taken: {request:?} of port {port} in another network");
                }
            }
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        }
        Ok(())
    }

    /// Looks what came by an end whose connection is another's, and closes it.
    fn end(&self, end: End<'_>) -> Result<()> {
        if end.inbound(SEEN).windows(MARK.len()).any(|bytes| bytes == MARK) {
            println!("taken: bytes of the victim");
        }
        end.close().map(drop)
    }

    /// What was reported before is done.
    fn wait_for_daemon(&self) -> Result<()> {
        let hello = Request::Hello { version: PROTOCOL_VERSION, program: String::new(), ticket: 0 };
        self.program.session().request(&hello, &[])?;
        Ok(())
    }
}

fn fresh() -> Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// A socket at a port that others have, too, if they let it.
fn shared(own: Ipv4Addr, port: u16) -> Result<OwnedFd> {
    let socket = fresh()?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if rustix::net::bind(&socket, &SocketAddrV4::new(own, port)).is_ok() {
        return Ok(socket);
    }
    sockopt::set_socket_reuseport(&socket, false)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(own, port))?;
    Ok(socket)
}

/// The ports from which there are connections to the server.
fn seen(own: Ipv4Addr, server: SocketAddr) -> Result<Vec<u16>> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let lines = table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (address_of(words.next()?)?, address_of(words.next()?)?);
        (SocketAddr::V4(remote) == server && *local.ip() == own).then_some(local.port())
    });
    Ok(lines.collect())
}

/// An address as the kernel prints it: a word of the machine's byte order, and a port.
fn address_of(word: &str) -> Option<SocketAddrV4> {
    let (ip, port) = word.split_once(':')?;
    let ip = u32::from_str_radix(ip, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(ip.into(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_found_in_the_kernels_table() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(server).unwrap();
        let port = client.local_addr().unwrap().port();
        assert!(seen(Ipv4Addr::LOCALHOST, server).unwrap().contains(&port));
    }
}
