//! Wake events of this process, and the wakers of other processes' wake events.

use crate::daemon::process;
use crate::descriptors::internal_fds;
use crate::descriptors::table::Held;
use crate::kernel::{fd, program, thread};
use core::sync::atomic::{AtomicUsize, Ordering};
use crosslane_client::link::wakers::{self, Wakers, Waking};
use crosslane_client::{CircuitEnd, Session};
use crosslane_shm::lock::{Guard, Locked};
use crosslane_shm::wake::{self, By, NOBODY, Waker};
use crosslane_wire::WaiterId;
use crosslane_wire::local::Request;
use rustix::fd::RawFd;
use rustix::net::SocketAddrUnix;
use std::collections::BTreeMap;

/// A wake event that the daemon made for us. Belongs to one sleeping thread or one epoll set at a time.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Its number on this host.
    pub id: WaiterId,
    /// The sleeper's socket, one of our own descriptors.
    pub fd: RawFd,
    session: u32,
}

/// How a sleeper of this process is woken from within it.
struct Made {
    fd: RawFd,
    address: SocketAddrUnix,
    word: u64,
    /// A waker's socket, for when `sendto` is not allowed any more.
    confined: Option<RawFd>,
}

/// A waker of a far waiter.
#[derive(Clone, Copy, Debug)]
struct KnownWaker {
    fd: RawFd,
    word: u64,
    by: By,
}

/// The sleepers of this process, and those of others that it has woken.
struct Sleepers {
    idle: Vec<Waiter>,
    /// All that this process has, by number.
    made: BTreeMap<u32, Made>,
    wakers: Wakers<KnownWaker>,
    /// Wakers that were forgotten; closed when the next ones are, so that a thread that was about to ring one does
    /// not ring what its number means by then.
    retired: Vec<RawFd>,
    /// Sleepers that found another one of this process registered at the same end, by the end's place.
    queue: Vec<(u32, WaiterId)>,
}

/// Sleepers in the queue.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

static SLEEPERS: Locked<Sleepers> = Locked::new(Sleepers {
    idle: Vec::new(),
    made: BTreeMap::new(),
    wakers: Wakers::new(WAKERS_MAX),
    retired: Vec::new(),
    queue: Vec::new(),
});
/// Most wakers kept.
const WAKERS_MAX: usize = 256;
/// Wakers that were forgotten and are not closed yet, at most.
const MAX_RETIRED: usize = 16;

impl Waiter {
    /// Takes an idle wake event or makes one. `None` if the daemon cannot be asked: sleep by short timeouts then.
    pub fn take() -> Option<Self> {
        while let Some(waiter) = with(|sleepers| sleepers.idle.pop()).flatten() {
            if waiter.session == process::sessions() {
                return Some(waiter);
            }
            waiter.close();
        }
        Self::make()
    }

    /// Has the daemon make a wake event.
    pub fn make() -> Option<Self> {
        if program::sandboxed() {
            return None;
        }
        let (id, event) = process::with_session(Session::waiter)?;
        let word = event.word();
        let (socket, address) = event.into_parts();
        let waiter = Self { id, fd: internal_fds::hide(socket), session: process::sessions() };
        with(|sleepers| sleepers.made.insert(id.0, Made { fd: waiter.fd, address, word, confined: None }));
        Some(waiter)
    }

    /// Gives it back.
    pub fn give(self) {
        self.clear();
        if with(|sleepers| sleepers.idle.push(self)).is_none() {
            self.close();
        }
    }

    /// Closes it; an epoll set that goes away does this.
    pub fn close(self) {
        if let Some(made) = with(|sleepers| sleepers.made.remove(&self.id.0)).flatten() {
            made.close();
        }
    }

    /// Whether the present session still knows it.
    pub fn is_current(&self) -> bool {
        self.session == process::sessions()
    }

    /// Wakes it from within this process, for the stream of this name.
    pub fn wake(&self, name: u32) {
        wake_own(self.id, name);
    }

    /// Takes all rings that were not waited for, and calls `named` with the name of the stream in each. Returns how many there were.
    /// Never blocks.
    pub fn take_names(&self, named: impl FnMut(u32)) -> usize {
        wake::take_names(fd::borrow(self.fd), named)
    }

    /// How many rings are kept until they are taken; 0 if that cannot be told. Rings that come meanwhile may be lost.
    pub fn capacity(&self) -> usize {
        let count = |sleepers: &mut Sleepers| {
            let made = sleepers.made.get(&self.id.0)?;
            wake::capacity(fd::borrow(made.fd), &made.address, made.word).ok()
        };
        if program::sandboxed() { 0 } else { with(count).flatten().unwrap_or(0) }
    }

    /// Takes back rings that were not waited for. Never blocks.
    pub fn clear(&self) {
        let fd = fd::borrow(self.fd);
        if program::sandboxed() {
            wake::clear_by_read(fd);
        } else {
            wake::clear(fd);
        }
    }
}

impl Made {
    /// Wakes the sleeper. With the lock held, so that nobody closes it meanwhile.
    fn wake(&self, name: u32) -> bool {
        match self.confined {
            _ if !program::sandboxed() => {
                wake::wake_self(fd::borrow(self.fd), &self.address, self.word, name)
            }
            Some(waker) => wake::wake(fd::borrow(waker), self.word, By::Write, name),
            None => false,
        }
    }

    /// Before a sandbox: a waker that can be used by `write`.
    fn prepare(&mut self) {
        if self.confined.is_none() {
            self.confined = wake::connect(&self.address).ok().map(internal_fds::hide);
        }
    }

    fn close(self) {
        internal_fds::close(self.fd);
        self.confined.into_iter().for_each(internal_fds::close);
    }
}

/// Rings the far side's waiter, if one has to be rung.
#[inline]
pub fn wake(end: &Held, waiter: Option<WaiterId>) {
    if let Some(waiter) = waiter {
        wakers::wake(&Ours, end, waiter);
    }
}

/// Rings a waiter at the far side of one circuit of a striped stream.
pub fn ring(end: &CircuitEnd, waiter: WaiterId) {
    wakers::wake(&Ours, end, waiter);
}

/// Wakes a sleeper for the stream of this name, if it is one of this process.
pub fn wake_own(waiter: WaiterId, name: u32) -> bool {
    let wake = |sleepers: &mut Sleepers| sleepers.made.get(&waiter.0).is_some_and(|made| made.wake(name));
    waiter.0 != 0 && with(wake).unwrap_or(false)
}

/// Wakes a sleeper at this end, of this process or of another one that shares the end.
pub fn wake_here(end: &Held, waiter: WaiterId) {
    if waiter.0 != 0 && !wake_own(waiter, end.name()) {
        process::tell(&Request::WakeHere { circuit: end.circuit(), token: end.token(), waiter });
    }
}

/// A sleeper that cannot register at an end, since `owner` did, queues up. `false` if `owner` is of another process,
/// whose end of sleep nobody tells us.
pub fn queue_up(end: &Held, owner: WaiterId, waiter: WaiterId) -> bool {
    let queue_up = |sleepers: &mut Sleepers| {
        let known = sleepers.made.contains_key(&owner.0);
        if known {
            sleepers.queue.push((end.index, waiter));
            QUEUED.fetch_add(1, Ordering::SeqCst);
        }
        known
    };
    with(queue_up).unwrap_or(false)
}

/// The sleeper is awake.
pub fn leave_queue(waiter: WaiterId) {
    with(|sleepers| {
        sleepers.queue.retain(|&(_, queued)| queued != waiter);
        QUEUED.store(sleepers.queue.len(), Ordering::SeqCst);
    });
}

/// A registered sleeper left the end: those in the queue may register now.
#[inline]
pub fn left(end: &Held) {
    if QUEUED.load(Ordering::Relaxed) > 0 {
        wake_queue(end);
    }
}

#[cold]
fn wake_queue(end: &Held) {
    with(|sleepers| {
        let here = sleepers.queue.iter().filter(|(at, _)| *at == end.index);
        for made in here.filter_map(|(_, queued)| sleepers.made.get(&queued.0)) {
            made.wake(NOBODY);
        }
    });
}

/// Before `fork`: nobody is in the middle of a change.
pub fn before_fork() -> Option<Guard<'static>> {
    SLEEPERS.hold(thread::tid()).ok()
}

/// In the child of `fork`: wake events and wakers are the parent's; make others.
pub fn after_fork() {
    SLEEPERS.reset();
    with(|sleepers| {
        sleepers.queue.clear();
        QUEUED.store(0, Ordering::Relaxed);
        sleepers.idle.clear();
        core::mem::take(&mut sleepers.made).into_values().for_each(Made::close);
        let wakers = sleepers.wakers.drain().map(|waker| waker.fd);
        wakers.chain(sleepers.retired.drain(..)).for_each(internal_fds::close);
    });
}

/// Before a sandbox: a wake event lies ready, and wakers are not found any more but rung by the daemon.
pub fn before_sandbox() {
    if let Some(waiter) = Waiter::take() {
        waiter.give();
    }
    with(|sleepers| sleepers.made.values_mut().for_each(Made::prepare));
}

/// The wakers of this process.
struct Ours;

impl Waking for Ours {
    type Waker = KnownWaker;

    fn with<T>(&self, work: impl FnOnce(&mut Wakers<KnownWaker>) -> T) -> Option<T> {
        with(|sleepers| work(&mut sleepers.wakers))
    }

    fn keep(&self, waker: Waker) -> KnownWaker {
        let (word, by) = (waker.word(), waker.by());
        KnownWaker { fd: internal_fds::hide(waker.into_fd()), word, by }
    }

    fn ring(&self, waker: &KnownWaker, name: u32) -> bool {
        // Nobody but this process holds a socket. One that was forgotten a moment ago is still open.
        let by = if program::sandboxed() { By::Write } else { waker.by };
        wake::wake(fd::borrow(waker.fd), waker.word, by, name)
    }

    fn retire(&self, waker: KnownWaker) {
        with(|sleepers| {
            sleepers.retired.push(waker.fd);
            if sleepers.retired.len() > MAX_RETIRED {
                internal_fds::close(sleepers.retired.remove(0));
            }
        });
    }

    fn session(&self) -> u32 {
        process::sessions()
    }

    fn wake_own(&self, waiter: WaiterId, name: u32) -> bool {
        wake_own(waiter, name)
    }
}

fn with<T>(work: impl FnOnce(&mut Sleepers) -> T) -> Option<T> {
    SLEEPERS.with(thread::tid(), work).ok()
}
