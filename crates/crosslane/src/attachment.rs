//! One session with the daemon, from `Welcome` to its end: streams and listeners refer to it.

use crate::error::Error;
use crate::wait::{Waiter, has_one_processor};
use core::mem::ManuallyDrop;
use crosslane_client::link::attached::{self, Attached, Linked};
use crosslane_client::link::wakers::{self, Wakers};
use crosslane_client::offload::Offload;
use crosslane_client::session::{self, ANSWER_TIMEOUT, Session, SessionError};
use crosslane_client::{CircuitEnd, End};
use crosslane_shm::wake::Waker;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{HostId, WaiterId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A session. It is never freed: its streams refer to it until the process ends.
#[derive(Debug)]
pub(crate) struct Attachment {
    link: Mutex<Attached>,
    /// The session's socket, polled for its end.
    socket: OwnedFd,
    host: HostId,
    addresses: Vec<IpAddr>,
    subnets: Vec<(IpAddr, u8)>,
    spin_ns: u32,
    idle: Mutex<Vec<Waiter>>,
    /// The memory shared with the engine, once a stream wanted it.
    offload: OnceLock<Option<&'static Offload>>,
    /// Wakers of those who sleep on second circuits of striped streams.
    wakers: Mutex<Wakers<Arc<Waker>>>,
}

/// Most wakers for second circuits that a session keeps.
const WAKERS: usize = 64;

impl Attachment {
    /// Opens a session with the daemon whose control socket is `path`.
    pub(crate) fn open(path: &Path) -> Result<&'static Self, Error> {
        let session = Session::connect(path)?;
        let (welcome, fds) = session.hello_again(&program(), 0)?;
        let Reply::Welcome { host, addresses, subnets, spin_ns, .. } = welcome else {
            return Err(SessionError::Unexpected("a welcome was due").into());
        };
        let status_page = session::status_page(&fds)?;
        let socket = session.socket().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let spin_ns = if has_one_processor() { 0 } else { spin_ns };
        let attached = Attached::new(ManuallyDrop::new(session), status_page);
        let (link, idle, offload) = (Mutex::new(attached), Mutex::new(Vec::new()), OnceLock::new());
        let wakers = Mutex::new(Wakers::new(WAKERS));
        let attachment = Self { link, socket, host, addresses, subnets, spin_ns, idle, offload, wakers };
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
        let granted = self.link().circuit(request, socket, ANSWER_TIMEOUT, true, |_, _| None);
        let granted = self.told(granted)?.map_err(|why| Error::Plain { remote, why })?;
        let is_striped = granted.0.twin;
        let begun = attached::begin(granted, self, self.spin_ns, Some);
        let end = begun.map_err(|failure| Error::Violated(failure.to_string()))?.ok_or(Error::Closed)?;
        if is_striped && !self.stripe(&end, remote)? {
            Linked::tell(self, &end.closing(true));
            return Err(Error::Closed);
        }
        Ok(end)
    }

    /// Has the stream use a second circuit; whether there is one. If not, both ends know.
    ///
    /// # Errors
    /// The far daemon may have made one all the same: the end was given back.
    pub(crate) fn stripe(&'static self, end: &End, remote: SocketAddr) -> Result<bool, Error> {
        let granted = self.link().twin((end.circuit(), end.token()), ANSWER_TIMEOUT, true, |_| None);
        let striped = match self.told(granted) {
            Ok(Ok(granted)) => attached::stripe(end, granted, self, false)
                .map(|()| true)
                .map_err(|failure| Error::Violated(failure.to_string())),
            Ok(Err(why @ Plain::Refused(Refusal::Timeout))) => Err(Error::Plain { remote, why }),
            Ok(Err(_)) => Ok(false),
            Err(error) => Err(error),
        };
        striped.inspect_err(|_| {
            Linked::tell(self, &end.closing(true));
        })
    }

    /// Runs `work`, which sends one request to the daemon and reads its answer.
    pub(crate) fn ask<T>(&self, work: impl FnOnce(&Session) -> Result<T, SessionError>) -> Result<T, Error> {
        let answer = self.link().ask(true, work);
        self.told(answer)
    }

    fn told<T>(&self, answer: Result<T, SessionError>) -> Result<T, Error> {
        answer.map_err(|error| match error {
            SessionError::Lost(_) if self.is_over() => Error::DaemonGone,
            error => error.into(),
        })
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
        self.engine().map(Offload::completions)
    }

    /// Longest spin, ns; 0 on a machine with one processor.
    pub(crate) fn spin_ns(&self) -> u32 {
        self.spin_ns
    }

    fn link(&self) -> MutexGuard<'_, Attached> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Linked for Attachment {
    fn ask<T>(&self, work: impl Fn(&Session) -> Result<T, SessionError>) -> Option<T> {
        self.link().ask(true, work).ok()
    }

    /// If the daemon is gone, the message is not needed.
    fn tell(&self, request: &Request) -> bool {
        let link = self.link();
        link.session().tell_given_back();
        link.session().tell(request).is_ok()
    }

    fn ring(&self, end: &CircuitEnd, waiter: WaiterId) {
        wakers::wake(&self.wakers, end, waiter);
    }

    fn engine(&self) -> Option<&'static Offload> {
        let attach = || {
            let keep = |fd| {
                let kept: &'static OwnedFd = Box::leak(Box::new(fd));
                kept.as_fd()
            };
            let attached = Linked::ask(self, |session| Offload::attach(session, keep))?;
            Some(&*Box::leak(Box::new(attached)))
        };
        *self.offload.get_or_init(attach)
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
