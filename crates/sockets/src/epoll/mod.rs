//! `epoll` over streams and kernel descriptors together.
//!
//! The program's epoll descriptor stays the kernel's. A stream in it is watched there only for the end of its quiet
//! connection; what it is ready for is looked up in its ring by [`wait`]. One wake event for each set lies in the
//! kernel's set too, so that whoever sleeps on the set wakes when a stream has news.
//!
//! ```text
//!   epoll_ctl  -> set.rs: the kernel first, which knows all errors; then our list of interests
//!   epoll_wait -> wait.rs: scan streams, look at the kernel by time, spin, arm, sleep in the kernel's epoll_wait
//! ```

mod set;
mod wait;

use crate::hook::hook;
use crate::table::{self, Entry, Kind};
use crate::{attach, real};
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use libc::{epoll_event, sigset_t, timespec};
use set::Set;
use std::time::{Duration, Instant};

/// Sets that one process may have with sockets in them.
const MAX_SETS: usize = 4096;
static SETS: [AtomicPtr<Set>; MAX_SETS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SETS];
/// One past the highest place that was ever used.
static USED: AtomicU32 = AtomicU32::new(0);

/// A socket has become a stream; sets that it is in already watch its ring from now on.
pub fn upgraded(fd: c_int) {
    sets().for_each(|set| set.upgrade(fd));
}

/// The program closes `fd`, an epoll descriptor or a stream.
pub fn closed(fd: c_int) {
    match table::look(fd) {
        Some(Entry { kind: Kind::Epoll, .. }) => {
            if let Some(set) = find(fd) {
                set.dropped();
            }
            table::leave(fd);
        }
        _ => sets().for_each(|set| set.forget(fd)),
    }
}

/// `copy` is the same epoll set as `epfd`.
pub fn duplicated(epfd: c_int, copy: c_int) {
    if let (Some(Entry { index, .. }), Some(set)) = (table::look(epfd), find(epfd)) {
        set.copied();
        table::enter(copy, Kind::Epoll, index);
    }
}

/// In the child of `fork`: wake events are the parent's; sets make others when they need one.
pub fn forked_child() {
    sets().for_each(Set::forked);
}

/// For `poll` on an epoll descriptor: whether a stream in the set is ready; if not, its streams are armed so that the
/// descriptor becomes readable.
pub fn is_ready(epfd: c_int) -> bool {
    find(epfd).is_some_and(wait::ready_or_armed)
}

/// Whether `fd` is an epoll descriptor with streams in its set.
pub fn has_streams(fd: c_int) -> bool {
    find(fd).is_some_and(Set::is_in_use)
}

fn sets() -> impl Iterator<Item = &'static Set> {
    let used = USED.load(Ordering::Acquire) as usize;
    // SAFETY: sets are leaked, and used again but never freed.
    SETS.iter().take(used).filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// The set behind an epoll descriptor, if sockets were ever put into it.
fn find(epfd: c_int) -> Option<&'static Set> {
    match table::look(epfd)? {
        Entry { kind: Kind::Epoll, index } => {
            // SAFETY: sets are leaked, and used again but never freed.
            unsafe { SETS.get(index as usize)?.load(Ordering::Acquire).as_ref() }
        }
        _ => None,
    }
}

/// The set behind `epfd`, made if it is the first socket that it gets.
fn find_or_make(epfd: c_int) -> Option<&'static Set> {
    if let Some(set) = find(epfd) {
        return Some(set);
    }
    let (index, set) = free_set()?;
    set.begin(epfd);
    table::enter(epfd, Kind::Epoll, index);
    Some(set)
}

fn free_set() -> Option<(u32, &'static Set)> {
    for (index, place) in SETS.iter().enumerate() {
        let index = u32::try_from(index).ok()?;
        let mut known = place.load(Ordering::Acquire);
        if known.is_null() {
            let fresh = Box::into_raw(Box::new(Set::new()));
            match place.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => known = fresh,
                Err(raced) => {
                    // SAFETY: ours alone; another thread's was put there.
                    drop(unsafe { Box::from_raw(fresh) });
                    known = raced;
                }
            }
            USED.fetch_max(index + 1, Ordering::AcqRel);
        }
        // SAFETY: sets are leaked, and used again but never freed.
        let set = unsafe { &*known };
        if set.take() {
            return Some((index, set));
        }
    }
    None
}

hook! {
    /// `epoll_ctl(2)`.
    fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: the program's promise to `epoll_ctl`.
        let kernel = || unsafe { real::epoll_ctl(epfd, operation, fd, event) };
        if crate::own::is(fd) || crate::own::is(epfd) {
            return real::fail(libc::EBADF);
        }
        let known = find(epfd);
        let stream = table::stream(fd);
        if known.is_none() && stream.is_none() && (operation != libc::EPOLL_CTL_ADD || !attach::is_tcp(fd)) {
            return kernel();
        }
        let missing = operation != libc::EPOLL_CTL_DEL && event.is_null();
        if missing || (stream.is_none() && operation == libc::EPOLL_CTL_DEL) {
            let outcome = kernel();
            if let (0, Some(set)) = (outcome, known) {
                set.forget(fd);
            }
            return outcome;
        }
        // SAFETY: the program's promise to `epoll_ctl`; it is not null, or it is not looked at.
        let event = unsafe { event.as_ref() }.copied().unwrap_or(epoll_event { events: 0, u64: 0 });
        let errno = real::errno();
        let outcome = set::control(epfd, known, operation, fd, stream, event);
        if outcome == 0 {
            real::set_errno(errno);
        }
        outcome
    }

    /// `epoll_wait(2)`.
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
        // SAFETY: the program's promise to `epoll_wait`.
        unsafe { epoll_pwait(epfd, events, max, timeout, core::ptr::null()) }
    }

    /// `epoll_pwait(2)`.
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        match find(epfd).filter(|set| max > 0 && !events.is_null() && set.is_in_use()) {
            Some(set) => {
                let ms = u64::try_from(timeout).ok();
                let deadline = ms.filter(|&ms| ms > 0).map(|ms| Instant::now() + Duration::from_millis(ms));
                // SAFETY: the program's promise to `epoll_pwait`.
                unsafe { wait::wait(set, epfd, wait::room(events, max), deadline, ms == Some(0), mask) }
            }
            // SAFETY: as above.
            None => unsafe { real::epoll_pwait(epfd, events, max, timeout, mask) },
        }
    }

    /// `epoll_pwait2(2)`.
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        match find(epfd).filter(|set| max > 0 && !events.is_null() && set.is_in_use()) {
            Some(set) => {
                // SAFETY: the program's promise to `epoll_pwait2`.
                let time = unsafe { timeout.as_ref() }.map(crate::poll::duration);
                let deadline = time.map(|time| Instant::now() + time);
                // SAFETY: as above.
                unsafe { wait::wait(set, epfd, wait::room(events, max), deadline, time == Some(Duration::ZERO), mask) }
            }
            // SAFETY: as above.
            None => unsafe { real::epoll_pwait2(epfd, events, max, timeout, mask) },
        }
    }
}
