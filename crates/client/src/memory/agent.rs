//! The thread that executes what others ask of this program's memory.

use super::Error;
use super::connection::{Connection, Owner};
use super::notices::Notices;
use super::regions::Regions;
use crate::native::{self, Fabric, Listener, Spinner, Waiter};
use core::sync::atomic::{AtomicBool, Ordering};
use crosslane_shm::wait::{Budget, spin};
use crosslane_wire::access::PIECE;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What the agent's epoll set has besides the connections, which are numbered from [`FIRST`] on.
const LISTENER: u64 = 0;
const BELL: u64 = 1;
const DAEMON: u64 = 2;
const FIRST: u64 = 3;
/// Most requesters at a time; others are refused.
const REQUESTERS: usize = 4096;
/// Rounds of work between two looks at what the kernel says.
const ROUNDS: u32 = 256;

/// The agent, as other threads reach it.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    stop: Arc<AtomicBool>,
    waiter: Arc<Waiter>,
}

impl Handle {
    /// Wakes it if it sleeps.
    pub(super) fn wake(&self) {
        self.waiter.ring();
    }

    /// Tells it to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}

/// The agent: all its requesters, served by turns.
#[derive(Debug)]
pub(super) struct Agent {
    fabric: Fabric,
    listener: Listener,
    epoll: OwnedFd,
    owner: Owner,
    connections: BTreeMap<u64, Connection>,
    last: u64,
    budget: Budget,
}

impl Agent {
    pub(super) fn new(
        fabric: Fabric,
        listener: Listener,
        regions: Arc<Regions>,
        notices: Arc<Notices>,
    ) -> Result<Self, Error> {
        let waiter = Arc::new(fabric.waiter()?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(native::Error::System)?;
        let handle = Handle { stop: Arc::default(), waiter };
        let owner = Owner { regions, notices, handle, scratch: vec![0; PIECE] };
        let (connections, budget) = (BTreeMap::new(), Budget::new());
        let agent = Self { fabric, listener, epoll, owner, connections, last: FIRST, budget };
        agent.watch(&agent.listener, LISTENER, epoll::EventFlags::IN)?;
        agent.watch(&*agent.owner.handle.waiter, BELL, epoll::EventFlags::IN)?;
        agent.watch(fabric.socket(), DAEMON, epoll::EventFlags::empty())?;
        Ok(agent)
    }

    pub(super) fn handle(&self) -> Handle {
        self.owner.handle.clone()
    }

    /// Serves until it is stopped or the daemon is gone.
    pub(super) fn run(mut self) {
        let mut rounds = 0;
        while !self.owner.handle.stop.load(Ordering::Acquire) {
            let busy = self.round();
            rounds = if busy { rounds + 1 } else { 0 };
            let goes_on = match busy {
                true if rounds % ROUNDS != 0 => true,
                true => self.look(Some(Timespec { tv_sec: 0, tv_nsec: 0 })),
                false => self.rest(),
            };
            if !goes_on {
                break;
            }
        }
        self.owner.notices.end();
    }

    /// Gives each requester a turn; whether anything was done.
    fn round(&mut self) -> bool {
        let (owner, mut busy) = (&mut self.owner, false);
        self.connections.retain(|_, connection| match connection.turn(owner) {
            Ok(done) => {
                busy |= done;
                true
            }
            Err(_) => false,
        });
        busy
    }

    /// Nothing is to be done: spins for a while, then sleeps. `false` if the daemon is gone.
    fn rest(&mut self) -> bool {
        let limit = self.fabric.spin_ns();
        let ns = if self.connections.is_empty() { 0 } else { self.budget.ns(limit) };
        if let Some(_spinner) = Spinner::among(ns)
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
        self.connections.values().any(|connection| connection.is_ready(&self.owner))
            || self.owner.handle.stop.load(Ordering::Relaxed)
    }

    /// Asks all requesters to ring, looks once more, sleeps.
    fn sleep(&mut self) -> bool {
        let id = self.owner.handle.waiter.id();
        for connection in self.connections.values() {
            if let Some(what) = connection.wants(&self.owner) {
                connection.stream().arm(what, id);
            }
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let goes_on = self.look(if self.is_ready() { Some(zero) } else { None });
        for connection in self.connections.values() {
            connection.stream().disarm(id);
        }
        goes_on
    }

    /// Waits for what the kernel has to say, and sees to it. `false` if the daemon is gone.
    fn look(&mut self, timeout: Option<Timespec>) -> bool {
        let mut events = [const { core::mem::MaybeUninit::uninit() }; 64];
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(events) => events,
            Err(errno) => return errno == Errno::INTR,
        };
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(),
                BELL => self.owner.handle.waiter.clear(),
                DAEMON => return false,
                number => {
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.stream().look_at_kernel();
                        connection.stirred = true;
                    }
                }
            }
        }
        true
    }

    /// Takes one new requester. One that is plain TCP, or one too many, is closed.
    fn accept(&mut self) {
        let Ok(Some(stream)) = self.listener.try_accept() else { return };
        if self.connections.len() >= REQUESTERS {
            return;
        }
        let Ok(connection) = Connection::new(stream) else { return };
        self.last += 1;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if self.watch(connection.stream().quiet(), self.last, flags).is_ok() {
            self.connections.insert(self.last, connection);
        }
    }

    fn watch(&self, fd: impl AsFd, number: u64, flags: epoll::EventFlags) -> Result<(), native::Error> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), flags)?)
    }
}
