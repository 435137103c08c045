//! `select` and `pselect`, by way of [`crate::poll`] when a stream is among the descriptors.

use crate::hook::hook;
use crate::{poll, real, table};
use core::ffi::{c_int, c_short};
use libc::{fd_set, pollfd, sigset_t, timespec, timeval};
use std::time::{Duration, Instant};

/// What makes a descriptor readable, writable, exceptional for `select`, as the kernel has it.
const READABLE: c_short =
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR;
const WRITABLE: c_short = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR;
const EXCEPTIONAL: c_short = libc::POLLPRI;
/// Bits of one word of an `fd_set`.
const BITS: usize = u64::BITS as usize;

/// The three sets of a call, as words; programs may have sets longer than `FD_SETSIZE`.
struct Sets([*mut u64; 3]);

impl Sets {
    fn new(read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> Self {
        Self([read.cast(), write.cast(), except.cast()])
    }

    /// # Safety
    /// Each set is null or valid for the word that `fd` is in.
    unsafe fn has(&self, which: usize, fd: usize) -> bool {
        let set = self.0[which];
        // SAFETY: the caller's promise.
        !set.is_null() && unsafe { *set.add(fd / BITS) } >> (fd % BITS) & 1 == 1
    }

    /// # Safety
    /// Each set is null or valid for the word that `fd` is in.
    unsafe fn put(&self, which: usize, fd: usize, on: bool) {
        let set = self.0[which];
        if set.is_null() {
            return;
        }
        let bit = 1u64 << (fd % BITS);
        // SAFETY: the caller's promise.
        unsafe {
            let word = set.add(fd / BITS);
            *word = if on { *word | bit } else { *word & !bit };
        }
    }

    /// # Safety
    /// Each set is null or valid for `count` descriptors.
    unsafe fn entries(&self, count: usize) -> Vec<pollfd> {
        let mut entries = Vec::new();
        for fd in 0..count {
            // SAFETY: the caller's promise.
            let [read, write, except] = [0, 1, 2].map(|which| unsafe { self.has(which, fd) });
            if read || write || except {
                let events = if read { libc::POLLIN } else { 0 }
                    | if write { libc::POLLOUT } else { 0 }
                    | if except { libc::POLLPRI } else { 0 };
                entries.push(pollfd { fd: c_int::try_from(fd).unwrap_or(-1), events, revents: 0 });
            }
        }
        entries
    }
}

/// Does the call if a stream is among the descriptors: the value for the program.
///
/// # Safety
/// As for `pselect`.
unsafe fn wait(count: c_int, sets: &Sets, deadline: Option<Instant>, mask: *const sigset_t) -> Option<c_int> {
    let count = usize::try_from(count).ok().filter(|&count| count <= table::MAX_FDS)?;
    // SAFETY: the caller's promise.
    let mut entries = unsafe { sets.entries(count) };
    // SAFETY: as above.
    let polled = unsafe { poll::poll_until(&mut entries, deadline, mask) }?;
    if polled < 0 {
        return Some(polled);
    }
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Some(real::fail(libc::EBADF));
    }
    let mut bits = 0;
    for entry in &entries {
        let fd = usize::try_from(entry.fd).unwrap_or(0);
        for (which, meaning) in [READABLE, WRITABLE, EXCEPTIONAL].into_iter().enumerate() {
            // SAFETY: as above.
            let on = entry.revents & meaning != 0 && unsafe { sets.has(which, fd) };
            // SAFETY: as above.
            unsafe { sets.put(which, fd, on) };
            bits += c_int::from(on);
        }
    }
    Some(bits)
}

hook! {
    /// `select(2)`; what is left of the time is told, as Linux does.
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        let sets = Sets::new(read, write, except);
        // SAFETY: the program's promise to `select`.
        let deadline = unsafe { timeout.as_ref() }.map(|time| Instant::now() + duration(time));
        // SAFETY: as above.
        let Some(outcome) = (unsafe { wait(count, &sets, deadline, core::ptr::null()) }) else {
            // SAFETY: as above.
            return unsafe { real::select(count, read, write, except, timeout) };
        };
        // SAFETY: as above.
        if let (Some(time), Some(deadline)) = (unsafe { timeout.as_mut() }, deadline) {
            let left = deadline.saturating_duration_since(Instant::now());
            time.tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            time.tv_usec = i64::from(left.subsec_micros());
        }
        outcome
    }

    /// `pselect(2)`.
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        let sets = Sets::new(read, write, except);
        // SAFETY: the program's promise to `pselect`.
        let deadline = unsafe { timeout.as_ref() }.map(|time| Instant::now() + poll::duration(time));
        // SAFETY: as above.
        unsafe { wait(count, &sets, deadline, mask) }
            // SAFETY: as above.
            .unwrap_or_else(|| unsafe { real::pselect(count, read, write, except, timeout, mask) })
    }
}

fn duration(time: &timeval) -> Duration {
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
}
