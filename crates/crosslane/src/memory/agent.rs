//! The agent: the thread that executes other programs' requests on this program's memory.

use super::Error;
use super::connection::{Connection, Owner};
use super::handle::Handle;
use super::notices::Notices;
use super::regions::Regions;
use crate::attachment::Attachment;
use crate::fabric::Listener;
use crate::stream;
use crate::wait::{Event, Waiter, most_spinners};
use core::sync::atomic::Ordering;
use crosslane_client::link::{Requests, Spinner, WaitFor};
use crosslane_client::session::SessionError;
use crosslane_shm::wait::{Budget, spin};
use crosslane_wire::access::PIECE;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens in the agent's epoll set that are not connections; those are numbered from [`FIRST`] on.
const LISTENER: u64 = 0;
const WAITER: u64 = 1;
const WAKEUP: u64 = 2;
const DAEMON: u64 = 3;
const FIRST: u64 = 4;
/// Most requesters at a time; others are refused.
const REQUESTERS: usize = 4096;
/// Rounds of work between two checks of kernel events.
const ROUNDS: u32 = 256;
/// Sleep between two attempts to find a daemon.
const AGAIN: Duration = Duration::from_millis(200);

/// The agent: serves all its requesters in turn.
#[derive(Debug)]
pub(super) struct Agent {
    listener: Listener,
    tie: Tie,
    owner: Owner,
    connections: BTreeMap<u64, Connection>,
    last: u64,
    /// A connection could not be accepted for lack of descriptors or memory: the listener is not polled for a while.
    deaf: bool,
    budget: Budget,
}

/// The agent's resources of one session with the daemon.
#[derive(Debug)]
struct Tie {
    attachment: &'static Attachment,
    waiter: Waiter,
    epoll: OwnedFd,
}

impl Tie {
    fn new(listener: &Listener, wakeup: &Event) -> Result<Self, stream::Error> {
        let attachment = listener.attachment()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let tie = Self { attachment, waiter: attachment.waiter()?, epoll };
        tie.watch(listener, LISTENER, epoll::EventFlags::IN)?;
        tie.watch(&tie.waiter, WAITER, epoll::EventFlags::IN)?;
        tie.watch(wakeup, WAKEUP, epoll::EventFlags::IN)?;
        tie.watch(attachment.socket(), DAEMON, epoll::EventFlags::empty())?;
        Ok(tie)
    }

    fn watch(&self, fd: impl AsFd, number: u64, flags: epoll::EventFlags) -> Result<(), stream::Error> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), flags)?)
    }
}

impl Agent {
    pub(super) fn new(
        listener: Listener,
        regions: Arc<Regions>,
        notices: Arc<Notices>,
    ) -> Result<Self, Error> {
        let handle = Handle::new()?;
        let tie = Tie::new(&listener, &handle.wakeup)?;
        let owner = Owner { regions, notices, handle, scratch: vec![0; PIECE] };
        let (connections, budget) = (BTreeMap::new(), Budget::new());
        Ok(Self { listener, tie, owner, connections, last: FIRST, deaf: false, budget })
    }

    pub(super) fn handle(&self) -> Handle {
        self.owner.handle.clone()
    }

    /// Serves until it is stopped; after the daemon has ended, with the next one. Also ends if that one refuses.
    pub(super) fn run(mut self) {
        while self.serve() && self.rejoin() {}
        self.owner.notices.end();
    }

    /// Serves until it is stopped (`false`), or the daemon has ended.
    fn serve(&mut self) -> bool {
        let mut rounds = 0;
        while !self.is_stopped() {
            let busy = self.round();
            rounds = if busy && rounds < ROUNDS { rounds + 1 } else { 0 };
            let goes_on = match busy {
                true if rounds < ROUNDS => true,
                true => self.look(Some(Duration::ZERO)).is_some(),
                false => self.rest(),
            };
            if !goes_on {
                return true;
            }
        }
        false
    }

    /// Waits for a daemon and registers with it. `false` if the agent is stopped or refused.
    fn rejoin(&mut self) -> bool {
        self.connections.clear();
        while !self.is_stopped() {
            let wakeup = &self.owner.handle.wakeup;
            match Tie::new(&self.listener, wakeup) {
                Ok(tie) => {
                    (self.tie, self.deaf) = (tie, false);
                    return true;
                }
                Err(error) if is_final(&error) => return false,
                Err(_) => {
                    let again = Timespec::try_from(AGAIN).ok();
                    let _ = poll(&mut [PollFd::new(&**wakeup, PollFlags::IN)], again.as_ref());
                    wakeup.clear();
                }
            }
        }
        false
    }

    fn is_stopped(&self) -> bool {
        self.owner.handle.stop.load(Ordering::Acquire)
    }

    /// Gives each requester a turn; returns whether any work was done.
    fn round(&mut self) -> bool {
        let (owner, mut busy) = (&mut self.owner, false);
        self.connections.retain(|_, connection| match connection.run_once(owner) {
            Ok(done) => {
                busy |= done;
                true
            }
            Err(_) => false,
        });
        busy
    }

    /// No requester has work: spins for a while, then sleeps. `false` if the daemon has ended.
    fn rest(&mut self) -> bool {
        let limit = self.tie.attachment.spin_ns();
        let ns = if self.connections.is_empty() { 0 } else { self.budget.ns(limit) };
        if let Some(_spinner) = Spinner::among(ns, most_spinners())
            && spin(ns, || self.is_ready())
        {
            self.budget.spun(limit);
            return true;
        }
        let start = Instant::now();
        let goes_on = self.sleep();
        self.budget.slept(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), limit);
        goes_on
    }

    fn is_ready(&self) -> bool {
        self.connections.values().any(|connection| connection.is_ready(&self.owner)) || self.is_stopped()
    }

    /// Asks all far sides to wake the agent, looks once more, and sleeps.
    fn sleep(&mut self) -> bool {
        let id = self.tie.waiter.id();
        let mut requests = Requests::default();
        for connection in self.connections.values() {
            if let Some(what) = connection.wants(&self.owner) {
                requests.ask(connection.stream().end(), what, id);
            }
        }
        let goes_on = loop {
            let next = requests.next_sleep();
            let timeout = match self.is_ready() {
                true => Some(Duration::ZERO),
                false => next.limit(self.deaf.then_some(AGAIN)),
            };
            let heard = self.look(timeout);
            if heard != Some(false) || !next.is_bounded() || timeout.is_some_and(|time| time.is_zero()) {
                break heard.is_some();
            }
        };
        for connection in self.connections.values() {
            connection.stream().end().unwant(WaitFor::Either, id);
        }
        goes_on
    }

    /// Waits for kernel events and handles them; returns whether there were any. `None` if the daemon has ended.
    fn look(&mut self, timeout: Option<Duration>) -> Option<bool> {
        let mut events = [const { core::mem::MaybeUninit::uninit() }; 64];
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let (events, _) = match epoll::wait(&self.tie.epoll, &mut events, timeout.as_ref()) {
            Ok(events) => events,
            Err(errno) => return (errno == Errno::INTR).then_some(true),
        };
        let heard = !events.is_empty();
        if self.deaf {
            self.listen(true);
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(),
                WAITER => self.tie.waiter.clear(),
                WAKEUP => self.owner.handle.wakeup.clear(),
                DAEMON => return None,
                number => {
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.stream().look_at_kernel();
                        connection.maybe_readable = true;
                    }
                }
            }
        }
        Some(heard)
    }

    /// Accepts one new requester. A connection that is plain TCP, or one too many, is closed.
    fn accept(&mut self) {
        let stream = match self.listener.try_accept() {
            Ok(Some(stream)) => stream,
            Err(stream::Error::System(_)) => return self.listen(false),
            Ok(None) | Err(_) => return,
        };
        if self.connections.len() >= REQUESTERS {
            return;
        }
        let Ok(connection) = Connection::new(stream) else { return };
        self.last += 1;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if self.tie.watch(connection.stream().carrier(), self.last, flags).is_ok() {
            self.connections.insert(self.last, connection);
        }
    }

    /// Starts or stops polling for connections.
    fn listen(&mut self, on: bool) {
        let flags = if on { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(LISTENER);
        self.deaf = epoll::modify(&self.tie.epoll, &self.listener, data, flags).is_ok() && !on;
    }
}

/// Whether a running daemon refuses this program for good; after other errors a daemon may start, or become less busy.
fn is_final(error: &stream::Error) -> bool {
    use SessionError::{Decode, Refused, Unexpected};
    matches!(error, stream::Error::Session(Refused(_) | Unexpected(_) | Decode(_)))
}
