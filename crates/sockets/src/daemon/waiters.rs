//! Wake events of this process, and the wakers of other processes' wake events.

use crate::daemon::process;
use crate::descriptors::internal_fds;
use crate::descriptors::table::Held;
use crate::kernel::{program, thread};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crosslane_shm::lock::{Guard, Lock};
use crosslane_shm::wake;
use crosslane_wire::local::Request;
use crosslane_wire::{CircuitId, WaiterId};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::net::SocketAddrUnix;
use std::collections::BTreeMap;
use std::net::IpAddr;

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

/// Whose a waker is: the far host's (its address), or, where the circuit is longer than one cable, that of a host
/// between, which only the circuit and its generation tell; and the waiter's number there.
type Owner = (IpAddr, Option<(u64, u32)>, u32);

/// A waker of a far waiter.
#[derive(Clone, Copy, Debug)]
struct KnownWaker {
    fd: RawFd,
    word: u64,
    /// The daemon's session in which it was found.
    session: u32,
    /// When it was last rung, in rings.
    rung: u64,
}

/// Wakers of far waiters.
type Wakers = BTreeMap<Owner, KnownWaker>;

struct Global {
    lock: Lock,
    idle: UnsafeCell<Vec<Waiter>>,
    /// All that this process has, by number.
    made: UnsafeCell<BTreeMap<u32, Made>>,
    wakers: UnsafeCell<Wakers>,
    /// Wakers that were forgotten; closed when the next ones are, so that a thread that was about to ring one does
    /// not ring what its number means by then.
    retired: UnsafeCell<Vec<RawFd>>,
    /// Sleepers that found another one of this process registered at the same end, by the end's place.
    queue: UnsafeCell<Vec<(u32, WaiterId)>>,
}

/// Sleepers in the queue.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all cells are only touched with `lock` held.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    lock: Lock::new(),
    idle: UnsafeCell::new(Vec::new()),
    made: UnsafeCell::new(BTreeMap::new()),
    wakers: UnsafeCell::new(BTreeMap::new()),
    retired: UnsafeCell::new(Vec::new()),
    queue: UnsafeCell::new(Vec::new()),
};
/// Most wakers kept; beyond it the one that was not rung for the longest time is forgotten.
const WAKERS_MAX: usize = 256;
/// Wakers that were forgotten and are not closed yet, at most.
const MAX_RETIRED: usize = 16;

impl Waiter {
    /// Takes an idle wake event or makes one. `None` if the daemon cannot be asked: sleep by short timeouts then.
    pub fn take() -> Option<Self> {
        while let Some(waiter) = with(|idle, _| idle.pop()).flatten() {
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
        let (id, event) = process::with_session(|session, _| session.waiter())?;
        let word = event.word();
        let (socket, address) = event.into_parts();
        let waiter = Self { id, fd: internal_fds::hide(socket), session: process::sessions() };
        made(|made| made.insert(id.0, Made { fd: waiter.fd, address, word, confined: None }));
        Some(waiter)
    }

    /// Gives it back.
    pub fn give(self) {
        self.clear();
        if with(|idle, _| idle.push(self)).is_none() {
            self.close();
        }
    }

    /// Closes it; an epoll set that goes away does this.
    pub fn close(self) {
        if let Some(made) = made(|made| made.remove(&self.id.0)).flatten() {
            made.close();
        }
    }

    /// Whether the present session still knows it.
    pub fn is_current(&self) -> bool {
        self.session == process::sessions()
    }

    /// Wakes it from within this process.
    pub fn wake(&self) {
        wake_own(self.id);
    }

    /// Takes back rings that were not waited for. Never blocks.
    pub fn clear(&self) {
        // SAFETY: our own descriptor, open as long as the waiter is.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        if program::sandboxed() {
            wake::clear_by_read(fd);
        } else {
            wake::clear(fd);
        }
    }
}

impl Made {
    /// Wakes the sleeper. With the lock held, so that nobody closes it meanwhile.
    fn wake(&self) -> bool {
        // SAFETY: our own descriptors; they are closed after they were taken off the list, with the lock held.
        let borrow = |fd| unsafe { BorrowedFd::borrow_raw(fd) };
        match self.confined {
            _ if !program::sandboxed() => wake::wake_self(borrow(self.fd), &self.address, self.word),
            Some(waker) => wake::wake_by_write(borrow(waker), self.word),
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
        wake_slowly(end, waiter);
    }
}

/// Wakes a sleeper, if it is one of this process.
pub fn wake_own(waiter: WaiterId) -> bool {
    waiter.0 != 0 && made(|made| made.get(&waiter.0).is_some_and(Made::wake)).unwrap_or(false)
}

/// Wakes a sleeper at this end, of this process or of another one that shares the end.
pub fn wake_here(end: &Held, waiter: WaiterId) {
    if waiter.0 != 0 && !wake_own(waiter) {
        process::tell(&Request::WakeHere { circuit: end.circuit(), token: end.token(), waiter });
    }
}

/// A sleeper that cannot register at an end, since `owner` did, queues up. `false` if `owner` is of another process,
/// whose end of sleep nobody tells us.
pub fn queue_up(end: &Held, owner: WaiterId, waiter: WaiterId) -> bool {
    let Ok(_guard) = GLOBAL.lock.lock(thread::tid()) else { return false };
    // SAFETY: the lock is held.
    let (made, queue) = unsafe { (&*GLOBAL.made.get(), &mut *GLOBAL.queue.get()) };
    if made.contains_key(&owner.0) {
        queue.push((end.index, waiter));
        QUEUED.fetch_add(1, Ordering::SeqCst);
    }
    made.contains_key(&owner.0)
}

/// The sleeper is awake.
pub fn leave_queue(waiter: WaiterId) {
    let Ok(_guard) = GLOBAL.lock.lock(thread::tid()) else { return };
    // SAFETY: the lock is held.
    let queue = unsafe { &mut *GLOBAL.queue.get() };
    queue.retain(|&(_, queued)| queued != waiter);
    QUEUED.store(queue.len(), Ordering::SeqCst);
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
    let Ok(_guard) = GLOBAL.lock.lock(thread::tid()) else { return };
    // SAFETY: the lock is held.
    let (made, queue) = unsafe { (&*GLOBAL.made.get(), &*GLOBAL.queue.get()) };
    for made in queue.iter().filter(|queued| queued.0 == end.index).filter_map(|queued| made.get(&queued.1.0))
    {
        made.wake();
    }
}

/// Before `fork`: nobody is in the middle of a change.
pub fn before_fork() -> Option<Guard<'static>> {
    GLOBAL.lock.lock(thread::tid()).ok()
}

/// In the child of `fork`: wake events and wakers are the parent's; make others.
pub fn after_fork() {
    GLOBAL.lock.reset();
    // SAFETY: the child has one thread.
    let (idle, wakers) = unsafe { (&mut *GLOBAL.idle.get(), &mut *GLOBAL.wakers.get()) };
    // SAFETY: as above.
    let (made, retired, queue) =
        unsafe { (&mut *GLOBAL.made.get(), &mut *GLOBAL.retired.get(), &mut *GLOBAL.queue.get()) };
    queue.clear();
    QUEUED.store(0, Ordering::Relaxed);
    idle.clear();
    core::mem::take(made).into_values().for_each(Made::close);
    let wakers = core::mem::take(wakers).into_values().map(|waker| waker.fd);
    wakers.chain(retired.drain(..)).for_each(internal_fds::close);
}

/// Before a sandbox: a wake event lies ready, and wakers are not found any more but rung by the daemon.
pub fn before_sandbox() {
    if let Some(waiter) = Waiter::take() {
        waiter.give();
    }
    made(|made| made.values_mut().for_each(Made::prepare));
}

#[cold]
fn wake_slowly(end: &Held, waiter: WaiterId) {
    end.shared().counters.wakes.fetch_add(1, Ordering::Relaxed);
    let (circuit, token) = (end.circuit(), end.token());
    let tuple = end.tuple();
    // Both ends inside one host count the same waiters, so it may be one of ours: then nobody needs to be asked.
    if tuple.client.ip() == tuple.server.ip() && wake_own(waiter) {
        return;
    }
    let far =
        if end.shared().status.client.load(Ordering::Relaxed) != 0 { tuple.server } else { tuple.client };
    let between = end.relayed().map(|generation| (circuit.0, generation));
    let key = (far.ip().to_canonical(), between, waiter.0);
    let end_of = (circuit, token);
    let asks = end.asks_for_wakers();
    let waker = known(key).or_else(|| if asks { find(end_of, waiter, key) } else { None });
    if waker.is_some_and(KnownWaker::wake) {
        return;
    }
    if waker.is_some() {
        // Its sleeper is gone.
        with(|_, wakers| retire(wakers.remove(&key)));
    } else if asks {
        end.not_found();
    }
    if !process::tell(&Request::Wake { circuit, token, waiter }) {
        end.wake_again();
    }
}

impl KnownWaker {
    /// Wakes the sleeper; `false` if it is gone. Never blocks: nobody but this process holds the socket.
    fn wake(self) -> bool {
        // SAFETY: our own descriptor; one that was forgotten a moment ago is still open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        if program::sandboxed() { wake::wake_by_write(fd, self.word) } else { wake::wake(fd, self.word) }
    }
}

fn known(key: Owner) -> Option<KnownWaker> {
    let look = |wakers: &mut Wakers| {
        let waker = wakers.get_mut(&key).filter(|waker| waker.session == process::sessions())?;
        waker.rung = next_ring();
        Some(*waker)
    };
    with(|_, wakers| look(wakers)).flatten()
}

fn find((circuit, token): (CircuitId, u64), waiter: WaiterId, key: Owner) -> Option<KnownWaker> {
    let waker = process::with_session(|session, _| session.waker(circuit, token, waiter))??;
    let word = waker.word();
    let waker = KnownWaker {
        fd: internal_fds::hide(waker.into_socket()),
        word,
        session: process::sessions(),
        rung: next_ring(),
    };
    with(|_, wakers| {
        if wakers.len() >= WAKERS_MAX
            && let Some(oldest) = wakers.iter().min_by_key(|(_, waker)| waker.rung).map(|(key, _)| *key)
        {
            retire(wakers.remove(&oldest));
        }
        retire(wakers.insert(key, waker));
    });
    Some(waker)
}

/// Forgets a waker. It is closed when some more have been: a thread may be about to ring it. The lock is held.
fn retire(waker: Option<KnownWaker>) {
    // SAFETY: the lock is held.
    let retired = unsafe { &mut *GLOBAL.retired.get() };
    retired.extend(waker.map(|waker| waker.fd));
    if retired.len() > MAX_RETIRED {
        internal_fds::close(retired.remove(0));
    }
}

/// A number for each ring.
fn next_ring() -> u64 {
    static RINGS: AtomicU64 = AtomicU64::new(0);
    RINGS.fetch_add(1, Ordering::Relaxed)
}

fn with<T>(work: impl FnOnce(&mut Vec<Waiter>, &mut Wakers) -> T) -> Option<T> {
    let _guard = GLOBAL.lock.lock(thread::tid()).ok()?;
    // SAFETY: the lock is held.
    let (idle, wakers) = unsafe { (&mut *GLOBAL.idle.get(), &mut *GLOBAL.wakers.get()) };
    Some(work(idle, wakers))
}

fn made<T>(work: impl FnOnce(&mut BTreeMap<u32, Made>) -> T) -> Option<T> {
    let _guard = GLOBAL.lock.lock(thread::tid()).ok()?;
    // SAFETY: the lock is held.
    Some(work(unsafe { &mut *GLOBAL.made.get() }))
}
