//! Waiting: spin for a while, then sleep on a wake event.

use super::Error;
use crate::SessionError;
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crosslane_wire::WaiterId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's number of this thread, without a system call after the first time.
#[inline]
pub(super) fn tid() -> u32 {
    TID.with(|tid| {
        if tid.get() == 0 {
            tid.set(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        }
        tid.get()
    })
}

/// Threads of this process that may spin at a time: half as many as it may use processors. One that is bound to a single
/// processor may, since whom it waits for has another one, or is seen to share it.
fn most_spinners() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    let usable = || std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
    *MOST.get_or_init(|| (usable() / 2).max(1))
}

/// Whether this machine has only one processor, so that nobody runs while somebody spins.
pub(super) fn has_one_processor() -> bool {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    online.is_ok_and(|online| !online.contains(['-', ',']))
}

/// Threads of this process that spin now.
static SPINNERS: AtomicUsize = AtomicUsize::new(0);

/// The right to spin.
#[derive(Debug)]
pub(crate) struct Spinner(());

impl Spinner {
    /// `None` if too many spin already, or if there is no time (`ns` is 0) to spin.
    #[inline]
    pub(crate) fn among(ns: u32) -> Option<Self> {
        if ns == 0 {
            return None;
        }
        let before = SPINNERS.fetch_add(1, Relaxed);
        let spinner = Self(());
        (before < most_spinners()).then_some(spinner)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Relaxed);
    }
}

/// A wake event that the daemon knows of, for one sleeper at a time.
#[derive(Debug)]
pub(crate) struct Waiter {
    id: WaiterId,
    event: OwnedFd,
}

impl Waiter {
    pub(super) fn make(
        register: impl FnOnce(BorrowedFd<'_>) -> Result<WaiterId, SessionError>,
    ) -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let id = register(event.as_fd())?;
        Ok(Self { id, event })
    }

    /// Its number on this host.
    pub(crate) fn id(&self) -> WaiterId {
        self.id
    }

    /// For `poll`.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.event, PollFlags::IN)
    }

    /// Takes back rings that were not waited for.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Wakes its sleeper, from within this process.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Time left, for the kernel; `None` is for ever.
pub(crate) fn time_left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Timespec::try_from(left.max(Duration::from_nanos(1))).ok()
}
