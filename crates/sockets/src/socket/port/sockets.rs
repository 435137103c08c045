//! What the kernel says of its TCP sockets and of routes.

use core::net::{IpAddr, SocketAddr};
use crosslane_wire::diag::{self, Message, Question, State};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The TCP sockets of this network namespace, by `sock_diag`.
pub struct Sockets(OwnedFd);

impl Sockets {
    /// Their table.
    ///
    /// # Errors
    /// There are no netlink sockets, or no free descriptor.
    pub fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol).map(Self)
    }

    /// Whether there is a connection between these addresses, or what is left of one; `None` if the kernel does not say.
    pub fn has(&self, local: SocketAddr, remote: SocketAddr) -> Option<bool> {
        let [local, remote] =
            [local, remote].map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
        let question = Question::one(local, remote, 0).encode(u32::from(local.port()));
        rustix::net::sendto(&self.0, &question, SendFlags::DONTWAIT, &SocketAddrNetlink::new(0, 0)).ok()?;
        let mut answer = [0; diag::ANSWER];
        let (len, _, _) = rustix::net::recvfrom(&self.0, &mut answer, RecvFlags::DONTWAIT).ok()?;
        let answer = answer.get(..len).filter(|answer| diag::number(answer) == Some(local.port().into()))?;
        Some(match diag::read(answer)?.0 {
            Message::Socket(socket) => socket.state != State::LISTEN && socket.remote_port == remote.port(),
            Message::Nothing | Message::Done => false,
        })
    }
}

/// The address of this host that packets to `remote` come from. Nothing is sent.
pub fn source(remote: SocketAddr) -> Option<IpAddr> {
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::connect(&socket, &remote).ok()?;
    Some(SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn port_has_a_connection_until_time_wait_ends_and_listeners_do_not_count() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let local = client.local_addr().unwrap();
            let sockets = Sockets::open().unwrap();
            assert_eq!(source(server), Some(server.ip()));
            assert_eq!(sockets.has(local, server), Some(true));
            assert_eq!(sockets.has(local, SocketAddr::new(server.ip(), 1)), Some(false));
            assert_eq!(sockets.has(server, SocketAddr::new(server.ip(), 1)), Some(false));
            drop(client);
            drop(listener.accept().unwrap());
            assert_eq!(sockets.has(local, server), Some(true));
        }
    }

    #[test]
    fn address_ipv4_mapped_is_ipv4() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mapped = format!("[::ffff:127.0.0.1]:{}", listener.local_addr().unwrap().port());
        let client = TcpStream::connect(mapped.parse::<SocketAddr>().unwrap()).unwrap();
        let sockets = Sockets::open().unwrap();
        assert_eq!(sockets.has(client.local_addr().unwrap(), client.peer_addr().unwrap()), Some(true));
    }
}
