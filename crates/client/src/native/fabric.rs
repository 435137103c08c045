//! The session of a program that has streams.

use super::{Error, Listener, Patience, Stream, Waiter};
use crate::session::{self, Session};
use crate::slices::Next;
use crate::{Daemon, End, Grant, NoNext, SessionError};
use crosslane_shm::arena::Arena;
use crosslane_shm::life::LifePage;
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{CircuitId, HostId, PROTOCOL_VERSION, WaiterId};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A session with this host's daemon, for as long as the process lives. Copies are the same session. One for a process
/// is enough; any thread may use it.
#[derive(Clone, Copy, Debug)]
pub struct Fabric(&'static Inner);

#[derive(Debug)]
struct Inner {
    link: Mutex<Link>,
    /// The session's socket, to see its end.
    socket: OwnedFd,
    arena: &'static Arena,
    life: LifePage,
    host: HostId,
    addresses: Vec<IpAddr>,
    subnets: Vec<(IpAddr, u8)>,
    spin_ns: u32,
    idle: Mutex<Vec<Waiter>>,
}

#[derive(Debug)]
struct Link {
    session: Session,
    /// Answers that were given up and have not come yet.
    owed: u32,
}

impl Fabric {
    /// Opens a session with the daemon that `CROSSLANE_SOCKET` names, or the default one.
    ///
    /// # Errors
    /// [`Error::Session`] if no daemon answers.
    pub fn open() -> Result<Self, Error> {
        Self::open_at(&session::socket_path())
    }

    /// Opens a session with the daemon whose control socket is `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_at(path: &Path) -> Result<Self, Error> {
        let (arena, arena_fd) = Arena::create().map_err(SessionError::Map)?;
        let session = Session::connect(path)?;
        let hello = Request::Hello { version: PROTOCOL_VERSION, program: program() };
        let (reply, fds) = session.request(&hello, &[arena_fd.as_fd()])?;
        let (host, addresses, subnets, spin_ns) = match reply {
            Reply::Welcome { host, addresses, subnets, spin_ns, .. } => (host, addresses, subnets, spin_ns),
            Reply::Error { text } => return Err(SessionError::Refused(text).into()),
            _ => return Err(SessionError::Unexpected("a welcome was due").into()),
        };
        let life = fds.first().and_then(LifePage::map).ok_or(SessionError::Unexpected("no life page"))?;
        let socket = session.socket().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let spin_ns = if super::wait::has_one_processor() { 0 } else { spin_ns };
        let (link, idle) = (Mutex::new(Link { session, owed: 0 }), Mutex::new(Vec::new()));
        // Streams refer to the arena and the session until the process ends.
        let arena = Box::leak(Box::new(arena));
        let inner = Inner { link, socket, arena, life, host, addresses, subnets, spin_ns, idle };
        Ok(Self(Box::leak(Box::new(inner))))
    }

    /// This host.
    pub fn host(&self) -> HostId {
        self.0.host
    }

    /// This host's addresses in the fabric.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0.addresses
    }

    /// Listens at an address of this host; port 0 is any free one.
    ///
    /// # Errors
    /// The address is taken or not of this host, or the daemon is of no help.
    pub fn listen(&self, address: SocketAddr) -> Result<Listener, Error> {
        Listener::new(*self, address)
    }

    /// How long [`Self::connect`] waits.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Connects to a listener on any host of the fabric; waits until that is done, for [`Self::CONNECT_TIMEOUT`] at most.
    ///
    /// # Errors
    /// [`Error::Plain`] if the connection cannot be a stream; [`Error::System`] if there is no connection at all;
    /// [`Error::TimedOut`].
    pub fn connect(&self, remote: SocketAddr) -> Result<Stream, Error> {
        self.connect_within(remote, Self::CONNECT_TIMEOUT)
    }

    /// As [`Self::connect`], for `limit` at most.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_within(&self, remote: SocketAddr, limit: Duration) -> Result<Stream, Error> {
        self.connect_by(remote, &mut Patience::within(limit))
    }

    pub(crate) fn connect_by(&self, remote: SocketAddr, patience: &mut Patience) -> Result<Stream, Error> {
        let socket = new_socket(remote)?;
        // It is announced by its address and port, before it is made.
        rustix::net::bind(&socket, &SocketAddr::new(self.address_towards(remote.ip()), 0))?;
        let slot = self.0.arena.allot().ok_or(Error::NoSlot)?;
        let stream = self.stream(&Request::Connect { remote, slot }, slot, socket, remote)?;
        match stream.connect(remote, patience) {
            Ok(()) => Ok(stream),
            Err(error) => {
                stream.give_up();
                Err(error)
            }
        }
    }

    /// This host's fabric address, towards other ones; else the kernel chooses.
    fn address_towards(&self, remote: IpAddr) -> IpAddr {
        let inside = self.0.subnets.iter().any(|&(subnet, prefix)| contains(subnet, prefix, remote));
        let own = self.0.addresses.iter().find(|own| inside && own.is_ipv4() == remote.is_ipv4());
        own.copied().unwrap_or(match remote {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }

    /// The stream that an accepted connection is.
    pub(super) fn accepted(&self, socket: OwnedFd, remote: SocketAddr) -> Result<Stream, Error> {
        let slot = self.0.arena.allot().ok_or(Error::NoSlot)?;
        let stream = self.stream(&Request::Accept { slot }, slot, socket, remote)?;
        if stream.end().was_attached() {
            return Ok(stream);
        }
        // The other end's daemon had given up waiting for ours: its program connected by plain TCP.
        stream.give_up();
        Err(Error::Plain { remote, why: Plain::NotAnnounced })
    }

    /// Asks for a circuit and makes a stream of it; the slot is freed if that fails.
    fn stream(
        &self,
        request: &Request,
        slot: u32,
        socket: OwnedFd,
        remote: SocketAddr,
    ) -> Result<Stream, Error> {
        let begun = self.granted(request, socket.as_fd(), remote).and_then(|grant| self.begin(grant));
        match begun {
            Ok(end) => Ok(Stream::new(*self, end, socket)),
            Err(error) => {
                self.free(slot);
                Err(error)
            }
        }
    }

    fn granted(&self, request: &Request, socket: BorrowedFd<'_>, remote: SocketAddr) -> Result<Grant, Error> {
        match self.ask(|session| session.circuit(request, socket)) {
            Ok(answer) => answer.map_err(|why| Error::Plain { remote, why }),
            Err(error) => {
                // The far side must not count on an end that nobody holds.
                if let SessionError::NoRoom { circuit, token } = error {
                    self.tell(&Request::Close { circuit, token, abort: true });
                }
                Err(error.into())
            }
        }
    }

    fn begin(&self, grant: Grant) -> Result<End, Error> {
        let (circuit, token) = (grant.circuit, grant.token);
        let begun = match self.0.life.word(grant.life) {
            Some(life) => {
                End::prepare(&grant, self.0.arena);
                let begun = End::begin(grant, self.0.arena, life, self.0);
                begun.map_err(|failure| Error::Violated(failure.to_string()))
            }
            None => Err(SessionError::Unexpected("life word").into()),
        };
        if begun.is_err() {
            self.tell(&Request::Close { circuit, token, abort: true });
        }
        begun
    }

    /// Gives an arena slot back.
    pub(super) fn free(&self, slot: u32) {
        self.0.arena.counters(slot).refs.store(0, core::sync::atomic::Ordering::Release);
    }

    /// Does what asks the daemon for one answer.
    pub(super) fn ask<T>(
        &self,
        work: impl FnOnce(&Session) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        self.0.ask(work)
    }

    /// Tells the daemon something that has no answer. One that is gone need not know.
    pub(super) fn tell(&self, request: &Request) {
        let _ = self.0.link().session.tell(request);
    }

    /// A wake event that the daemon knows of.
    pub(crate) fn waiter(&self) -> Result<Waiter, Error> {
        if let Some(waiter) = self.0.idle().pop() {
            return Ok(waiter);
        }
        Waiter::make(|event| self.ask(|session| session.waiter(event)))
    }

    /// Gives it back.
    pub(crate) fn give(&self, waiter: Waiter) {
        waiter.clear();
        self.0.idle().push(waiter);
    }

    /// For `poll`: told of nothing but the daemon's end, and with it that of all streams.
    pub(crate) fn watched(&self) -> PollFd<'static> {
        PollFd::from_borrowed_fd(self.0.socket.as_fd(), PollFlags::empty())
    }

    /// The session's socket, for those who sleep for many streams.
    pub(crate) fn socket(&self) -> BorrowedFd<'static> {
        self.0.socket.as_fd()
    }

    /// Longest spin, ns; 0 with one processor.
    pub(crate) fn spin_ns(&self) -> u32 {
        self.0.spin_ns
    }
}

impl Inner {
    fn ask<T>(&self, work: impl FnOnce(&Session) -> Result<T, SessionError>) -> Result<T, SessionError> {
        let mut link = self.link();
        while link.owed > 0 {
            link.session.late_answer(true)?;
            link.owed -= 1;
        }
        let outcome = work(&link.session);
        if matches!(outcome, Err(SessionError::Late)) {
            link.owed += 1;
        }
        outcome
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon for Inner {
    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, NoNext> {
        let answer = self.ask(|session| session.resume(circuit, token, generation));
        answer.ok().flatten().ok_or(NoNext::Never)
    }

    fn ring(&self, circuit: CircuitId, waiter: WaiterId) -> bool {
        self.link().session.tell(&Request::Ring { circuit, waiter }).is_ok()
    }
}

/// A TCP socket for an address. No call on it goes through the C library, so that a preloaded one does not take it for
/// a program's.
pub(super) fn new_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

fn contains(subnet: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let prefix = u32::from(prefix);
    match (subnet, address) {
        (IpAddr::V4(subnet), IpAddr::V4(address)) => {
            (subnet.to_bits() ^ address.to_bits()).leading_zeros() >= prefix.min(32)
        }
        (IpAddr::V6(subnet), IpAddr::V6(address)) => {
            (subnet.to_bits() ^ address.to_bits()).leading_zeros() >= prefix.min(128)
        }
        _ => false,
    }
}

/// This program's name, for people and for rules.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "?".to_owned())
}
