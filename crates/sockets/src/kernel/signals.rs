//! Signals of this thread and this process.

use crate::kernel::clock::timespec_of;
use core::ffi::c_int;
use crosslane_shm::signals::Masked;
use std::time::Duration;

/// Signals that were not blocked before [`block_all`].
pub struct Before(Masked);

/// Blocks all signals while a thread is made: no handler of the program's may run in a thread that it does not know.
pub fn block_all() -> Before {
    Before(Masked::new())
}

impl Drop for Before {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Raises `signal` in this thread.
pub fn raise(signal: c_int) {
    // SAFETY: a signal to ourselves.
    unsafe { libc::raise(signal) };
}

/// Sleeps for `time`; `false` if a signal came.
pub fn pause(time: Duration) -> bool {
    let time = timespec_of(time);
    // SAFETY: a valid time; what is left is not wanted.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) == 0 }
}

/// Whether the program has a handler that interrupts calls: without `SA_RESTART`.
pub fn any_handler_interrupts() -> bool {
    (1..=64).any(|signal| {
        // SAFETY: all-zero bytes are a valid action; the kernel fills it.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: only asks.
        let known = unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut action) } == 0;
        let handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        known && handled && action.sa_flags & libc::SA_RESTART == 0
    })
}
