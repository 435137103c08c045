//! `select` and `pselect`: sets of bits in front of what [`crate::poll`] does.

use crate::hook::hook;
use crate::poll::{self, Limit};
use crate::real;
use core::ffi::{c_int, c_short, c_ulong};
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, pollfd, sigset_t, timespec, timeval,
};
use std::time::{Duration, Instant};

/// Bits of one word of a set.
const BITS: usize = c_ulong::BITS as usize;
/// Descriptors that need no allocation.
const FEW: usize = 32;
/// The kernel's POLLIN_SET, POLLOUT_SET and POLLEX_SET.
const KINDS: [(c_short, c_short); 3] =
    [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];

hook! {
    /// `select(2)`; the time left is stored, as Linux does.
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        // SAFETY: the program's promise to `select`.
        let kernel = || unsafe { real::select(count, read, write, except, timeout) };
        let sets = Sets([read.cast(), write.cast(), except.cast()]);
        // SAFETY: as above.
        let (Some(count), Some(time)) = (unsafe { sets.ours(count) }, unsafe { duration(timeout) }) else { return kernel() };
        let start = Instant::now();
        let limit = time.map_or(Limit::Never, Limit::after);
        // SAFETY: as above.
        let outcome = unsafe { sets.wait(count, limit, core::ptr::null()) };
        if let Some(time) = time {
            let left = time.saturating_sub(start.elapsed());
            let left = timeval {
                tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_usec: i64::from(left.subsec_micros()),
            };
            // SAFETY: as above.
            unsafe { timeout.write(left) };
        }
        outcome
    }

    /// `pselect(2)`.
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: the program's promise to `pselect`.
        let kernel = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
        let sets = Sets([read.cast(), write.cast(), except.cast()]);
        // SAFETY: as above.
        match (unsafe { sets.ours(count) }, Limit::of_timespec(unsafe { timeout.as_ref() })) {
            // SAFETY: as above.
            (Some(count), Some(limit)) => unsafe { sets.wait(count, limit, mask) },
            _ => kernel(),
        }
    }
}

/// The sets for reading, writing and exceptions; any may be null.
#[derive(Clone, Copy)]
struct Sets([*mut c_ulong; 3]);

impl Sets {
    /// Descriptors that count, if the kernel alone cannot answer for one of them.
    unsafe fn ours(self, count: c_int) -> Option<usize> {
        let count = usize::try_from(count).ok()?;
        // SAFETY: the caller's promise.
        unsafe { self.members(count) }.any(|(fd, _)| poll::is_ours(fd)).then_some(count)
    }

    /// The descriptors in any of the sets, with the events that are asked for.
    unsafe fn members(self, count: usize) -> impl Iterator<Item = (c_int, c_short)> {
        let words = count.div_ceil(BITS);
        (0..words).flat_map(move |word| {
            // SAFETY: the caller's promise: the sets hold `count` bits, in whole words.
            let load = |set: *mut c_ulong| unsafe { set.add(word).read_unaligned() };
            let sets = self.0.map(|set| if set.is_null() { 0 } else { load(set) });
            let valid = if (word + 1) * BITS <= count { c_ulong::MAX } else { (1 << (count % BITS)) - 1 };
            let any = (sets[0] | sets[1] | sets[2]) & valid;
            bits_of(any).map(move |bit| {
                let events = KINDS.iter().zip(sets).filter(|(_, set)| set >> bit & 1 != 0);
                let events = events.fold(0, |all, ((asked, _), _)| all | asked);
                (c_int::try_from(word * BITS + bit).unwrap_or(c_int::MAX), events)
            })
        })
    }

    unsafe fn wait(self, count: usize, limit: Limit, mask: *const sigset_t) -> c_int {
        let mut few = [pollfd { fd: -1, events: 0, revents: 0 }; FEW];
        let mut many = Vec::new();
        // SAFETY: the caller's promise.
        let len = unsafe { self.members(count) }.count();
        let fds = if len <= FEW {
            &mut few[..len]
        } else {
            many.resize(len, few[0]);
            &mut many[..]
        };
        // SAFETY: the caller's promise.
        for (place, (fd, events)) in fds.iter_mut().zip(unsafe { self.members(count) }) {
            *place = pollfd { fd, events, revents: 0 };
        }
        if let Err(errno) = poll::run(fds, limit, mask) {
            return real::fail(errno);
        }
        if fds.iter().any(|entry| entry.revents & POLLNVAL != 0) {
            return real::fail(libc::EBADF);
        }
        // SAFETY: the caller's promise.
        unsafe { self.store(count, fds) }
    }

    /// Stores what is ready and returns how many bits that is.
    unsafe fn store(self, count: usize, fds: &[pollfd]) -> c_int {
        let mut ready = 0;
        for (set, (asked, said)) in self.0.into_iter().zip(KINDS) {
            if set.is_null() {
                continue;
            }
            for word in 0..count.div_ceil(BITS) {
                // SAFETY: the caller's promise: the sets hold `count` bits, in whole words.
                unsafe { set.add(word).write_unaligned(0) };
            }
            for entry in fds.iter().filter(|entry| entry.events & asked != 0 && entry.revents & said != 0) {
                let fd = usize::try_from(entry.fd).unwrap_or(0);
                // SAFETY: below `count`, as it came from the sets.
                unsafe {
                    let word = set.add(fd / BITS);
                    word.write_unaligned(word.read_unaligned() | 1 << (fd % BITS));
                }
                ready += 1;
            }
        }
        ready
    }
}

fn bits_of(mut word: c_ulong) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

/// The program's time: `Some(None)` is for ever, `None` is not valid (the kernel says so).
///
/// # Safety
/// `time` must be valid or null.
unsafe fn duration(time: *const timeval) -> Option<Option<Duration>> {
    // SAFETY: the caller's promise.
    let Some(time) = (unsafe { time.as_ref() }) else { return Some(None) };
    let (seconds, micros) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_usec).ok()?);
    Some(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_the_bits_below_the_count() {
        let (mut read, mut write) = ([1 << 3 | 1 << 63, 1 << 6], [1 << 63 | 1, 1 << 5 | 1 << 6]);
        let sets = Sets([read.as_mut_ptr(), write.as_mut_ptr(), core::ptr::null_mut()]);
        // SAFETY: two words each.
        let found: Vec<_> = unsafe { sets.members(70) }.collect();
        assert_eq!(found, [(0, POLLOUT), (3, POLLIN), (63, POLLIN | POLLOUT), (69, POLLOUT)]);
    }

    #[test]
    fn readiness_goes_back_into_the_sets() {
        let (mut read, mut write) = ([1 << 3 | 1 << 4], [1 << 3]);
        let sets = Sets([read.as_mut_ptr(), write.as_mut_ptr(), core::ptr::null_mut()]);
        let fds = [
            pollfd { fd: 3, events: POLLIN | POLLOUT, revents: POLLERR },
            pollfd { fd: 4, events: POLLIN, revents: POLLOUT },
        ];
        // SAFETY: one word each.
        assert_eq!(unsafe { sets.store(5, &fds) }, 2);
        assert_eq!((read, write), ([1 << 3], [1 << 3]));
    }
}
