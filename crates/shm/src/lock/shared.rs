//! A lock in memory that several processes share, any of which may be stopped or killed while it holds the lock, or may overwrite
//! it.
//!
//! ```text
//!   word: 0 free | FUTEX_OWNER_DIED free, its holder ended | tid held | + FUTEX_WAITERS a thread sleeps
//! ```
//! The kernel frees the lock of a thread that ends, see [`robust`](super::robust). A stopped holder keeps it: so a call
//! waits for at most [`LOCK_TIMEOUT`], and the caller, which knows the program's own time-out, tries again.

use super::robust::{Pending, start_of};
use core::cell::Cell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use rustix::io::Errno;
use rustix::thread::futex;
use std::time::{Duration, Instant};

/// Longest wait for a lock, in one call.
pub const LOCK_TIMEOUT: Duration = Duration::from_millis(10);

/// Upper bound of the time until other processors see a store; see [`SharedLock::free`].
const SETTLE: Duration = Duration::from_micros(1);

const OWNER_DIED: u32 = 1 << 30;
const WAITERS: u32 = 1 << 31;
const OWNER: u32 = OWNER_DIED - 1;
const SPINS: u32 = 100;
/// Value of `start`: the process holds the lock, and not one of its threads.
const KEPT: u32 = 1;

/// A lock; all-zero bytes are a free one.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SharedLock {
    word: AtomicU32,
    /// The holder's start time, if the kernel does not free the lock when the holder ends; [`KEPT`]; else 0.
    start: AtomicU32,
}

/// Why the lock was not taken. As large as a register, since the compiler would copy a smaller variant in pieces, whose stores
/// the processor cannot forward to the next load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum NotTaken {
    /// This thread holds the lock: the caller is a signal handler that interrupted it.
    Reentered,
    /// Another thread has held it for [`LOCK_TIMEOUT`], or a signal came; [`take_busy`] says which.
    Busy,
}

/// Why a call of this thread did not get a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// A signal handler ran during the wait.
    pub interrupted: bool,
}

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct SharedGuard<'a> {
    lock: &'a SharedLock,
    pending: Pending,
}

thread_local! {
    static BUSY: Cell<Option<Busy>> = const { Cell::new(None) };
}

/// Why the last call of this thread did not get a lock; each failure is returned once, later calls return `None`.
pub fn take_busy() -> Option<Busy> {
    BUSY.try_with(Cell::take).ok().flatten()
}

/// The caller gives up: clears [`take_busy`], so that the next call does not see this one's failure.
pub fn forget_busy() {
    let _ = take_busy();
}

impl SharedLock {
    /// Takes the lock for thread `tid`, the caller. Waits for [`LOCK_TIMEOUT`] at most.
    #[inline(always)]
    pub fn lock(&self, tid: u32) -> Result<SharedGuard<'_>, NotTaken> {
        let pending = Pending::begin(self, tid);
        if self.word.compare_exchange(0, tid, Acquire, Relaxed).is_err() {
            return self.lock_slowly(tid, pending);
        }
        Ok(self.taken(tid, pending))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self, tid: u32) -> Option<SharedGuard<'_>> {
        let pending = Pending::begin(self, tid);
        if self.word.compare_exchange(0, tid, Acquire, Relaxed).is_err() && !self.take_over(tid) {
            pending.end();
            return None;
        }
        Some(self.taken(tid, pending))
    }

    /// A lock that this process [kept](SharedGuard::keep).
    pub fn kept(&self) -> SharedGuard<'_> {
        SharedGuard { lock: self, pending: Pending::NONE }
    }

    #[inline(always)]
    fn taken(&self, tid: u32, pending: Pending) -> SharedGuard<'_> {
        if !pending.is_guarded() {
            self.start.store(Pending::own_start(tid), Relaxed);
        }
        SharedGuard { lock: self, pending }
    }

    /// Stores the holder's start time while this lock is not registered with the kernel; 0 when it is again.
    pub(super) fn note_start(&self, start: u32) {
        self.start.store(start, Relaxed);
    }

    /// Takes the lock if it is free, or its holder has ended.
    fn take_over(&self, tid: u32) -> bool {
        let seen = self.word.load(Relaxed);
        self.take_free(seen, tid)
    }

    fn take_free(&self, seen: u32, with: u32) -> bool {
        if seen & OWNER != 0
            || self.word.compare_exchange(seen, with | seen & WAITERS, Acquire, Relaxed).is_err()
        {
            return false;
        }
        self.start.store(0, Relaxed);
        true
    }

    #[cold]
    fn lock_slowly(&self, tid: u32, pending: Pending) -> Result<SharedGuard<'_>, NotTaken> {
        match self.wait(tid, &pending) {
            Ok(()) => Ok(self.taken(tid, pending)),
            Err(why) => {
                pending.end();
                Err(why)
            }
        }
    }

    fn wait(&self, tid: u32, pending: &Pending) -> Result<(), NotTaken> {
        let (mut with, mut until) = (tid, None);
        for round in 0_u32.. {
            let seen = self.word.load(Relaxed);
            let owner = seen & OWNER;
            if owner == 0 {
                if self.take_free(seen, with) {
                    return Ok(());
                }
                // A process that keeps changing the word delays this thread no longer than a holder does.
                if round > SPINS
                    && Instant::now() >= *until.get_or_insert_with(|| Instant::now() + LOCK_TIMEOUT)
                {
                    return Err(busy(false));
                }
            } else if owner == tid && (pending.is_nested() || self.start.load(Relaxed) == KEPT) {
                return Err(NotTaken::Reentered);
            } else if round < SPINS {
                core::hint::spin_loop();
            } else {
                with = tid | WAITERS;
                let until = *until.get_or_insert_with(|| Instant::now() + LOCK_TIMEOUT);
                self.sleep(seen, until)?;
            }
        }
        unreachable!("the loop ends by return only")
    }

    /// Sleeps until woken.
    fn sleep(&self, seen: u32, until: Instant) -> Result<(), NotTaken> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.free_if_dead(seen);
            return Err(busy(false));
        }
        let awaited = seen | WAITERS;
        if seen != awaited && self.word.compare_exchange(seen, awaited, Relaxed, Relaxed).is_err() {
            return Ok(());
        }
        if settle(|| self.word.load(Relaxed) != awaited) {
            return Ok(());
        }
        let timeout = rustix::thread::Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        match futex::wait(&self.word, futex::Flags::empty(), awaited, Some(&timeout)) {
            Err(Errno::INTR) => Err(busy(true)),
            _ => Ok(()),
        }
    }

    /// Frees the lock of a holder that has ended and had not registered the lock with the kernel.
    fn free_if_dead(&self, seen: u32) {
        let start = self.start.load(Relaxed);
        if start > KEPT && start_of(seen & OWNER).is_none_or(|now| start != u32::MAX && now != start) {
            let _ = self.word.compare_exchange(seen | WAITERS, OWNER_DIED | WAITERS, Relaxed, Relaxed);
        }
    }

    /// A load and a store, which take half the time of an exchange. A thread that announces its sleep between the two is not woken:
    /// so a thread first polls for [`SETTLE`], in case the store becomes visible, before it sleeps. If the kernel deschedules the
    /// holder between the two, such a thread waits for [`LOCK_TIMEOUT`]. This is no fence: a thread that finds the lock held, and
    /// leaves a request which the holder reads after freeing, must call [`let_settle`] and try the lock once more.
    #[inline(always)]
    fn free(&self) {
        if self.word.load(Relaxed) & WAITERS == 0 {
            self.word.store(0, Release);
        } else {
            self.free_and_wake();
        }
    }

    #[cold]
    fn free_and_wake(&self) {
        self.word.swap(0, Release);
        let _ = futex::wake(&self.word, futex::Flags::empty(), 1);
    }
}

impl SharedGuard<'_> {
    /// Leaves the lock held by this process, and not by this thread, until [`SharedLock::kept`] returns its guard. For
    /// ends that no other process holds: the kernel does not free the lock if this process ends.
    pub fn keep(self) {
        self.lock.start.store(KEPT, Relaxed);
        self.pending.end();
        core::mem::forget(self);
    }

    #[cold]
    fn free_slowly(&self) {
        if !self.pending.is_guarded() {
            self.lock.start.store(0, Relaxed);
        }
        self.lock.free();
        self.pending.end();
    }
}

impl Drop for SharedGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.pending.is_simple() {
            self.lock.free();
            self.pending.end_simply();
        } else {
            self.free_slowly();
        }
    }
}

/// Waits until this thread sees all stores that other threads have made by now.
pub fn let_settle() {
    settle(|| false);
}

/// Polls `has_come` for [`SETTLE`]; returns whether it returned `true`.
fn settle(has_come: impl Fn() -> bool) -> bool {
    let until = Instant::now() + SETTLE;
    while Instant::now() < until {
        if has_come() {
            return true;
        }
        core::hint::spin_loop();
    }
    has_come()
}

#[cold]
pub(super) fn busy(interrupted: bool) -> NotTaken {
    let _ = BUSY.try_with(|busy| busy.set(Some(Busy { interrupted })));
    NotTaken::Busy
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Mapping, new_segment};

    fn own() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    /// A lock in memory that children of `fork` share.
    fn shared() -> &'static SharedLock {
        let mapping = Mapping::new(new_segment("lock", 4096).unwrap(), 4096).unwrap();
        let at = mapping.base();
        core::mem::forget(mapping);
        // SAFETY: mapped for the life of the process, aligned; zeros are a free lock.
        unsafe { &*at.cast::<SharedLock>() }
    }

    /// Runs `work` in a child process that never returns from it; returns the child's pid.
    fn child(work: impl FnOnce()) -> i32 {
        // SAFETY: the child calls nothing that other threads of the parent may have left half done.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            super::super::robust::after_fork();
            work();
            loop {
                // SAFETY: no argument.
                unsafe { libc::pause() };
            }
        }
        pid
    }

    fn end(pid: i32, reap: bool) {
        // SAFETY: a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: all-zero bytes are a valid siginfo, which the kernel fills.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let leave = if reap { 0 } else { libc::WNOWAIT };
        // SAFETY: a child of ours.
        unsafe { libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut info, libc::WEXITED | leave) };
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    fn held_by_child() -> (&'static SharedLock, i32) {
        let lock = shared();
        let pid = child(|| core::mem::forget(lock.lock(own())));
        until("it is held", || lock.word.load(Relaxed) & OWNER == pid.unsigned_abs());
        (lock, pid)
    }

    #[test]
    fn lock_of_a_killed_process_is_free_at_once() {
        for reap in [true, false] {
            let (lock, pid) = held_by_child();
            assert_eq!(lock.lock(own()).unwrap_err(), NotTaken::Busy);
            end(pid, reap);
            assert_eq!(lock.word.load(Relaxed) & OWNER, 0, "the kernel freed it");
            drop(lock.lock(own()).unwrap());
            assert_eq!(lock.word.load(Relaxed), 0);
        }
    }

    #[test]
    fn lock_sleeper_is_woken_by_the_end_of_the_holder() {
        let (lock, pid) = held_by_child();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| until("it is free", || lock.lock(own()).is_ok()));
            until("somebody sleeps", || lock.word.load(Relaxed) & WAITERS != 0);
            end(pid, true);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn lock_of_a_thread_that_ends_is_freed() {
        let lock = shared();
        std::thread::spawn(|| core::mem::forget(lock.lock(own()))).join().unwrap();
        until("it is free", || lock.try_lock(own()).is_some());
    }

    #[test]
    fn lock_of_a_stopped_holder_holds_nobody_up_for_long() {
        let (lock, pid) = held_by_child();
        // SAFETY: a child of ours.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let start = Instant::now();
        assert_eq!(lock.lock(own()).unwrap_err(), NotTaken::Busy);
        assert_eq!(take_busy(), Some(Busy { interrupted: false }));
        assert_eq!(take_busy(), None);
        assert!(start.elapsed() >= LOCK_TIMEOUT && lock.try_lock(own()).is_none());
        end(pid, true);
        assert!(lock.try_lock(own()).is_some());
    }

    #[test]
    fn lock_of_a_dead_holder_of_two_is_found_by_start_time() {
        let (lock, other) = (shared(), shared());
        let pid = child(|| {
            core::mem::forget(lock.lock(own()));
            core::mem::forget(other.lock(own()));
        });
        until("both are held", || other.word.load(Relaxed) & OWNER == pid.unsigned_abs());
        assert!(lock.start.load(Relaxed) > KEPT);
        assert_eq!(lock.lock(own()).unwrap_err(), NotTaken::Busy, "it lives");
        end(pid, false);
        until("the second is free", || other.lock(own()).is_ok());
        until("the first is free", || lock.lock(own()).is_ok());
        assert_eq!(lock.start.load(Relaxed), 0);
    }

    #[test]
    fn lock_holder_is_not_confused_with_a_thread_of_the_same_id() {
        let lock = SharedLock::default();
        lock.word.store(1, Relaxed);
        lock.start.store(start_of(1).map_or(7, |start| start + 1), Relaxed);
        until("it is free", || lock.lock(own()).is_ok());
    }

    #[test]
    fn lock_taken_second_leaves_the_first_as_it_was() {
        let (first, second) = (SharedLock::default(), SharedLock::default());
        let guard = first.lock(own()).unwrap();
        drop(second.lock(own()).unwrap());
        assert_eq!((first.start.load(Relaxed), first.word.load(Relaxed)), (0, own()));
        drop(guard);
        assert_eq!((first.word.load(Relaxed), second.word.load(Relaxed)), (0, 0));
    }

    #[test]
    fn lock_shared_reentry_is_an_error() {
        let lock = SharedLock::default();
        let _guard = lock.lock(own()).unwrap();
        assert_eq!(lock.lock(own()).unwrap_err(), NotTaken::Reentered);
    }

    #[test]
    fn lock_word_of_rubbish_holds_nobody_up_for_long() {
        let lock = SharedLock::default();
        for word in [own(), OWNER, OWNER | WAITERS, OWNER | OWNER_DIED, u32::MAX, 1] {
            for start in [0, 2, u32::MAX] {
                lock.word.store(word, Relaxed);
                lock.start.store(start, Relaxed);
                let begun = Instant::now();
                let _ = lock.lock(own());
                assert!(begun.elapsed() < Duration::from_secs(2));
            }
        }
    }

    #[test]
    fn lock_that_was_kept_is_freed_by_any_thread() {
        let lock = SharedLock::default();
        lock.try_lock(own()).unwrap().keep();
        assert_eq!(lock.lock(own()).unwrap_err(), NotTaken::Reentered);
        std::thread::scope(|scope| scope.spawn(|| drop(lock.kept())).join().unwrap());
        assert!(lock.try_lock(own()).is_some());
    }
}
