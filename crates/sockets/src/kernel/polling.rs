//! The kernel's `poll` and `epoll`, with arrays of our own.

use crate::kernel::real;
use core::ffi::c_int;
use libc::{epoll_event, nfds_t, pollfd, sigset_t, timespec};

/// `ppoll(2)`; `time` `None` is for ever, and `mask` is the program's, or null.
///
/// # Errors
/// The error number.
pub fn ppoll(fds: &mut [pollfd], time: Option<&timespec>, mask: *const sigset_t) -> Result<usize, c_int> {
    let time = time.map_or(core::ptr::null(), core::ptr::from_ref);
    let count = nfds_t::try_from(fds.len()).unwrap_or(nfds_t::MAX);
    // SAFETY: an array of ours; the kernel looks whether the mask is there.
    found(unsafe { real::ppoll(fds.as_mut_ptr(), count, time, mask) })
}

/// `poll(2)` of one descriptor for `ms` milliseconds; less than 0 is for ever.
///
/// # Errors
/// The error number.
pub fn poll_one(one: &mut pollfd, ms: c_int) -> Result<bool, c_int> {
    // SAFETY: one `pollfd`.
    found(unsafe { real::poll(one, 1, ms) }).map(|count| count == 1)
}

/// Adds `fd` to the set, changes what is asked of it, or removes it.
///
/// # Errors
/// The error number.
pub fn control(set: c_int, operation: c_int, fd: c_int, mut event: epoll_event) -> Result<(), c_int> {
    // SAFETY: an event of ours.
    found(unsafe { real::epoll_ctl(set, operation, fd, &raw mut event) }).map(drop)
}

/// Removes `fd` from the set.
///
/// # Errors
/// The error number.
pub fn remove(set: c_int, fd: c_int) -> Result<(), c_int> {
    // SAFETY: no event is looked at.
    found(unsafe { real::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) }).map(drop)
}

/// What is ready in the set, for `ms` milliseconds; less than 0 is for ever.
///
/// # Errors
/// The error number.
pub fn wait(set: c_int, events: &mut [epoll_event], ms: c_int) -> Result<usize, c_int> {
    let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    // SAFETY: an array of ours of that length.
    found(unsafe { real::epoll_wait(set, events.as_mut_ptr(), room, ms) })
}

fn found(count: c_int) -> Result<usize, c_int> {
    usize::try_from(count).map_err(|_| real::errno())
}
