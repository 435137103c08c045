//! What the daemon reads from a socket that a program handed over: which connection or listener the program really holds.

use crate::address::plain;
use crate::netns;
use crosslane_wire::ChannelId;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The kernel's number of a socket (`SO_COOKIE`): no process can choose it, and the kernel uses it once until it is booted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The number of this socket.
    ///
    /// # Errors
    /// `socket` is no socket.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        sockopt::socket_cookie(socket).map(Self)
    }
}

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Its number.
    pub cookie: Cookie,
    /// The local address as `getsockname` returns it.
    pub address: SocketAddr,
    /// Whether the socket is an IPv6 wildcard that takes IPv4 connections too.
    pub dual: bool,
}

/// What the daemon knows of the socket that announced an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Announcer {
    /// Nothing yet.
    #[default]
    Unknown,
    /// The daemon of the connecting side was asked over this channel whether the socket became the connection.
    Asked(ChannelId),
    /// The socket became the connection.
    Proven,
}

/// A connected TCP socket; addresses in plain form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// The socket's number.
    pub cookie: Cookie,
}

/// A TCP socket that a program handed over, as it was when the daemon read it. Read it outside the daemon's packet thread only: the
/// kernel reads the addresses under the socket's lock, which the program can hold for as long as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Whether it listens or is connected, and its addresses.
    pub state: State,
    /// The socket's number.
    pub cookie: Cookie,
    /// Number of its network namespace; `None` if the kernel cannot tell.
    pub namespace: Option<u64>,
    /// Whether the program has set `O_NONBLOCK`.
    pub nonblocking: bool,
}

/// Whether a TCP socket listens or is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It listens.
    Listening(Listening),
    /// It is connected.
    Connected(Connected),
    /// It neither listens nor is connected; the local address in plain form.
    Idle(SocketAddr),
}

impl Proof {
    /// Reads a socket's state and addresses; an error for all but TCP sockets. May block: see [`Proof`].
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        check_tcp(socket)?;
        let nonblocking = rustix::fs::fcntl_getfl(socket)?.contains(rustix::fs::OFlags::NONBLOCK);
        let cookie = Cookie::of(socket)?;
        Ok(Self { state: State::of(socket, cookie)?, cookie, namespace: netns::cookie(socket), nonblocking })
    }

    /// The listener, if the socket listens.
    pub fn listening(&self) -> Option<Listening> {
        if let State::Listening(listening) = self.state { Some(listening) } else { None }
    }

    /// The connection, if the socket is connected.
    pub fn connected(&self) -> Option<Connected> {
        if let State::Connected(names) = self.state { Some(names) } else { None }
    }

    /// The local address, in plain form, of a socket that neither listens nor is connected.
    pub fn idle(&self) -> Option<SocketAddr> {
        if let State::Idle(local) = self.state { Some(local) } else { None }
    }
}

impl State {
    fn of(socket: BorrowedFd<'_>, cookie: Cookie) -> Result<Self, Errno> {
        let address = local(socket)?;
        if sockopt::socket_acceptconn(socket)? {
            let dual = address.is_ipv6() && !sockopt::ipv6_v6only(socket)?;
            return Ok(Self::Listening(Listening { cookie, address, dual }));
        }
        match rustix::net::getpeername(socket) {
            Ok(remote) => {
                let remote = remote.and_then(|remote| SocketAddr::try_from(remote).ok());
                let remote = plain(remote.ok_or(Errno::AFNOSUPPORT)?);
                Ok(Self::Connected(Connected { cookie, local: plain(address), remote }))
            }
            Err(_) => Ok(Self::Idle(plain(address))),
        }
    }
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
    use std::os::fd::AsFd;

    #[test]
    fn sockets_prove_what_they_are_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cookie = Cookie::of(listener.as_fd()).unwrap();
        let proof = Proof::of(listener.as_fd()).unwrap();
        assert_eq!(proof.state, State::Listening(Listening { cookie, address, dual: false }));
        assert!(proof.connected().is_none() && proof.idle().is_none() && !proof.nonblocking);
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let proof = Proof::of(stream.as_fd()).unwrap();
        assert_eq!(proof.connected().unwrap().remote, address);
        assert!(proof.listening().is_none() && proof.idle().is_none() && proof.nonblocking);
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(Proof::of(udp.as_fd()).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Proof::of(file.as_fd()).is_err());
    }

    #[test]
    fn dual_listener_and_its_connections_are_seen_as_ipv4() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        assert!(Proof::of(listener.as_fd()).unwrap().listening().unwrap().dual);
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        let of = |socket: &TcpStream| Proof::of(socket.as_fd()).unwrap().connected().unwrap();
        let (client, server) = (of(&client), of(&server));
        assert_eq!((client.local, client.remote), (server.remote, server.local));
    }
}
