//! One session with the daemon, from `Welcome` to its end: streams and listeners refer to it.

use crate::error::Error;
use crate::wait::{Waiter, has_one_processor};
use crosslane_client::offload::Offload;
use crosslane_client::segments::Next;
use crosslane_client::session::{Grant, Session, SessionError};
use crosslane_client::{BufferError, Daemon, End, ResumeError};
use crosslane_shm::FarBuffer;
use crosslane_shm::buffer::Located;
use crosslane_shm::status_page::StatusPage;
use crosslane_shm::wake::Waker;
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::{BufferId, CircuitId, HostId, PROTOCOL_VERSION, WaiterId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A session. It is never freed: its streams refer to it until the process ends.
#[derive(Debug)]
pub(crate) struct Attachment {
    link: Mutex<Link>,
    /// The session's socket, polled for its end.
    socket: OwnedFd,
    status_page: StatusPage,
    host: HostId,
    addresses: Vec<IpAddr>,
    subnets: Vec<(IpAddr, u8)>,
    spin_ns: u32,
    idle: Mutex<Vec<Waiter>>,
    /// The memory shared with the engine, once a stream wanted it.
    offload: OnceLock<Option<&'static Offload>>,
}

#[derive(Debug)]
struct Link {
    session: Session,
    /// Answers that the caller stopped waiting for, and that have not come yet.
    owed: u32,
}

impl Attachment {
    /// Opens a session with the daemon whose control socket is `path`.
    pub(crate) fn open(path: &Path) -> Result<&'static Self, Error> {
        let session = Session::connect(path)?;
        let hello = Request::Hello { version: PROTOCOL_VERSION, program: program(), ticket: 0 };
        let (reply, fds) = session.request(&hello, &[])?;
        let (host, addresses, subnets, spin_ns) = match reply {
            Reply::Welcome { host, addresses, subnets, spin_ns, .. } => (host, addresses, subnets, spin_ns),
            Reply::Error { text } => return Err(SessionError::Refused(text).into()),
            _ => return Err(SessionError::Unexpected("a welcome was due").into()),
        };
        // The daemon sends it in any case; if it is missing, this process had no free descriptor for it.
        let status_page = fds.first().ok_or(SessionError::NoDescriptors)?;
        let status_page = StatusPage::map(status_page).ok_or(SessionError::Unexpected("no status page"))?;
        let socket = session.socket().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let spin_ns = if has_one_processor() { 0 } else { spin_ns };
        let (link, idle) = (Mutex::new(Link { session, owed: 0 }), Mutex::new(Vec::new()));
        let offload = OnceLock::new();
        let attachment = Self { link, socket, status_page, host, addresses, subnets, spin_ns, idle, offload };
        Ok(Box::leak(Box::new(attachment)))
    }

    /// Whether the session, and with it all its streams, has ended: the daemon is gone.
    pub(crate) fn is_over(&self) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [self.watched()], Some(&zero)).is_ok_and(|count| count > 0)
    }

    pub(crate) fn host(&self) -> HostId {
        self.host
    }

    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// This host's fabric address for connections to other hosts of the fabric; else the kernel chooses.
    pub(crate) fn address_towards(&self, remote: IpAddr) -> IpAddr {
        let inside = self.subnets.iter().any(|&(subnet, prefix)| contains(subnet, prefix, remote));
        let own = self.addresses.iter().find(|own| inside && own.is_ipv4() == remote.is_ipv4());
        own.copied().unwrap_or(match remote {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }

    /// Makes the end of the circuit that the daemon grants for `request` and the connection `socket`.
    pub(crate) fn end(
        &'static self,
        request: &Request,
        socket: BorrowedFd<'_>,
        remote: SocketAddr,
    ) -> Result<End, Error> {
        self.begin(self.granted(request, socket, remote)?)
    }

    fn granted(&self, request: &Request, socket: BorrowedFd<'_>, remote: SocketAddr) -> Result<Grant, Error> {
        match self.ask(|session| session.circuit(request, socket)) {
            Ok(answer) => answer.map_err(|why| Error::Plain { remote, why }),
            Err(error) => {
                // The far side must not wait for an end that no process holds.
                if let Error::Session(SessionError::NoRoom { circuit, token }) = error {
                    self.tell(&Request::Close { circuit, token, abort: true });
                }
                Err(error)
            }
        }
    }

    fn begin(&'static self, grant: Grant) -> Result<End, Error> {
        let (circuit, token) = (grant.circuit, grant.token);
        let begun = match self.status_page.word(grant.status) {
            Some(status) => {
                End::prepare(&grant);
                let begun = End::begin(grant, status, self);
                begun.map_err(|failure| Error::Violated(failure.to_string()))
            }
            None => Err(SessionError::Unexpected("status word").into()),
        };
        if begun.is_err() {
            self.tell(&Request::Close { circuit, token, abort: true });
        }
        begun
    }

    /// Runs `work`, which sends one request to the daemon and reads its answer.
    pub(crate) fn ask<T>(&self, work: impl FnOnce(&Session) -> Result<T, SessionError>) -> Result<T, Error> {
        self.request(work).map_err(|error| match error {
            SessionError::Lost(_) if self.is_over() => Error::DaemonGone,
            error => error.into(),
        })
    }

    fn request<T>(&self, work: impl FnOnce(&Session) -> Result<T, SessionError>) -> Result<T, SessionError> {
        let mut link = self.link();
        link.session.tell_given_back();
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

    /// Sends a message without answer to the daemon. If the daemon is gone, the message is not needed.
    pub(crate) fn tell(&self, request: &Request) {
        let link = self.link();
        link.session.tell_given_back();
        let _ = link.session.tell(request);
    }

    /// Takes a wake event that is registered with the daemon.
    pub(crate) fn waiter(&self) -> Result<Waiter, Error> {
        if let Some(waiter) = self.idle().pop() {
            return Ok(waiter);
        }
        let (id, event) = self.ask(Session::waiter)?;
        Ok(Waiter::new(id, event))
    }

    /// Returns the wake event.
    pub(crate) fn give(&self, waiter: Waiter) {
        waiter.clear();
        self.idle().push(waiter);
    }

    /// For `poll`: reports only the daemon's end, which ends all streams of the session.
    pub(crate) fn watched(&self) -> PollFd<'_> {
        PollFd::new(&self.socket, PollFlags::empty())
    }

    /// The session's socket, for callers that sleep for many streams.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The event that the engine wakes at the end of transfers for which no thread waits; `None` if there is no engine.
    pub(crate) fn engine_completions(&self) -> Option<BorrowedFd<'static>> {
        self.offload().map(Offload::completions)
    }

    /// Longest spin, ns; 0 on a machine with one processor.
    pub(crate) fn spin_ns(&self) -> u32 {
        self.spin_ns
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon for Attachment {
    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, ResumeError> {
        let answer = self.request(|session| session.resume(circuit, token, generation));
        answer.ok().flatten().ok_or(ResumeError::Never)
    }

    fn wake(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> bool {
        self.link().session.tell(&Request::Wake { circuit, token, waiter }).is_ok()
    }

    fn waker(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> Option<Waker> {
        self.request(|session| session.waker(circuit, token, waiter)).ok().flatten()
    }

    fn broken_off(&self, circuit: CircuitId, token: u64, why: &str) {
        self.tell(&Request::Violated { circuit, token, text: why.to_owned() });
    }

    fn grow(&self, circuit: CircuitId, token: u64, generation: u32) {
        self.tell(&Request::Grow { circuit, token, generation });
    }

    fn export_buffer(&self, circuit: CircuitId, token: u64, located: &Located) -> Result<(), BufferError> {
        self.request(|session| session.export_buffer(circuit, token, located)).map_err(|_| BufferError::Never)
    }

    fn far_buffer(&self, circuit: CircuitId, token: u64, buffer: BufferId) -> Result<FarBuffer, BufferError> {
        let answer = self.request(|session| session.far_buffer(circuit, token, buffer));
        answer.ok().flatten().ok_or(BufferError::Never)
    }

    fn offload(&self) -> Option<&'static Offload> {
        let attach = || {
            let keep = |fd| {
                let kept: &'static OwnedFd = Box::leak(Box::new(fd));
                kept.as_fd()
            };
            let attached = self.request(|session| Offload::attach(session, keep)).ok()?;
            Some(&*Box::leak(Box::new(attached)))
        };
        *self.offload.get_or_init(attach)
    }

    fn register_buffer(&self, located: &Located) -> u32 {
        self.request(|session| session.register_buffer(located)).unwrap_or(0)
    }

    fn register_rings(&self, circuit: CircuitId, token: u64, generation: u32) -> u32 {
        self.request(|session| session.register_rings(circuit, token, generation)).unwrap_or(0)
    }
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

/// This program's name, for display and for rules.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "?".to_owned())
}
