//! `select` and `pselect`: sets of bits in front of what [`crate::waiting::poll`] does.

use super::hook;
use crate::descriptors::table;
use crate::kernel::{real, user};
use crate::waiting::limit::Timeout;
use crate::waiting::poll::{self, WAS_OPEN};
use core::ffi::{c_int, c_short, c_ulong};
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, pollfd, sigset_t, timespec, timeval,
};
use std::time::{Duration, Instant};

/// Bits of one word of a set.
const BITS: usize = c_ulong::BITS as usize;
/// Descriptors that need no allocation.
const FEW: usize = 32;
/// Words of a set that need no allocation: those of an `fd_set`.
const FEW_WORDS: usize = libc::FD_SETSIZE / BITS;
/// The kernel's POLLIN_SET, POLLOUT_SET and POLLEX_SET.
const KINDS: [(c_short, c_short); 3] = [
    (POLLIN, POLLIN | POLLHUP | POLLERR | POLLNVAL),
    (POLLOUT, POLLOUT | POLLERR | POLLNVAL),
    (POLLPRI, POLLPRI | POLLNVAL),
];
hook! {
    /// `select(2)`; the time left is stored, as Linux does.
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int |kernel| {
        let Some(mut sets) = Sets::ours([read, write, except], count) else { return kernel() };
        // SAFETY: the C library would read it without asking the kernel, too.
        let Some(time) = (unsafe { duration(timeout) }) else { return kernel() };
        let start = Instant::now();
        let outcome = sets.wait(time.map_or(Timeout::Never, Timeout::after), core::ptr::null());
        if let Some(time) = time {
            let left = time.saturating_sub(start.elapsed());
            let left = timeval {
                tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_usec: i64::from(left.subsec_micros()),
            };
            // SAFETY: the program's time. If it may not be written the kernel does not say so either.
            let _ = unsafe { user::store(timeout, &left) };
        }
        outcome
    }

    /// `pselect(2)`.
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int |kernel| {
        let Some(mut sets) = Sets::ours([read, write, except], count) else { return kernel() };
        // SAFETY: the C library would read it without asking the kernel, too.
        match Timeout::of_timespec(unsafe { timeout.as_ref() }) {
            Some(time) => sets.wait(time, mask),
            None => kernel(),
        }
    }
}

/// The sets for reading, writing and exceptions, any of which the program may leave out.
struct Sets {
    /// The program's.
    places: [*mut c_ulong; 3],
    /// What they hold, in copies one behind the other, of `words` each.
    few: [c_ulong; 3 * FEW_WORDS],
    many: Vec<c_ulong>,
    words: usize,
    /// Descriptors that count.
    count: usize,
}

impl Sets {
    /// The program's sets, if the kernel alone cannot answer for one of the descriptors in them.
    fn ours(sets: [*mut fd_set; 3], count: c_int) -> Option<Self> {
        let count =
            usize::try_from(count).ok().filter(|&count| count <= table::MAX_FDS && table::met_any())?;
        let sets = Self::load(sets.map(<*mut fd_set>::cast), count).ok()?;
        let any = sets.members().any(|(fd, _)| poll::is_ours(fd));
        any.then_some(sets)
    }

    /// Copies of sets of `count` bits, in whole words.
    fn load(places: [*mut c_ulong; 3], count: usize) -> Result<Self, c_int> {
        let words = count.div_ceil(BITS);
        let many = if words <= FEW_WORDS { Vec::new() } else { vec![0; 3 * words] };
        let mut sets = Self { places, few: [0; 3 * FEW_WORDS], many, words, count };
        for (index, place) in places.into_iter().enumerate().filter(|(_, place)| !place.is_null()) {
            // SAFETY: any bytes are a set.
            unsafe { user::load_over(place, sets.set_mut(index)) }?;
        }
        Ok(sets)
    }

    fn set(&self, index: usize) -> &[c_ulong] {
        let all = if self.many.is_empty() { &self.few[..] } else { &self.many };
        &all[index * self.words..][..self.words]
    }

    fn set_mut(&mut self, index: usize) -> &mut [c_ulong] {
        let all = if self.many.is_empty() { &mut self.few[..] } else { &mut self.many };
        &mut all[index * self.words..][..self.words]
    }

    /// The descriptors in any of the sets, with the events that are asked for.
    fn members(&self) -> impl Iterator<Item = (c_int, c_short)> {
        (0..self.words).flat_map(move |word| {
            let sets = [0, 1, 2].map(|index| self.set(index)[word]);
            let valid = if (word + 1) * BITS <= self.count { !0 } else { (1 << (self.count % BITS)) - 1 };
            let any = (sets[0] | sets[1] | sets[2]) & valid;
            bits_of(any).map(move |bit| {
                let events = KINDS.iter().zip(sets).filter(|(_, set)| set >> bit & 1 != 0);
                let events = events.fold(0, |all, ((asked, _), _)| all | asked);
                (c_int::try_from(word * BITS + bit).unwrap_or(c_int::MAX), events)
            })
        })
    }

    fn wait(&mut self, timeout: Timeout, mask: *const sigset_t) -> c_int {
        let mut few = [pollfd { fd: -1, events: 0, revents: 0 }; FEW];
        let mut many = Vec::new();
        let len = self.members().count();
        let fds = if len <= FEW {
            &mut few[..len]
        } else {
            many.resize(len, few[0]);
            &mut many[..]
        };
        for (place, (fd, events)) in fds.iter_mut().zip(self.members()) {
            let open = if poll::is_ours(fd) { WAS_OPEN } else { 0 };
            *place = pollfd { fd, events: events | open, revents: 0 };
        }
        if let Err(errno) = poll::run(fds, timeout, mask) {
            return real::fail(errno);
        }
        // What another thread closed meanwhile is ready.
        if fds.iter().any(|entry| entry.revents & POLLNVAL != 0 && entry.events & WAS_OPEN == 0) {
            return real::fail(libc::EBADF);
        }
        let ready = self.gather(fds);
        self.store().map_or_else(real::fail, |()| ready)
    }

    /// The sets become what is ready; returns how many bits that is.
    fn gather(&mut self, fds: &[pollfd]) -> c_int {
        let mut ready = 0;
        for (index, (asked, said)) in KINDS.into_iter().enumerate() {
            if self.places[index].is_null() {
                continue;
            }
            let set = self.set_mut(index);
            set.fill(0);
            for entry in fds.iter().filter(|entry| entry.events & asked != 0 && entry.revents & said != 0) {
                let fd = usize::try_from(entry.fd).unwrap_or(0);
                set[fd / BITS] |= 1 << (fd % BITS);
                ready += 1;
            }
        }
        ready
    }

    /// Stores them where the program has them.
    fn store(&self) -> Result<(), c_int> {
        let places = self.places.iter().enumerate().filter(|(_, place)| !place.is_null());
        places.into_iter().try_for_each(|(index, &place)| {
            // SAFETY: the program's sets.
            unsafe { user::store_all(place, self.set(index)) }
        })
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
    fn select_members_are_the_bits_below_nfds() {
        let (mut read, mut write) = ([1 << 3 | 1 << 63, 1 << 6], [1 << 63 | 1, 1 << 5 | 1 << 6]);
        let sets = [read.as_mut_ptr(), write.as_mut_ptr(), core::ptr::null_mut()];
        let found: Vec<_> = Sets::load(sets, 70).unwrap().members().collect();
        assert_eq!(found, [(0, POLLOUT), (3, POLLIN), (63, POLLIN | POLLOUT), (69, POLLOUT)]);
    }

    #[test]
    fn select_copies_sets_of_any_length() {
        let mut read = vec![0; 100];
        (read[99], read[16]) = (1 << 63, 1);
        let sets =
            Sets::load([core::ptr::null_mut(), read.as_mut_ptr(), core::ptr::null_mut()], 6400).unwrap();
        assert_eq!(sets.members().collect::<Vec<_>>(), [(1024, POLLOUT), (6399, POLLOUT)]);
    }

    #[test]
    fn select_writes_readiness_into_the_sets() {
        let (mut read, mut write) = ([1 << 3 | 1 << 4], [1 << 3]);
        let sets = [read.as_mut_ptr(), write.as_mut_ptr(), core::ptr::null_mut()];
        let mut sets = Sets::load(sets, 5).unwrap();
        let fds = [
            pollfd { fd: 3, events: POLLIN | POLLOUT, revents: POLLERR },
            pollfd { fd: 4, events: POLLIN, revents: POLLOUT },
        ];
        assert_eq!(sets.gather(&fds), 2);
        sets.store().unwrap();
        assert_eq!(std::hint::black_box((read, write)), ([1 << 3], [1 << 3]));
    }
}
