//! The time, to the tick, and as the kernel has it.

use libc::timespec;
use std::time::Duration;

pub use crosslane_client::link::clock::now_ms;

/// As the kernel has it.
pub fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
