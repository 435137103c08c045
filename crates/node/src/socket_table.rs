//! The kernel's table of TCP sockets, read by `sock_diag`: which socket has a connection, and which listener would get one.
//!
//! A table covers one network namespace: that of the netlink socket that asks. The daemon's own covers the daemon's; programs of
//! other namespaces hand over a socket of theirs. The answers come from the kernel in either case: a program that holds the socket
//! too can take answers away, and can forge none.

use crate::netns;
use crate::proof::Cookie;
use crate::random;
use core::cell::Cell;
use crosslane_passing::{Foreign, Owner};
use crosslane_wire::diag::{self, Message, Place, Question, State};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

/// Most bytes of a listing that the kernel may return at once.
const DUMP: usize = 32 * 1024;
/// Most answers to other questions that are skipped: only other holders of the socket can have asked them.
const OTHERS: usize = 16;
/// The loopback interface, in every namespace.
pub const LOOPBACK: u32 = 1;

/// Whether both sides of a socket in this state have completed the handshake, now or before the close.
fn was_connected(state: State) -> bool {
    ![State::SYN_SENT, State::SYN_RECV, State::CLOSE, State::LISTEN, State::NEW_SYN_RECV].contains(&state)
}

/// A socket that the kernel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no such connection, and nobody listens for it.
    Nothing,
    /// No connection, but this listener would get it.
    Listener(Cookie),
    /// The connection.
    Connection {
        /// Its socket.
        cookie: Cookie,
        /// Its state.
        state: State,
        /// Whether a process holds it.
        held: bool,
        /// Its user; root if nobody holds it.
        uid: u32,
    },
}

/// What became of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A process holds it.
    Held,
    /// It exists, but no process holds it (any more, or yet).
    Unheld,
    /// It does not exist.
    Gone,
}

/// Which socket gets a connection that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taker {
    /// This listener.
    Listener(Cookie),
    /// One of these, which share the port (`SO_REUSEPORT`).
    OneOf(Vec<Cookie>),
    /// Nobody listens.
    Nobody,
    /// A connection with these addresses exists.
    Taken,
}

/// The sockets of one network namespace.
#[derive(Debug)]
pub struct SocketTable {
    socket: Foreign,
    asked: Cell<u32>,
}

impl SocketTable {
    /// The table of the namespace of this process.
    ///
    /// # Errors
    /// There are no netlink sockets, or no free descriptor.
    pub fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket: Foreign::new(socket, Owner::NOBODY), asked: Cell::new(random::u32()) })
    }

    /// The table of the namespace with number `namespace`, over a netlink socket that a program handed over.
    pub fn handed_over(socket: Foreign, namespace: u64) -> Option<Self> {
        let is_it = Self::is_one(socket.as_fd()) && netns::cookie(socket.as_fd()) == Some(namespace);
        is_it.then(|| Self { socket, asked: Cell::new(random::u32()) })
    }

    /// Whether a descriptor is a `sock_diag` socket. Never blocks.
    pub fn is_one(socket: BorrowedFd<'_>) -> bool {
        sockopt::socket_domain(socket) == Ok(AddressFamily::NETLINK)
            && sockopt::socket_protocol(socket) == Ok(Some(netlink::SOCK_DIAG))
    }

    /// Whether the kernel answers: looks up a listener of this process.
    pub fn works(&self) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").or_else(|_| TcpListener::bind("[::1]:0"));
        let Some((listener, address)) =
            listener.ok().and_then(|listener| listener.local_addr().ok().map(|address| (listener, address)))
        else {
            return false;
        };
        let nobody = SocketAddr::new(address.ip(), 0);
        let own = Cookie::of(listener.as_fd()).ok();
        own.is_some_and(|own| self.find(address, nobody, 0) == Some(Found::Listener(own)))
    }

    /// The socket of the connection from `local` to `remote`, or the listener that would get it from `remote` by this interface (0:
    /// any; but a socket bound to an interface is not found then). `None` if the kernel does not say.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr, interface: u32) -> Option<Found> {
        let number = self.ask(&Question::one(local, remote, interface))?;
        let mut answer = [0; diag::ANSWER];
        found(diag::read(self.answer(number, &mut answer)?)?.0, remote)
    }

    /// Sends a question, and returns its number.
    fn ask(&self, question: &Question) -> Option<u32> {
        let number = self.asked.get().wrapping_add(1);
        self.asked.set(number);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &question.encode(number), SendFlags::DONTWAIT, &kernel).ok()?;
        Some(number)
    }

    /// Receives an answer to question `number`.
    fn answer<'a>(&self, number: u32, answer: &'a mut [u8]) -> Option<&'a [u8]> {
        for _ in 0..OTHERS {
            let (len, _, from) =
                rustix::net::recvfrom(&self.socket, &mut *answer, RecvFlags::DONTWAIT).ok()?;
            let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
            if from.is_some_and(|from| from.pid() == 0) && diag::number(&answer[..len]) == Some(number) {
                return answer.get(..len);
            }
        }
        None
    }

    /// The socket of the connection from `local` to `remote`, also if it is closed, once both sides have completed the handshake.
    pub fn connected(&self, local: SocketAddr, remote: SocketAddr, interface: u32) -> Option<Cookie> {
        match self.find(local, remote, interface)? {
            Found::Connection { cookie, state, .. } if was_connected(state) => Some(cookie),
            _ => None,
        }
    }

    /// The accepting side's socket of the connection from `local` to `remote`, also before the last ACK of the handshake has come: the
    /// socket that the kernel makes of a connection request has the request's number.
    pub fn accepting(&self, local: SocketAddr, remote: SocketAddr, interface: u32) -> Option<Cookie> {
        match self.find(local, remote, interface)? {
            Found::Connection { cookie, .. } => Some(cookie),
            _ => None,
        }
    }

    /// Which socket gets a connection from `client` to `server` that is about to be made; `None` if the kernel does not say.
    pub fn taker(&self, client: SocketAddr, server: SocketAddr, interface: u32) -> Option<Taker> {
        Some(match self.find(server, client, interface)? {
            // A socket in TIME_WAIT does not reserve the ports, but hides the listener that the kernel would choose.
            Found::Connection { state: State::TIME_WAIT, .. } => {
                match self.find(server, SocketAddr::new(client.ip(), 0), interface)? {
                    Found::Listener(cookie) => self.any_of(server, cookie)?,
                    _ => Taker::Nobody,
                }
            }
            Found::Nothing => Taker::Nobody,
            Found::Listener(cookie) => Taker::Listener(cookie),
            Found::Connection { .. } => Taker::Taken,
        })
    }

    /// `cookie`, or all listeners that share its port, among which the kernel chooses by the client's port.
    fn any_of(&self, server: SocketAddr, cookie: Cookie) -> Option<Taker> {
        let v4 = if server.is_ipv4() { self.listeners(false, server.port())? } else { Vec::new() };
        let all =
            if v4.iter().any(|(of, _)| *of == cookie) { v4 } else { self.listeners(true, server.port())? };
        let place = all.iter().find(|(of, _)| *of == cookie)?.1;
        let group: Vec<Cookie> = all.iter().filter(|(_, at)| *at == place).map(|(of, _)| *of).collect();
        Some(if group.len() > 1 { Taker::OneOf(group) } else { Taker::Listener(cookie) })
    }

    /// All listeners of one address family at a port, each with its address and interface.
    fn listeners(&self, v6: bool, port: u16) -> Option<Vec<(Cookie, Place)>> {
        let number = self.ask(&Question::listeners(v6, port))?;
        let (mut listed, mut answer) = (Vec::new(), vec![0; DUMP]);
        for _ in 0..OTHERS {
            let mut rest = self.answer(number, &mut answer)?;
            while !rest.is_empty() {
                let (message, next) = diag::read(rest)?;
                match message {
                    Message::Socket(told) => listed.push((Cookie(told.cookie), told.place)),
                    Message::Done => return Some(listed),
                    Message::Nothing => return None,
                }
                rest = next;
            }
        }
        None
    }

    /// What became of the connection from `local` to `remote`; `None` if the kernel does not say.
    pub fn fate(&self, local: SocketAddr, remote: SocketAddr, interface: u32) -> Option<Fate> {
        Some(match self.find(local, remote, interface)? {
            Found::Connection { held: true, .. } => Fate::Held,
            Found::Connection { .. } => Fate::Unheld,
            Found::Nothing | Found::Listener(_) => Fate::Gone,
        })
    }
}

/// Reads the kernel's answer: the connection, else a listener, else neither.
fn found(message: Message, remote: SocketAddr) -> Option<Found> {
    let told = match message {
        Message::Socket(told) => told,
        Message::Nothing => return Some(Found::Nothing),
        Message::Done => return None,
    };
    let cookie = Cookie(told.cookie);
    Some(match told.state {
        State::LISTEN => Found::Listener(cookie),
        _ if told.remote_port != remote.port() => Found::Nothing,
        state => Found::Connection { cookie, state, held: told.held, uid: told.uid },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{IpAddr, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn lives(address: &str) {
        let table = SocketTable::open().unwrap();
        let fate = |one, other| table.fate(one, other, LOOPBACK);
        let listener = TcpListener::bind(address).unwrap();
        let (server, heard) = (listener.local_addr().unwrap(), Cookie::of(listener.as_fd()).unwrap());
        let nobody = SocketAddr::new(server.ip(), 1);
        assert_eq!(table.taker(nobody, server, LOOPBACK), Some(Taker::Listener(heard)));
        let client = TcpStream::connect(server).unwrap();
        let (local, cookie) = (client.local_addr().unwrap(), Cookie::of(client.as_fd()).unwrap());
        assert_eq!(fate(local, server), Some(Fate::Held));
        assert_eq!(fate(server, local), Some(Fate::Unheld), "in the queue of the listener");
        assert_eq!(table.connected(local, server, LOOPBACK), Some(cookie));
        assert_eq!(table.taker(local, server, LOOPBACK), Some(Taker::Taken));
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(fate(server, local), Some(Fate::Held));
        drop(client);
        soon(|| fate(local, server) != Some(Fate::Held));
        assert_eq!(table.connected(local, server, LOOPBACK), Some(cookie), "closed, but it was the one");
        drop(accepted);
        assert_eq!(table.connected(local, server, LOOPBACK), Some(cookie), "waiting for its time to be over");
        assert_eq!(fate(server, SocketAddr::new(local.ip(), 1)), Some(Fate::Gone), "not the listener");
        drop(listener);
        soon(|| table.taker(nobody, server, LOOPBACK) == Some(Taker::Nobody));
    }

    /// Waits until `is_so`: for a moment, a process that another test starts has this process's descriptors, too.
    fn soon(is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < end, "not after 10 s");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn socket_table_knows_whose_a_connection_is_and_who_holds_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            lives(address);
        }
        assert!(SocketTable::open().unwrap().works());
    }

    #[test]
    fn socket_table_does_not_tell_which_of_several_listeners_is_next_beside_a_connections_rest() {
        let table = SocketTable::open().unwrap();
        let listener = |address: SocketAddr| {
            let flags = SocketFlags::CLOEXEC;
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
            sockopt::set_socket_reuseport(&socket, true).unwrap();
            rustix::net::bind(&socket, &address).unwrap();
            rustix::net::listen(&socket, 16).unwrap();
            TcpListener::from(socket)
        };
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let one = listener(address.parse().unwrap());
            let bound = one.local_addr().unwrap();
            let server = SocketAddr::new(
                if bound.ip() == IpAddr::from([0; 16]) { [127, 0, 0, 1].into() } else { bound.ip() },
                bound.port(),
            );
            let client = TcpStream::connect(server).unwrap();
            let local = client.local_addr().unwrap();
            // The side that closes first stays in TIME_WAIT.
            drop(one.accept().unwrap());
            drop(client);
            soon(|| table.fate(server, local, LOOPBACK) == Some(Fate::Unheld));
            let cookie = |listener: &TcpListener| Cookie::of(listener.as_fd()).unwrap();
            assert_eq!(
                table.taker(local, server, LOOPBACK),
                Some(Taker::Listener(cookie(&one))),
                "{address}"
            );
            let other = listener(bound);
            let Some(Taker::OneOf(mut both)) = table.taker(local, server, LOOPBACK) else {
                panic!("{address}")
            };
            both.sort_by_key(|cookie| cookie.0);
            let mut wanted = [cookie(&one), cookie(&other)];
            wanted.sort_by_key(|cookie| cookie.0);
            assert_eq!(both, wanted);
            drop((one, other));
            soon(|| table.taker(local, server, LOOPBACK) == Some(Taker::Nobody));
        }
    }

    #[test]
    fn accepting_socket_is_known_before_the_handshake_has_ended() {
        let table = SocketTable::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        // A listener that takes no notice of the handshake's end, only of the first bytes.
        let deferred = "import socket; socket.socket(fileno=0).setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)";
        let socket = OwnedFd::from(listener.try_clone().unwrap());
        let set = Command::new("python3").args(["-c", deferred]).stdin(Stdio::from(socket)).status();
        assert!(set.expect("python3").success());
        let mut client = TcpStream::connect(server).unwrap();
        let local = client.local_addr().unwrap();
        assert_eq!(table.connected(server, local, LOOPBACK), None);
        let early = table.accepting(server, local, LOOPBACK).expect("a request");
        client.write_all(b"x").unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(Cookie::of(accepted.as_fd()).unwrap(), early);
        assert_eq!(table.accepting(server, local, LOOPBACK), Some(early));
    }

    #[test]
    fn socket_that_waits_for_an_answer_is_no_connection() {
        let table = SocketTable::open().unwrap();
        let silent = SocketAddr::from(([192, 0, 2, 1], 9));
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let _ = rustix::net::connect(&socket, &silent);
        let local = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
        assert_eq!(table.connected(local, silent, 0), None);
    }

    #[test]
    fn socket_table_is_taken_of_its_own_namespace_only() {
        let shown =
            |socket, namespace| SocketTable::handed_over(Foreign::new(socket, Owner::NOBODY), namespace);
        let own = netns::own().unwrap();
        let diag = |protocol| {
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
        };
        assert!(shown(diag(Some(netlink::SOCK_DIAG)).unwrap(), own).is_some());
        assert!(shown(diag(Some(netlink::SOCK_DIAG)).unwrap(), own + 1).is_none());
        assert!(shown(diag(None).unwrap(), own).is_none());
        let tcp = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        assert!(shown(tcp, own).is_none());
    }
}
