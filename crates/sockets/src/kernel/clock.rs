//! The time, to the tick, and as the kernel has it.

use libc::timespec;
use std::time::Duration;

/// Milliseconds of the monotonic clock, to the tick.
pub fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

/// As the kernel has it.
pub fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
