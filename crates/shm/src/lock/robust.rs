//! Robust locks: each thread registers with the kernel the shared lock that it holds, so that the kernel frees the lock
//! when the thread ends, for any reason. No process has to guess from a thread id whether the holder lives.
//!
//! ```text
//!   thread --get_robust_list--> head (the C library's, private memory): list | futex_offset | list_op_pending
//!   lock held: list_op_pending = address of the lock's word - futex_offset
//!   thread ends: the kernel finds its number in that word, sets FUTEX_OWNER_DIED and wakes a waiter
//! ```
//! The list itself belongs to the C library, for the program's own robust mutexes. This module uses only its field for an
//! operation under way, `list_op_pending`, which holds one lock at a time, and restores its previous value. A thread that takes
//! a second lock while it holds one (a stream moves to another circuit; a signal handler sends) stores its own [start
//! time](Thread::start) beside the first lock: other threads free that lock when no thread with this id and start time exists.

use super::SharedLock;
use core::cell::Cell;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

/// The kernel's `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: *mut u8,
    futex_offset: isize,
    list_op_pending: *mut u8,
}

/// The calling thread's robust list and locks.
pub(super) struct Thread {
    asked: Cell<bool>,
    head: Cell<*mut Head>,
    /// `list_op_pending` before the thread took its first shared lock.
    before: Cell<*mut u8>,
    /// The shared lock that it took last and still holds.
    holds: Cell<*const SharedLock>,
    start: Cell<u32>,
}

/// A lock that this thread holds, or is about to.
#[derive(Debug)]
pub(super) struct Pending {
    /// The thread's data; null at the very end of the thread.
    thread: *const Thread,
    /// The shared lock that the thread held before; null if none.
    outer: *const SharedLock,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            asked: Cell::new(false),
            head: Cell::new(null_mut()),
            before: Cell::new(null_mut()),
            holds: Cell::new(null()),
            start: Cell::new(0),
        }
    };
}

/// A system call filter is installed: threads that start from now on do not call `get_robust_list`.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// To be called before a system call filter is installed, which may forbid `get_robust_list`.
pub fn confine() {
    CONFINED.store(true, Relaxed);
}

/// In the child of `fork`: forgets the parent's thread id, start time and robust list head.
pub fn after_fork() {
    let _ = THREAD.try_with(|thread| {
        thread.asked.set(false);
        thread.start.set(0);
        thread.holds.set(null());
        thread.head();
    });
}

impl Thread {
    /// The head that is registered for this thread; null if none is.
    #[inline(always)]
    fn head(&self) -> *mut Head {
        if !self.asked.get() {
            self.ask();
        }
        self.head.get()
    }

    #[cold]
    fn ask(&self) {
        self.asked.set(true);
        self.head.set(null_mut());
        if CONFINED.load(Relaxed) {
            return;
        }
        let (mut head, mut len): (*mut Head, usize) = (null_mut(), 0);
        // SAFETY: the kernel stores one pointer and one length.
        let outcome = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) };
        if outcome == 0 && len == size_of::<Head>() {
            self.head.set(head);
        }
    }

    /// When this thread began, in ticks, which distinguishes it from a later thread with the same id; never 0 or 1.
    fn start(&self, tid: u32) -> u32 {
        if self.start.get() == 0 && !CONFINED.load(Relaxed) {
            self.start.set(start_of(tid).unwrap_or(u32::MAX));
        }
        match self.start.get() {
            0 => u32::MAX,
            start => start,
        }
    }
}

impl Head {
    /// The value of `list_op_pending` for a lock.
    fn node(&self, lock: *const SharedLock) -> *mut u8 {
        lock.cast::<u8>().wrapping_offset(-self.futex_offset).cast_mut()
    }
}

impl Pending {
    /// For a lock that no thread holds.
    pub(super) const NONE: Self = Self { thread: null(), outer: null() };

    /// Registers with the kernel that this thread is about to take `lock`.
    #[inline(always)]
    pub(super) fn begin(lock: &SharedLock, tid: u32) -> Self {
        THREAD.try_with(|thread| Self::in_thread(thread, lock, tid)).unwrap_or(Self::NONE)
    }

    #[inline(always)]
    fn in_thread(thread: &Thread, lock: &SharedLock, tid: u32) -> Self {
        let head = thread.head.get();
        if head.is_null() || !thread.holds.get().is_null() {
            return Self::in_other_thread(thread, lock, tid);
        }
        // SAFETY: the head that is registered for this thread, to which no other thread writes. A handler that interrupts
        // this restores the value that it found.
        unsafe {
            thread.before.set((&raw const (*head).list_op_pending).read_volatile());
            thread.holds.set(lock);
            (&raw mut (*head).list_op_pending).write_volatile((*head).node(lock));
        }
        compiler_fence(SeqCst);
        Self { thread, outer: null() }
    }

    /// As [`Self::in_thread`], for a thread that has no head, or holds a lock already.
    #[cold]
    fn in_other_thread(thread: &Thread, lock: &SharedLock, tid: u32) -> Self {
        let (head, outer) = (thread.head(), thread.holds.get());
        if outer.is_null() && !head.is_null() {
            // SAFETY: as in `in_thread`.
            thread.before.set(unsafe { (&raw const (*head).list_op_pending).read_volatile() });
        }
        thread.holds.set(lock);
        // SAFETY: a lock that this thread holds is mapped.
        if let Some(outer) = unsafe { outer.as_ref() } {
            outer.note_start(thread.start(tid));
        }
        if !head.is_null() {
            // SAFETY: as in `in_thread`.
            unsafe { (&raw mut (*head).list_op_pending).write_volatile((*head).node(lock)) };
        }
        compiler_fence(SeqCst);
        Self { thread, outer }
    }

    /// Whether the kernel frees the lock if this thread ends, and the thread holds no other lock.
    #[inline(always)]
    pub(super) fn is_simple(&self) -> bool {
        self.outer.is_null() && self.is_guarded()
    }

    /// [`Self::end`] of one that [is simple](Self::is_simple).
    #[inline(always)]
    pub(super) fn end_simply(&self) {
        compiler_fence(SeqCst);
        // SAFETY: as in `is_guarded` and `in_thread`.
        unsafe {
            let thread = &*self.thread;
            let before = thread.before.get();
            thread.holds.set(null());
            // Done first, so that a signal handler that runs in between restores the head's present value, not this lock.
            compiler_fence(SeqCst);
            (&raw mut (*thread.head.get()).list_op_pending).write_volatile(before);
        }
    }

    /// Whether the kernel frees the lock if this thread ends.
    #[inline(always)]
    pub(super) fn is_guarded(&self) -> bool {
        // SAFETY: of this thread, which is not at its end; a guard stays in its thread.
        unsafe { self.thread.as_ref() }.is_some_and(|thread| !thread.head.get().is_null())
    }

    /// Restores the previous registration, after the lock was freed or was not taken.
    pub(super) fn end(&self) {
        compiler_fence(SeqCst);
        // SAFETY: as in `is_guarded`.
        let Some(thread) = (unsafe { self.thread.as_ref() }) else { return };
        let (head, before) = (thread.head.get(), thread.before.get());
        thread.holds.set(self.outer);
        // As in `end_simply`.
        compiler_fence(SeqCst);
        if !head.is_null() {
            // SAFETY: as in `in_thread`.
            unsafe {
                let before = if self.is_nested() { (*head).node(self.outer) } else { before };
                (&raw mut (*head).list_op_pending).write_volatile(before);
            }
        }
        // SAFETY: the lock that was taken before is still held, so it is mapped.
        if let Some(outer) = unsafe { self.outer.as_ref() } {
            outer.note_start(0);
        }
    }

    /// Whether this thread holds a shared lock already.
    #[inline(always)]
    pub(super) fn is_nested(&self) -> bool {
        !self.outer.is_null()
    }

    /// When this thread began; see [`Thread::start`].
    #[cold]
    pub(super) fn own_start(tid: u32) -> u32 {
        THREAD.try_with(|thread| thread.start(tid)).unwrap_or(u32::MAX)
    }
}

/// The time at which thread `tid` of this machine began, in ticks, cut to 32 bits; `None` if there is no such thread, or it
/// has ended and was not waited for yet.
pub(super) fn start_of(tid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // The name, in parentheses, may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let start: u64 = fields.nth(18)?.parse().ok()?;
    let start = u32::try_from(start & u64::from(u32::MAX)).ok()?;
    (!matches!(state, "Z" | "X")).then_some(start.max(2))
}

#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::at_each_instruction;

    fn own() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    /// Calls `work` and, after one of its instructions, takes a lock in a signal handler; repeated for each instruction.
    /// `check` examines the result.
    fn at_each_moment(work: impl Fn(), check: impl Fn()) {
        let inner = SharedLock::default();
        for moment in 0.. {
            let steps = at_each_instruction(&work, &|step| {
                if step == moment {
                    drop(inner.lock(own()));
                }
            });
            check();
            if steps <= moment {
                return;
            }
        }
    }

    /// What this thread has registered with the kernel, and the lock that it holds by its own data.
    fn told() -> (*mut u8, *const SharedLock) {
        THREAD.with(|thread| {
            // SAFETY: the head that is registered for this thread.
            let head = unsafe { thread.head().as_ref() };
            (head.expect("a head").list_op_pending, thread.holds.get())
        })
    }

    #[test]
    fn lock_taken_in_a_handler_at_any_instruction_leaves_no_trace() {
        let (one, other, tid) = (SharedLock::default(), SharedLock::default(), own());
        let nothing_is_left = || assert_eq!(told(), (null_mut(), null()));
        at_each_moment(|| drop(one.lock(tid)), nothing_is_left);
        let both = || {
            let outer = one.lock(tid);
            drop(other.lock(tid));
            drop(outer);
        };
        at_each_moment(both, nothing_is_left);
        let outer = one.lock(tid).unwrap();
        let before = told();
        at_each_moment(|| drop(other.lock(tid)), || assert_eq!(told(), before));
        drop(outer);
        nothing_is_left();
    }
}
