//! The time, to the tick.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the monotonic clock, in steps of the kernel's tick.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}
