//! Waiting: spin for a while, then sleep on a wake event.

use crate::error::Error;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crosslane_shm::wake::Receiver;
use crosslane_wire::WaiterId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's id of this thread, without a system call after the first time.
#[inline]
pub(crate) fn tid() -> u32 {
    TID.with(|tid| {
        if tid.get() == 0 {
            tid.set(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        }
        tid.get()
    })
}

/// Threads of this process that may spin at a time: half as many as it may use processors, but at least one: a thread
/// that is bound to a single processor waits for one on another processor, or sees that they share it.
pub(crate) fn most_spinners() -> u32 {
    static MOST: OnceLock<u32> = OnceLock::new();
    let usable = || std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
    *MOST.get_or_init(|| u32::try_from(usable() / 2).unwrap_or(u32::MAX).max(1))
}

/// Whether this machine has only one processor, so that no other thread runs while one spins.
pub(crate) fn has_one_processor() -> bool {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    online.is_ok_and(|online| !online.contains(['-', ',']))
}

/// An event between threads of this process: readable once it was signalled.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Clears it.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Wakes the thread that waits for it.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A wake event registered with the daemon, for one sleeper at a time.
#[derive(Debug)]
pub(crate) struct Waiter {
    id: WaiterId,
    event: Receiver,
}

impl Waiter {
    pub(crate) fn new(id: WaiterId, event: Receiver) -> Self {
        Self { id, event }
    }

    /// The waiter's number on this host.
    pub(crate) fn id(&self) -> WaiterId {
        self.id
    }

    /// The descriptor, for `poll`.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.event, PollFlags::IN)
    }

    /// Takes wakes that were not waited for.
    pub(crate) fn clear(&self) {
        self.event.clear();
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// How long a call waits: for ever, for a time without progress, or for a time in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    limit: Option<Duration>,
    renews: bool,
    end: Option<Instant>,
}

impl Patience {
    /// Waits at most `limit` without progress; `None`: for ever.
    pub(crate) fn still(limit: Option<Duration>) -> Self {
        Self { limit, renews: true, end: None }
    }

    /// Waits at most `limit` in all, from now on.
    pub(crate) fn within(limit: Duration) -> Self {
        Self { limit: Some(limit), renews: false, end: Instant::now().checked_add(limit) }
    }

    /// Notes progress.
    pub(crate) fn moved(&mut self) {
        if self.renews {
            self.end = None;
        }
    }

    /// When the wait ends if there is no progress; `None`: never.
    pub(crate) fn end(&mut self) -> Option<Instant> {
        if self.renews && self.end.is_none() {
            self.end = self.limit.and_then(|limit| Instant::now().checked_add(limit));
        }
        self.end
    }

    /// The length of the limit.
    pub(crate) fn limit(&self) -> Duration {
        self.limit.unwrap_or(Duration::MAX)
    }
}

/// A time-out that any thread may set.
#[derive(Debug)]
pub(crate) struct Limit(AtomicU64);

impl Limit {
    const NONE: u64 = u64::MAX;

    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }

    pub(crate) fn set(&self, limit: Option<Duration>) {
        let ns = limit.map_or(Self::NONE, |limit| u64::try_from(limit.as_nanos()).unwrap_or(Self::NONE));
        self.0.store(ns, Relaxed);
    }

    pub(crate) fn patience(&self) -> Patience {
        let ns = self.0.load(Relaxed);
        Patience::still((ns != Self::NONE).then_some(Duration::from_nanos(ns)))
    }
}

/// Time left, for the kernel; `None` is for ever.
pub(crate) fn time_left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Timespec::try_from(left.max(Duration::from_nanos(1))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_for_ever_or_renewed_or_one_for_all() {
        assert_eq!(Patience::still(None).end(), None);
        let mut still = Patience::still(Some(Duration::from_secs(5)));
        let first = still.end();
        assert!(first.is_some() && still.end() == first);
        std::thread::sleep(Duration::from_millis(1));
        still.moved();
        assert!(still.end() > first);
        let mut within = Patience::within(Duration::from_secs(5));
        let end = within.end();
        within.moved();
        assert_eq!(within.end(), end);
        assert_eq!(Patience::within(Duration::MAX).end(), None);
        assert_eq!(Patience::still(Some(Duration::MAX)).end(), None);
    }

    #[test]
    fn limit_can_be_set_and_taken_away() {
        let limit = Limit::none();
        assert_eq!(limit.patience().end(), None);
        limit.set(Some(Duration::from_secs(1)));
        assert_eq!(limit.patience().limit(), Duration::from_secs(1));
        limit.set(None);
        assert_eq!(limit.patience().end(), None);
    }
}
