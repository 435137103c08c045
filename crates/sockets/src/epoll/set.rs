//! One epoll set as this process sees it: who is in it, and what was told of whom.

use crate::table::Held;
use crate::waiters::Waiter;
use crate::{process, real, thread};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use crosslane_shm::lock::{Guard, Lock};
use crosslane_shm::ring::Cursor;
use crosslane_shm::wait::Budget;
use crosslane_stream::Direction;
use libc::epoll_event;
use std::collections::BTreeMap;

/// Bits of `events` that a program waits for, as opposed to how.
const WAITED: u32 = 0x0000_ffff;
pub const IN: u32 = libc::EPOLLIN.cast_unsigned() | libc::EPOLLRDNORM.cast_unsigned();
pub const OUT: u32 = libc::EPOLLOUT.cast_unsigned() | libc::EPOLLWRNORM.cast_unsigned();
pub const PRI: u32 = libc::EPOLLPRI.cast_unsigned();
pub const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
pub const EDGE: u32 = libc::EPOLLET.cast_unsigned();
pub const ONESHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
/// Low half of the data of the set's own wake event.
pub const WAKE: u32 = u32::MAX;

/// What the program wants to know of a stream, and what it was told already.
pub struct Interest {
    pub end: Held,
    pub events: u32,
    pub data: u64,
    /// How far arrivals were told, for edges.
    pub seen: Option<Cursor>,
    /// The sender's count of sends without room when room was last told; for edges.
    pub blocked: Option<u32>,
    /// Which ends of the stream were told, for edges.
    pub ends_told: u8,
    /// Told once with `EPOLLONESHOT`: not again before a MOD.
    pub spent: bool,
    /// Taken out by the program. The kernel's entry stays, so that the next ADD needs no system call: some programs
    /// take sockets out and put them in again for every message.
    pub dormant: bool,
    /// Where the ring stood when the far side was last asked to ring.
    pub armed_at: Option<u64>,
    /// What the kernel's set watches the quiet socket for.
    pub watched: u32,
}

/// What is behind the lock.
pub struct Inside {
    pub streams: BTreeMap<c_int, Interest>,
    /// Sockets that are no streams (yet): what the program asked for.
    plain: BTreeMap<c_int, epoll_event>,
    pub waiter: Option<Waiter>,
    /// Where the last scan stopped.
    pub next: c_int,
}

/// One set. Places are used again, never freed.
pub struct Set {
    lock: Lock,
    inside: UnsafeCell<Inside>,
    /// Descriptors of this process that refer to it; 0 = free.
    holders: AtomicU32,
    /// High half of the data under which our own entries are in the kernel's set.
    tag: AtomicU32,
    epfd: AtomicU32,
    /// Not 0 once a stream was put into it.
    in_use: AtomicU32,
    /// How long to spin for the set.
    pub budget: Budget,
    /// Threads that sleep in it.
    pub sleepers: AtomicU32,
}

// SAFETY: `inside` is only touched with `lock` held.
unsafe impl Sync for Set {}

/// The set's contents, while the lock is held.
pub struct Locked<'a>(&'a mut Inside, #[expect(dead_code, reason = "held until dropped")] Guard<'a>);

impl core::ops::Deref for Locked<'_> {
    type Target = Inside;
    fn deref(&self) -> &Inside {
        self.0
    }
}

impl core::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inside {
        self.0
    }
}

impl Set {
    pub fn new() -> Self {
        let inside = Inside { streams: BTreeMap::new(), plain: BTreeMap::new(), waiter: None, next: 0 };
        Self {
            lock: Lock::new(),
            inside: UnsafeCell::new(inside),
            holders: AtomicU32::new(0),
            tag: AtomicU32::new(0),
            epfd: AtomicU32::new(0),
            in_use: AtomicU32::new(0),
            budget: Budget::new(),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Takes a free place.
    pub fn take(&self) -> bool {
        self.holders.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The place now belongs to `epfd`.
    pub fn begin(&self, epfd: c_int) {
        let mut bytes = [0; 4];
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        // The top bits are those of no user address, so a program's pointer is never taken for ours.
        self.tag.store(u32::from_ne_bytes(bytes) & 0x0fff_ffff | 0xc000_0000, Ordering::Relaxed);
        self.epfd.store(epfd.unsigned_abs(), Ordering::Relaxed);
        self.budget.reset(u32::MAX);
        self.in_use.store(0, Ordering::Release);
    }

    /// One more descriptor refers to the set.
    pub fn copied(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// One descriptor less; with the last one the set is emptied and the place is free.
    pub fn dropped(&self) {
        if self.holders.load(Ordering::Relaxed) > 1 {
            self.holders.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        if let Some(mut inside) = self.lock() {
            let streams = core::mem::take(&mut inside.streams);
            streams.values().for_each(|interest| disarm(interest, &inside.waiter));
            inside.plain.clear();
            if let Some(waiter) = inside.waiter.take() {
                waiter.close();
            }
        }
        self.holders.store(0, Ordering::Release);
    }

    /// In the child of `fork`.
    pub fn forked(&self) {
        self.lock.reset();
        self.sleepers.store(0, Ordering::Relaxed);
        if let Some(mut inside) = self.lock() {
            inside.waiter = None;
            inside.streams.values_mut().for_each(|interest| interest.armed_at = None);
        }
    }

    /// Whether a stream is or was in the set; otherwise the kernel's call is all there is to do.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire) != 0
    }

    /// The contents; `None` if this very thread holds them already (a signal handler came in between).
    pub fn lock(&self) -> Option<Locked<'_>> {
        let guard = self.lock.lock(thread::tid()).ok()?;
        // SAFETY: the lock is held as long as the guard lives.
        Some(Locked(unsafe { &mut *self.inside.get() }, guard))
    }

    /// Whether an event of the kernel's is one of our own: the descriptor, or [`WAKE`].
    #[inline]
    pub fn own_event(&self, event: &epoll_event) -> Option<u32> {
        let data = event.u64;
        let [l0, l1, l2, l3, h0, h1, h2, h3] = data.to_le_bytes();
        let tag = u32::from_le_bytes([h0, h1, h2, h3]);
        (tag == self.tag.load(Ordering::Relaxed)).then_some(u32::from_le_bytes([l0, l1, l2, l3]))
    }

    /// `fd` is no longer in the set.
    pub fn forget(&self, fd: c_int) {
        let Some(mut inside) = self.lock() else { return };
        inside.plain.remove(&fd);
        if let Some(interest) = inside.streams.remove(&fd) {
            disarm(&interest, &inside.waiter);
            // SAFETY: DEL looks at no event.
            unsafe { real::epoll_ctl(self.epfd(), libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) };
        }
    }

    /// `fd`, which may be in the set, is a stream from now on.
    pub fn upgrade(&self, fd: c_int) {
        let Some(event) = self.lock().and_then(|mut inside| inside.plain.remove(&fd)) else { return };
        if let Some(end) = crate::table::stream(fd) {
            self.watch(libc::EPOLL_CTL_MOD, fd, end, event);
        }
    }

    /// The program takes a stream out.
    fn remove(&self, fd: c_int) -> c_int {
        match self.lock().as_mut().and_then(|inside| inside.streams.get_mut(&fd)) {
            Some(interest) if !interest.dormant => {
                interest.dormant = true;
                0
            }
            _ => real::fail(libc::ENOENT),
        }
    }

    fn epfd(&self) -> c_int {
        c_int::try_from(self.epfd.load(Ordering::Relaxed)).unwrap_or(-1)
    }

    /// Puts a stream into the kernel's set, or changes it there, and into ours.
    fn watch(&self, operation: c_int, fd: c_int, end: Held, event: epoll_event) -> c_int {
        let watched = kernel_mask(fd, &end, event.events);
        let Some(mut inside) = self.lock() else { return real::fail(libc::ENOMEM) };
        let known = inside.streams.get(&fd).map(|interest| (interest.dormant, interest.watched, interest.armed_at));
        let operation = match (operation, known) {
            (libc::EPOLL_CTL_ADD, Some((false, ..))) => return real::fail(libc::EEXIST),
            (libc::EPOLL_CTL_MOD, Some((true, ..))) => return real::fail(libc::ENOENT),
            (_, Some(_)) => libc::EPOLL_CTL_MOD,
            (operation, None) => operation,
        };
        let silent = known.is_some_and(|(_, present, _)| present == watched);
        if !silent && self.tell_kernel(operation, fd, watched) != 0 {
            return -1;
        }
        let armed_at = known.and_then(|(.., armed_at)| armed_at);
        let interest = Interest {
            end,
            events: event.events,
            data: event.u64,
            seen: None,
            blocked: None,
            ends_told: 0,
            spent: false,
            dormant: false,
            armed_at,
            watched,
        };
        inside.streams.insert(fd, interest);
        self.in_use.store(1, Ordering::Release);
        self.rouse(&inside);
        0
    }

    /// Tells the kernel's set what to watch a quiet socket for.
    pub fn tell_kernel(&self, operation: c_int, fd: c_int, watched: u32) -> c_int {
        let data = u64::from(self.tag.load(Ordering::Relaxed)) << 32 | u64::from(fd.unsigned_abs());
        let mut event = epoll_event { events: watched, u64: data };
        // SAFETY: our own event.
        unsafe { real::epoll_ctl(self.epfd(), operation, fd, &raw mut event) }
    }

    /// The wake event of the set, made and put into the kernel's set if there is none of this session.
    pub fn waiter(&self, inside: &mut Inside) -> Option<Waiter> {
        if let Some(waiter) = inside.waiter {
            if waiter.is_current() {
                return Some(waiter);
            }
            waiter.close();
        }
        inside.streams.values_mut().for_each(|interest| {
            interest.end.forget_waiters();
            interest.armed_at = None;
        });
        inside.waiter = Waiter::make();
        let waiter = inside.waiter?;
        let data = u64::from(self.tag.load(Ordering::Relaxed)) << 32 | u64::from(WAKE);
        let mut event = epoll_event { events: libc::EPOLLIN.unsigned_abs(), u64: data };
        // SAFETY: our own event.
        unsafe { real::epoll_ctl(self.epfd(), libc::EPOLL_CTL_ADD, waiter.fd, &raw mut event) };
        Some(waiter)
    }

    /// Wakes threads that sleep in the set: it has changed.
    fn rouse(&self, inside: &Inside) {
        if self.sleepers.load(Ordering::SeqCst) > 0
            && let Some(waiter) = inside.waiter
        {
            waiter.ring();
        }
    }
}

/// `epoll_ctl` for a socket.
pub fn control(
    epfd: c_int,
    known: Option<&'static Set>,
    operation: c_int,
    fd: c_int,
    stream: Option<Held>,
    mut event: epoll_event,
) -> c_int {
    let Some(end) = stream else {
        // SAFETY: our own copy of the event.
        let outcome = unsafe { real::epoll_ctl(epfd, operation, fd, &raw mut event) };
        if outcome == 0
            && let Some(set) = known.or_else(|| super::find_or_make(epfd))
            && let Some(mut inside) = set.lock()
            && (operation == libc::EPOLL_CTL_MOD || crate::attach::is_tcp(fd))
            && (operation == libc::EPOLL_CTL_ADD || inside.plain.contains_key(&fd))
        {
            inside.plain.insert(fd, event);
        }
        return outcome;
    };
    if known.is_none() && !is_epoll(epfd, fd) {
        return -1;
    }
    let Some(set) = known.or_else(|| super::find_or_make(epfd)) else { return real::fail(libc::ENOMEM) };
    match operation {
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => set.watch(operation, fd, end, event),
        libc::EPOLL_CTL_DEL => set.remove(fd),
        _ => real::fail(libc::EINVAL),
    }
}

/// What the kernel's set has to watch a stream's socket for.
pub fn kernel_mask(fd: c_int, end: &Held, events: u32) -> u32 {
    if !crate::wait::is_connected(fd, end) {
        return events & (WAITED | EDGE);
    }
    let mut mask = events & PRI;
    if end.rx() == Direction::Tcp {
        mask |= events & (IN | RDHUP);
    } else if end.shared().status.fin.load(Ordering::Relaxed) == 0 {
        mask |= libc::EPOLLIN.unsigned_abs() | RDHUP;
    }
    if end.tx() == Direction::Tcp {
        mask |= events & OUT;
    }
    let tcp = end.rx() == Direction::Tcp || end.tx() == Direction::Tcp;
    mask | if tcp { events & EDGE } else { EDGE }
}

/// Takes back the request for a bell.
fn disarm(interest: &Interest, waiter: &Option<Waiter>) {
    if let Some(waiter) = waiter {
        interest.end.unwant_data(waiter.id);
        interest.end.unwant_room(waiter.id);
    }
}

/// Lets the kernel say whether `epfd` is an epoll descriptor that could hold `fd`; sets its error if not.
fn is_epoll(epfd: c_int, fd: c_int) -> bool {
    if !process::is_owner() {
        return false;
    }
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: our own event.
    let outcome = unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, &raw mut event) };
    outcome == 0 || real::errno() == libc::ENOENT
}
