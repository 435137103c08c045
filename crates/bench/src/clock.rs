//! The clocks of measurements, ns.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes of a machine share.
pub fn clock() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Processor time of this process, all its threads, user's and kernel's, ns.
pub fn processor_time() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
