//! The sets of this process: which descriptor is which set, and the effects of `fork` and `close` on them.

use super::candidate;
use super::set::{Set, State};
use super::sleepers;
use super::wakeup_set;
use crate::descriptors::internal_fds;
use crate::descriptors::table::{self, Kind};
use crate::kernel::published::Published;
use crate::kernel::thread::tid;
use crate::kernel::{fd, program};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use crosslane_shm::lock::{Guard, Locked};
use std::time::{Duration, Instant};

/// Most sets of a process that may hold streams.
const MAX_SETS: usize = 1 << 14;

/// How long `fork` waits for threads that are at work on a set.
const FORK_PATIENCE: Duration = Duration::from_millis(100);

/// Places of sets; 0 is not used.
static SETS: [Published<Set>; MAX_SETS] = [const { Published::new() }; MAX_SETS];
/// One past the highest place in use.
static HIGHEST: AtomicU32 = AtomicU32::new(1);
/// Places of sets that were closed.
static IDLE: Locked<Vec<u32>> = Locked::new(Vec::new());

/// The set behind a descriptor, if it is one that we know.
#[inline]
pub fn of(epfd: c_int) -> Option<&'static Set> {
    let entry = table::look(epfd)?;
    if entry.kind == Kind::Epoll { at(entry.index) } else { None }
}

#[inline]
fn at(index: u32) -> Option<&'static Set> {
    SETS.get(index as usize)?.get()
}

/// Enters a new set. Nothing is entered when there are too many: such a set takes no streams.
pub fn create(epfd: c_int) -> Option<&'static Set> {
    let index = with_idle(Vec::pop).flatten().or_else(fresh_place)?;
    let set = at(index)?;
    set.generation.fetch_add(1, Ordering::Relaxed);
    set.take_look();
    set.with(|state| *state = State::new(epfd));
    table::enter(epfd, Kind::Epoll, index);
    Some(set)
}

fn fresh_place() -> Option<u32> {
    let index = HIGHEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |highest| {
        ((highest as usize) < MAX_SETS).then_some(highest + 1)
    });
    let index = index.ok()?;
    SETS[index as usize].set(Some(Box::leak(Box::new(Set::new()))));
    Some(index)
}

fn with_idle<T>(work: impl FnOnce(&mut Vec<u32>) -> T) -> Option<T> {
    IDLE.with(tid(), work).ok()
}

/// Does `work` on each set that holds streams.
pub fn all(mut work: impl FnMut(&Set, &mut State)) {
    for index in 1..HIGHEST.load(Ordering::Acquire) {
        let Some(set) = at(index).filter(|set| set.is_shadowed()) else { continue };
        set.with(|state| work(set, state));
    }
}

/// The descriptor `epfd` of a set is about to be closed.
pub fn closed(index: u32, epfd: c_int) {
    let Some(set) = at(index) else { return };
    let gone = set.with(|state| {
        state.names.retain(|&name| name != epfd);
        candidate::set_closed(epfd, state.names.first().copied());
        if state.names.is_empty() && set.calls.load(Ordering::Relaxed) > 0 {
            state.names.extend(copy_of(epfd));
            state.left = (!state.names.is_empty()).then_some(index);
        }
        if !state.names.is_empty() {
            return false;
        }
        state.end(epfd);
        set.count(state);
        true
    });
    if gone == Some(true) {
        set.generation.fetch_add(1, Ordering::Relaxed);
        with_idle(|idle| idle.push(index));
    }
}

/// A descriptor of our own for a set that is about to be closed; `None` if there can be none.
fn copy_of(epfd: c_int) -> Option<c_int> {
    if program::sandboxed() {
        return None;
    }
    fd::duplicate(epfd).ok().map(internal_fds::hide)
}

/// A call that sleeps in a set: as in the kernel, it goes on when another thread closes the set meanwhile.
pub struct Call(&'static Set);

impl Call {
    /// It begins to sleep.
    pub fn begin(set: &'static Set) -> Self {
        set.calls.fetch_add(1, Ordering::Relaxed);
        Self(set)
    }

    /// The set's descriptor: `epfd`, if that is one still.
    pub fn epfd(&self, epfd: c_int) -> c_int {
        let present = self
            .0
            .with(|state| if state.names.contains(&epfd) { None } else { state.names.first().copied() });
        present.flatten().unwrap_or(epfd)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let set = self.0;
        let left = set.with(|state| {
            let others = set.calls.fetch_sub(1, Ordering::Relaxed) > 1;
            let index = state.left.filter(|_| !others)?;
            let names = core::mem::take(&mut state.names);
            state.end(names.first().copied().unwrap_or(-1));
            set.count(state);
            Some((index, names))
        });
        if left.is_none() {
            // In a signal handler that came into this thread's own work on the set.
            set.calls.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some((index, names)) = left.flatten() {
            names.into_iter().for_each(internal_fds::close);
            set.generation.fetch_add(1, Ordering::Relaxed);
            with_idle(|idle| idle.push(index));
        }
    }
}

/// Before `fork`: takes all locks. A thread that holds one may wait for the daemon: it is given [`FORK_PATIENCE`] at
/// most.
pub fn before_fork() -> Vec<Guard<'static>> {
    let start = Instant::now();
    loop {
        let mut guards: Vec<_> = IDLE.try_hold(tid()).into_iter().collect();
        let mut wanted = 1;
        for set in (1..HIGHEST.load(Ordering::Relaxed)).filter_map(at) {
            wanted += 1;
            guards.extend(set.state.try_hold(tid()));
        }
        if guards.len() == wanted || start.elapsed() >= FORK_PATIENCE {
            return guards;
        }
        drop(guards);
        std::thread::yield_now();
    }
}

/// In the child of `fork`.
pub fn forked_child() {
    IDLE.reset();
    wakeup_set::forked_child();
    sleepers::forked_child();
    for set in (1..HIGHEST.load(Ordering::Relaxed)).filter_map(at) {
        set.state.reset();
        set.sleepers.store(0, Ordering::Relaxed);
        set.calls.store(0, Ordering::Relaxed);
        set.with(|state| {
            state.leave_parent();
            if state.left.take().is_some() {
                core::mem::take(&mut state.names).into_iter().for_each(internal_fds::close);
            }
        });
    }
}
