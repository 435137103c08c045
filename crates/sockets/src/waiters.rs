//! Wake events of this process, and the doorbells of other processes' wake events.

use crate::table::Held;
use crate::{own, process, thread};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use crosslane_shm::lock::{Guard, Lock};
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::{CircuitId, WaiterId};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, RawFd};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A wake event that the daemon knows of. Belongs to one sleeping thread or one epoll set at a time.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Its number on this host.
    pub id: WaiterId,
    /// Its eventfd, one of our own descriptors.
    pub fd: RawFd,
    session: u32,
}

/// Whose a doorbell is: the far host's (its address), or, where the circuit is longer than one cable, that of a host
/// between, which only the circuit and its generation tell; and the waiter's number there.
type Owner = (IpAddr, Option<(u64, u32)>, u32);

/// Doorbells, and the daemon's session in which they were found.
type Bells = BTreeMap<Owner, (RawFd, u32)>;

struct Global {
    lock: Lock,
    idle: UnsafeCell<Vec<Waiter>>,
    /// All that this process has, by number.
    made: UnsafeCell<BTreeMap<u32, RawFd>>,
    bells: UnsafeCell<Bells>,
    /// Doorbells that were forgotten; closed when the next ones are, so that a thread that was about to ring one does
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
    bells: UnsafeCell::new(BTreeMap::new()),
    retired: UnsafeCell::new(Vec::new()),
    queue: UnsafeCell::new(Vec::new()),
};
/// Most doorbells kept; beyond it all are forgotten and found again as needed.
const MAX_BELLS: usize = 256;

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

    /// Makes a wake event and tells the daemon of it.
    pub fn make() -> Option<Self> {
        if process::sandboxed() {
            return None;
        }
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let id = process::with_session(|session, _| session.waiter(event.as_fd()))?;
        let waiter = Self { id, fd: own::hide(event), session: process::sessions() };
        made(|made| made.insert(id.0, waiter.fd));
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
        made(|made| made.remove(&self.id.0));
        own::close(self.fd);
    }

    /// Whether the present session still knows it.
    pub fn is_current(&self) -> bool {
        self.session == process::sessions()
    }

    /// Wakes it from within this process.
    pub fn ring(&self) {
        // SAFETY: our own descriptor, open as long as the waiter is.
        let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(self.fd) }, &1u64.to_ne_bytes());
    }

    /// Takes back rings that were not waited for.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // SAFETY: our own descriptor, open as long as the waiter is.
        let _ = rustix::io::read(unsafe { BorrowedFd::borrow_raw(self.fd) }, &mut count);
    }
}

/// Rings the far side's waiter, if one has to be rung.
#[inline]
pub fn ring(end: &Held, waiter: Option<WaiterId>) {
    if let Some(waiter) = waiter {
        ring_slowly(end, waiter);
    }
}

/// Wakes a sleeper, if it is one of this process.
pub fn ring_own(waiter: WaiterId) -> bool {
    let ring = |made: &mut BTreeMap<u32, RawFd>| {
        let Some(&fd) = made.get(&waiter.0) else { return false };
        // SAFETY: our own descriptor; it is closed after it was taken off the list, with the lock held.
        rustix::io::write(unsafe { BorrowedFd::borrow_raw(fd) }, &1u64.to_ne_bytes()).is_ok()
    };
    waiter.0 != 0 && made(ring).unwrap_or(false)
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
    for fd in queue.iter().filter(|queued| queued.0 == end.index).filter_map(|queued| made.get(&queued.1.0)) {
        // SAFETY: our own descriptor; it is closed after it was taken off the list, with the lock held.
        let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(*fd) }, &1u64.to_ne_bytes());
    }
}

/// Before `fork`: nobody is in the middle of a change.
pub fn before_fork() -> Option<Guard<'static>> {
    GLOBAL.lock.lock(thread::tid()).ok()
}

/// In the child of `fork`: wake events and doorbells are the parent's; make others.
pub fn after_fork() {
    GLOBAL.lock.reset();
    // SAFETY: the child has one thread.
    let (idle, bells) = unsafe { (&mut *GLOBAL.idle.get(), &mut *GLOBAL.bells.get()) };
    // SAFETY: as above.
    let (made, retired, queue) =
        unsafe { (&mut *GLOBAL.made.get(), &mut *GLOBAL.retired.get(), &mut *GLOBAL.queue.get()) };
    made.clear();
    queue.clear();
    QUEUED.store(0, Ordering::Relaxed);
    for waiter in idle.drain(..) {
        own::close(waiter.fd);
    }
    let bells = core::mem::take(bells).into_values().map(|(fd, _)| fd);
    bells.chain(retired.drain(..)).for_each(own::close);
}

/// Before a sandbox: a wake event lies ready, and doorbells are not found any more but rung by the daemon.
pub fn before_sandbox() {
    if let Some(waiter) = Waiter::take() {
        waiter.give();
    }
}

#[cold]
fn ring_slowly(end: &Held, waiter: WaiterId) {
    end.shared().counters.bells.fetch_add(1, Ordering::Relaxed);
    let (circuit, token) = (end.circuit(), end.token());
    let tuple = end.tuple();
    // Both ends inside one host count the same waiters, so it may be one of ours: then nobody needs to be asked.
    if tuple.client.ip() == tuple.server.ip() && ring_own(waiter) {
        return;
    }
    let far =
        if end.shared().status.client.load(Ordering::Relaxed) != 0 { tuple.server } else { tuple.client };
    let between = end.detour().map(|generation| (circuit.0, generation));
    let key = (far.ip().to_canonical(), between, waiter.0);
    let bell =
        known(key).or_else(|| if end.is_patient() { find((circuit, token), waiter, key) } else { None });
    // SAFETY: our own descriptor; one that was forgotten a moment ago is still open.
    match bell.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }) {
        Some(bell) if never_blocks(bell) => {
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
        found => {
            if found.is_none() {
                end.not_found();
            }
            if !process::tell(&Request::Ring { circuit, token, waiter }) {
                end.ring_again();
            }
        }
    }
}

/// Whether the wake event's owner has left it as it was made: it could hold us up else.
fn never_blocks(bell: BorrowedFd<'_>) -> bool {
    process::sandboxed()
        || rustix::fs::fcntl_getfl(bell).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

fn known(key: Owner) -> Option<RawFd> {
    with(|_, bells| bells.get(&key).copied())
        .flatten()
        .and_then(|(fd, session)| (session == process::sessions()).then_some(fd))
}

fn find((circuit, token): (CircuitId, u64), waiter: WaiterId, key: Owner) -> Option<RawFd> {
    let request = Request::WantBell { circuit, token, waiter };
    let (reply, fds) = process::with_session(|session, _| session.request(&request, &[]))?;
    let bell = match reply {
        Reply::Bell { found: true } => fds.into_iter().next()?,
        _ => return None,
    };
    let fd = own::hide(bell);
    let session = process::sessions();
    let old = with(|_, bells| {
        // SAFETY: the lock is held.
        let retired = unsafe { &mut *GLOBAL.retired.get() };
        let mut old = Vec::new();
        if bells.len() + retired.len() >= MAX_BELLS {
            old =
                core::mem::replace(retired, core::mem::take(bells).into_values().map(|(fd, _)| fd).collect());
        }
        retired.extend(bells.insert(key, (fd, session)).map(|(fd, _)| fd));
        old
    });
    old.unwrap_or_default().into_iter().for_each(own::close);
    Some(fd)
}

fn with<T>(work: impl FnOnce(&mut Vec<Waiter>, &mut Bells) -> T) -> Option<T> {
    let _guard = GLOBAL.lock.lock(thread::tid()).ok()?;
    // SAFETY: the lock is held.
    let (idle, bells) = unsafe { (&mut *GLOBAL.idle.get(), &mut *GLOBAL.bells.get()) };
    Some(work(idle, bells))
}

fn made<T>(work: impl FnOnce(&mut BTreeMap<u32, RawFd>) -> T) -> Option<T> {
    let _guard = GLOBAL.lock.lock(thread::tid()).ok()?;
    // SAFETY: the lock is held.
    Some(work(unsafe { &mut *GLOBAL.made.get() }))
}
