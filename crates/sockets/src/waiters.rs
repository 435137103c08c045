//! Wake events of this process, and the doorbells of other processes' wake events.

use crate::table::Held;
use crate::{own, process, thread};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;
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

/// Doorbells by the host they belong to (its address) and the waiter's number there; the daemon's session in which
/// they were found, and the ends that use them.
type Bells = BTreeMap<(IpAddr, u32), (RawFd, u32)>;

struct Global {
    lock: Lock,
    idle: UnsafeCell<Vec<Waiter>>,
    /// All that this process has, by number.
    made: UnsafeCell<BTreeMap<u32, RawFd>>,
    bells: UnsafeCell<Bells>,
}

// SAFETY: all cells are only touched with `lock` held.
unsafe impl Sync for Global {}

static GLOBAL: Global = Global {
    lock: Lock::new(),
    idle: UnsafeCell::new(Vec::new()),
    made: UnsafeCell::new(BTreeMap::new()),
    bells: UnsafeCell::new(BTreeMap::new()),
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

/// Wakes a sleeper of this process: what it waits for was changed by this process itself.
pub fn ring_own(waiter: WaiterId) {
    if waiter.0 != 0 {
        made(|made| {
            if let Some(&fd) = made.get(&waiter.0) {
                // SAFETY: our own descriptor; it is closed after it was taken off the list, with the lock held.
                let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(fd) }, &1u64.to_ne_bytes());
            }
        });
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
    unsafe { &mut *GLOBAL.made.get() }.clear();
    for waiter in idle.drain(..) {
        own::close(waiter.fd);
    }
    for (_, (fd, _)) in core::mem::take(bells) {
        own::close(fd);
    }
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
    let circuit = end.circuit();
    let tuple = end.tuple();
    let far =
        if end.shared().status.client.load(Ordering::Relaxed) != 0 { tuple.server } else { tuple.client };
    let key = (far.ip().to_canonical(), waiter.0);
    if let Some(fd) = known(key).or_else(|| find(circuit, waiter, key)) {
        // SAFETY: our own descriptor; at worst it was forgotten and closed a moment ago, and the write fails.
        let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(fd) }, &1u64.to_ne_bytes());
    } else {
        process::tell(&Request::Ring { circuit, waiter });
    }
}

fn known(key: (IpAddr, u32)) -> Option<RawFd> {
    with(|_, bells| bells.get(&key).copied())
        .flatten()
        .and_then(|(fd, session)| (session == process::sessions()).then_some(fd))
}

fn find(circuit: CircuitId, waiter: WaiterId, key: (IpAddr, u32)) -> Option<RawFd> {
    let request = Request::WantBell { circuit, waiter };
    let (reply, fds) = process::with_session(|session, _| session.request(&request, &[]))?;
    let bell = match reply {
        Reply::Bell { found: true } => fds.into_iter().next()?,
        _ => return None,
    };
    let fd = own::hide(bell);
    let session = process::sessions();
    let old = with(|_, bells| {
        let full = if bells.len() >= MAX_BELLS { core::mem::take(bells) } else { Bells::new() };
        full.into_values().chain(bells.insert(key, (fd, session))).collect::<Vec<_>>()
    });
    for (fd, _) in old.unwrap_or_default() {
        own::close(fd);
    }
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
