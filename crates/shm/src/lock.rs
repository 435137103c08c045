//! Locks: [`Lock`] among the threads of one process, and [`SharedLock`] in memory that several processes share.

mod robust;
mod shared;

pub use robust::{after_fork, confine};
pub use shared::{Busy, LOCK_TIMEOUT, NotTaken, SharedGuard, SharedLock, forget_busy, let_settle, take_busy};

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;
use shared::busy;
use std::time::Instant;

/// A lock among the threads of one process. Taking it spins briefly, then sleeps in the kernel; it frees the lock of a thread that
/// has ended. The word is 0 if free, else the holder's thread id, with the top bit set if another thread waits.
#[derive(Debug, Default)]
pub struct Lock(AtomicU32);

const WAITED: u32 = 1 << 31;
const SPINS: u32 = 100;

/// This thread holds the lock already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct Guard<'a>(&'a Lock);

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock for thread `tid`. Fails only if this thread holds it already: the caller is a signal handler that
    /// interrupted the holder.
    #[inline]
    pub fn lock(&self, tid: u32) -> Result<Guard<'_>, Reentered> {
        if self.0.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slowly(tid)?;
        }
        Ok(Guard(self))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self, tid: u32) -> Option<Guard<'_>> {
        self.0.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).ok().map(|_| Guard(self))
    }

    /// As [`Self::lock`], but waits for [`LOCK_TIMEOUT`] at most, or until a signal comes; [`take_busy`] tells which.
    pub fn lock_soon(&self, tid: u32) -> Result<Guard<'_>, NotTaken> {
        let (until, mut mine) = (Instant::now() + LOCK_TIMEOUT, tid);
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            let owner = seen & !WAITED;
            if owner == tid {
                return Err(NotTaken::Reentered);
            }
            if owner == 0 {
                if self.0.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(Guard(self));
                }
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if !lives(owner) {
                    let _ = self.0.compare_exchange(seen, WAITED, Ordering::Relaxed, Ordering::Relaxed);
                }
                return Err(busy(false));
            }
            mine = tid | WAITED;
            let awaited = seen | WAITED;
            let noted = self.0.compare_exchange(seen, awaited, Ordering::Relaxed, Ordering::Relaxed);
            if seen == awaited || noted.is_ok() {
                let timeout = rustix::thread::Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
                let outcome = futex::wait(&self.0, futex::Flags::empty(), awaited, Some(&timeout));
                if outcome == Err(rustix::io::Errno::INTR) {
                    return Err(busy(true));
                }
            }
        }
    }

    /// The thread that holds the lock, if any does.
    #[inline]
    pub fn holder(&self) -> Option<u32> {
        match self.0.load(Ordering::Acquire) & !WAITED {
            0 => None,
            tid => Some(tid),
        }
    }

    /// Frees the lock, whichever thread holds it; for the child of a `fork`.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    #[cold]
    fn lock_slowly(&self, tid: u32) -> Result<(), Reentered> {
        let mut mine = tid;
        for round in 0.. {
            let seen = self.0.load(Ordering::Relaxed);
            if seen & !WAITED == tid {
                return Err(Reentered);
            }
            if seen & !WAITED == 0 {
                if self.0.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            if round < SPINS {
                core::hint::spin_loop();
                continue;
            }
            mine = tid | WAITED;
            if seen & WAITED == 0
                && self.0.compare_exchange(seen, seen | WAITED, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            self.sleep(seen | WAITED);
        }
        unreachable!("the loop ends by return only")
    }

    /// Sleeps until woken or for 100 ms, then frees the lock if its holder has ended.
    fn sleep(&self, seen: u32) {
        let timeout = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let outcome = futex::wait(&self.0, futex::Flags::empty(), seen, Some(&timeout));
        if outcome == Err(rustix::io::Errno::TIMEDOUT) && !lives(seen & !WAITED) {
            let _ = self.0.compare_exchange(seen, WAITED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A value that a lock guards, also against signal handlers of the thread that holds the lock.
#[derive(Debug)]
pub struct Locked<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached with the lock held.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// A value with a free lock.
    pub const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Calls `work` with the value; fails only if this thread holds the lock already.
    pub fn with<R>(&self, tid: u32, work: impl FnOnce(&mut T) -> R) -> Result<R, Reentered> {
        let _guard = self.lock.lock(tid)?;
        // SAFETY: the lock is held until the end of this function.
        Ok(work(unsafe { &mut *self.value.get() }))
    }

    /// As [`Self::with`], but only if the lock is free.
    pub fn try_with<R>(&self, tid: u32, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _guard = self.lock.try_lock(tid)?;
        // SAFETY: the lock is held until the end of this function.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    /// As [`Self::hold`], but only if the lock is free.
    pub fn try_hold(&self, tid: u32) -> Option<Guard<'_>> {
        self.lock.try_lock(tid)
    }

    /// Takes the lock without touching the value.
    pub fn hold(&self, tid: u32) -> Result<Guard<'_>, Reentered> {
        self.lock.lock(tid)
    }

    /// Frees the lock in the child of a `fork` during which the parent [held](Self::hold) it.
    pub fn reset(&self) {
        self.lock.reset();
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.0.swap(0, Ordering::Release) & WAITED != 0 {
            let _ = futex::wake(&self.0.0, futex::Flags::empty(), 1);
        }
    }
}

/// Whether this process has a thread `tid`.
fn lives(tid: u32) -> bool {
    // SAFETY: only numbers; signal 0 only checks that the thread exists.
    let outcome = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    outcome == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_a_dead_holder_is_freed() {
        let lock = Lock::default();
        std::mem::forget(lock.lock(0x3fff_fff0).unwrap());
        assert!(lock.lock(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).is_ok());
    }

    #[test]
    fn lock_reentry_is_an_error() {
        let lock = Lock::default();
        let _guard = lock.lock(7).unwrap();
        assert_eq!(lock.lock(7).unwrap_err(), Reentered);
        assert_eq!(lock.lock_soon(7).unwrap_err(), NotTaken::Reentered);
    }

    #[test]
    fn lock_soon_does_not_wait_for_long() {
        let (lock, tid) = (Lock::default(), rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let guard = lock.lock(tid).unwrap();
        assert_eq!(lock.holder(), Some(tid));
        assert_eq!(lock.lock_soon(tid + 1).unwrap_err(), NotTaken::Busy);
        assert_eq!(take_busy(), Some(Busy { interrupted: false }));
        drop(guard);
        drop(lock.lock_soon(tid + 1).unwrap());
        assert_eq!(lock.holder(), None);
        // The holder has ended: the next thread frees the lock.
        std::mem::forget(lock.lock(0x3fff_fff0).unwrap());
        assert_eq!(lock.lock_soon(tid).unwrap_err(), NotTaken::Busy);
        assert!(lock.lock_soon(tid).is_ok());
    }
}
