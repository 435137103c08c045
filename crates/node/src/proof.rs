//! What a socket that a program hands over proves: which connection or listener the program really holds.

use crate::address::plain;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Its address as `getsockname` has it.
    pub address: SocketAddr,
    /// Whether an IPv6 wildcard takes IPv4 connections too.
    pub dual: bool,
}

/// A connected TCP socket; addresses in plain form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
}

/// Proves a listener.
pub fn listening(socket: BorrowedFd<'_>) -> Result<Listening, Errno> {
    check_tcp(socket)?;
    if !sockopt::socket_acceptconn(socket)? {
        return Err(Errno::INVAL);
    }
    let address = local(socket)?;
    let dual = address.is_ipv6() && !sockopt::ipv6_v6only(socket)?;
    Ok(Listening { address, dual })
}

/// Proves a socket that is bound and neither listens nor is connected: its address in plain form.
pub fn bound(socket: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    check_tcp(socket)?;
    if sockopt::socket_acceptconn(socket)? || rustix::net::getpeername(socket).is_ok() {
        return Err(Errno::ISCONN);
    }
    local(socket).map(plain)
}

/// Proves a connection.
pub fn connected(socket: BorrowedFd<'_>) -> Result<Connected, Errno> {
    check_tcp(socket)?;
    let remote = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    let remote = SocketAddr::try_from(remote).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(Connected { local: plain(local(socket)?), remote: plain(remote) })
}

/// Whether a descriptor is an eventfd, which a daemon may write to without being held up for long.
pub fn is_eventfd(fd: impl AsFd) -> bool {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}

fn check_tcp(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let family = sockopt::socket_domain(socket)?;
    let inet = family == AddressFamily::INET || family == AddressFamily::INET6;
    let tcp = sockopt::socket_protocol(socket)? == Some(ipproto::TCP);
    if inet && tcp && sockopt::socket_type(socket)? == SocketType::STREAM {
        Ok(())
    } else {
        Err(Errno::PROTONOSUPPORT)
    }
}

fn local(socket: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(rustix::net::getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn sockets_prove_what_they_are_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(listening(listener.as_fd()), Ok(Listening { address, dual: false }));
        let stream = TcpStream::connect(address).unwrap();
        assert_eq!(connected(stream.as_fd()).unwrap().remote, address);
        assert!(listening(stream.as_fd()).is_err());
        assert!(bound(stream.as_fd()).is_err());
        assert!(connected(listener.as_fd()).is_err());
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(listening(udp.as_fd()).is_err() && connected(udp.as_fd()).is_err());
        assert!(bound(udp.as_fd()).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(connected(file.as_fd()).is_err() && !is_eventfd(&file));
    }

    #[test]
    fn a_dual_listener_and_its_connections_are_seen_as_ipv4() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        assert!(listening(listener.as_fd()).unwrap().dual);
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (client, server) = (connected(client.as_fd()).unwrap(), connected(server.as_fd()).unwrap());
        assert_eq!((client.local, client.remote), (server.remote, server.local));
    }
}
