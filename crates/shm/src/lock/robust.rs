//! What the kernel is told of the lock that a thread holds: so it frees the lock itself when the thread ends, however
//! that happens, and nobody has to guess from a number whether the holder lives.
//!
//! ```text
//!   thread --get_robust_list--> head (the C library's, private memory): list | futex_offset | list_op_pending
//!   lock held: list_op_pending = address of the lock's word - futex_offset
//!   thread ends: the kernel finds its number in that word, sets FUTEX_OWNER_DIED and wakes a waiter
//! ```
//! The list itself is the C library's, for the program's own robust mutexes; its place for an operation under way holds one
//! lock at a time. What stood there is put back. A thread that takes a second lock while it holds one (a stream that moves
//! to another circuit, a signal handler) leaves the first one with its own [start time](Thread::start) beside it instead, by
//! which others find out after a while.

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

/// What a thread knows of itself.
pub(super) struct Thread {
    asked: Cell<bool>,
    head: Cell<*mut Head>,
    /// The shared lock that it took last and still holds.
    holds: Cell<*const SharedLock>,
    start: Cell<u32>,
}

/// A lock that this thread holds, or is about to.
#[derive(Debug)]
pub(super) struct Pending {
    head: *mut Head,
    before: *mut u8,
    outer: *const SharedLock,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            asked: Cell::new(false),
            head: Cell::new(null_mut()),
            holds: Cell::new(null()),
            start: Cell::new(0),
        }
    };
}

/// A system call filter is on: threads that begin from now on ask nothing.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// A system call filter comes on, which may forbid what a new thread would ask the kernel.
pub fn confine() {
    CONFINED.store(true, Relaxed);
}

/// In the child of `fork`: its one thread has other numbers, and perhaps no head.
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

    /// When this thread began, so that another one that came to have its number is told from it; never 0 or 1.
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

impl Pending {
    /// Tells the kernel that this thread is about to take `lock`.
    #[inline]
    pub(super) fn begin(lock: &SharedLock, tid: u32) -> Self {
        let nothing = Self { head: null_mut(), before: null_mut(), outer: null() };
        THREAD.try_with(|thread| Self::in_thread(thread, lock, tid)).unwrap_or(nothing)
    }

    #[inline]
    fn in_thread(thread: &Thread, lock: &SharedLock, tid: u32) -> Self {
        let (head, outer) = (thread.head(), thread.holds.replace(lock));
        // SAFETY: a lock that this thread holds is mapped.
        if let Some(outer) = unsafe { outer.as_ref() } {
            outer.note_start(thread.start(tid));
        }
        let before = if head.is_null() {
            null_mut()
        } else {
            let word: *const u8 = core::ptr::from_ref(lock).cast();
            // SAFETY: the head that is registered for this thread, which nobody else writes.
            unsafe {
                let node = word.wrapping_offset(-(*head).futex_offset);
                let before = (&raw const (*head).list_op_pending).read_volatile();
                (&raw mut (*head).list_op_pending).write_volatile(node.cast_mut());
                before
            }
        };
        compiler_fence(SeqCst);
        Self { head, before, outer }
    }

    /// Whether the kernel frees the lock if this thread ends.
    pub(super) fn is_guarded(&self) -> bool {
        !self.head.is_null()
    }

    /// The lock is free, or was not taken: as it was before.
    #[inline]
    pub(super) fn end(&self) {
        compiler_fence(SeqCst);
        if !self.head.is_null() {
            // SAFETY: as in `in_thread`; a guard stays in its thread.
            unsafe { (&raw mut (*self.head).list_op_pending).write_volatile(self.before) };
        }
        let _ = THREAD.try_with(|thread| thread.holds.set(self.outer));
        // SAFETY: the lock that was taken before is still held, so it is mapped.
        if let Some(outer) = unsafe { self.outer.as_ref() } {
            outer.note_start(0);
        }
    }

    /// Whether this thread holds a shared lock already.
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
    // The name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let start: u64 = fields.nth(18)?.parse().ok()?;
    let start = u32::try_from(start & u64::from(u32::MAX)).ok()?;
    (!matches!(state, "Z" | "X")).then_some(start.max(2))
}
