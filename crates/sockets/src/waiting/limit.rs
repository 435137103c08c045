//! How long a call that waits may wait.

use core::ffi::c_int;
use libc::timespec;
use std::time::{Duration, Instant};

/// How often kernel descriptors are looked at while rings are.
pub const KERNEL_EVERY: Duration = Duration::from_micros(10);
/// Sleep of waiters that cannot be rung: another waiter was first, or the daemon cannot be asked.
pub const BLIND: Duration = Duration::from_millis(5);
/// The same in units of [`Moment`](crosslane_shm::clock::Moment).
pub const KERNEL_EVERY_UNITS: u64 = 400;

/// How long a call may wait, counted from its start: calls that need not wait read no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Not at all.
    Now,
    /// So long.
    After(Duration),
    /// For ever.
    Never,
}

/// Until when a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Not at all.
    Now,
    /// Until then.
    Until(Instant),
    /// For ever.
    Never,
}

impl Timeout {
    /// The C library's milliseconds.
    pub fn of_ms(ms: c_int) -> Self {
        match u64::try_from(ms) {
            Ok(ms) => Self::after(Duration::from_millis(ms)),
            Err(_) => Self::Never,
        }
    }

    /// A relative time; `None` if it is not valid.
    pub fn of_timespec(time: Option<&timespec>) -> Option<Self> {
        let Some(time) = time else { return Some(Self::Never) };
        let nanos = u32::try_from(time.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000)?;
        Some(Self::after(Duration::new(u64::try_from(time.tv_sec).ok()?, nanos)))
    }

    /// So long from when it begins.
    pub fn after(time: Duration) -> Self {
        if time.is_zero() { Self::Now } else { Self::After(time) }
    }

    /// From now on.
    pub fn begin(self) -> Limit {
        match self {
            Self::Now => Limit::Now,
            Self::After(time) => Instant::now().checked_add(time).map_or(Limit::Never, Limit::Until),
            Self::Never => Limit::Never,
        }
    }
}

impl Limit {
    /// Whether the time is up.
    pub fn is_over(self) -> bool {
        match self {
            Self::Now => true,
            Self::Until(end) => Instant::now() >= end,
            Self::Never => false,
        }
    }

    /// Time left, at most `cap`; `None` is for ever.
    pub fn left(self, cap: Option<Duration>) -> Option<Duration> {
        let left = match self {
            Self::Now => Some(Duration::ZERO),
            Self::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Never => None,
        };
        match (left, cap) {
            (Some(left), Some(cap)) => Some(left.min(cap)),
            (left, cap) => left.or(cap),
        }
    }
}
