//! Delay of signals while the engine may touch the program's buffer.
//!
//! Signals are delayed until the call has released the stream's locks as well: a handler may use the same stream, and may jump away.

use core::cell::{Cell, RefCell};
use crosslane_shm::signals::Masked;

thread_local! {
    /// Whether the present call may delay signals.
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
    /// The signal mask before the present call's first transfer.
    static MASKED: RefCell<Option<Masked>> = const { RefCell::new(None) };
    /// The last transfer did not move all bytes.
    static PARTLY: Cell<bool> = const { Cell::new(false) };
    /// A signal came during a transfer that did not move all bytes.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// While it exists, sends and receives of this thread may be handed over to the engine. Signals that the thread gets
/// meanwhile are delivered when it is dropped, after all locks of the stream are released.
#[derive(Debug)]
#[must_use = "nothing is handed over after it was dropped"]
pub struct Allowed {
    before: bool,
}

impl Allowed {
    /// Begins the delay. Not inlined, nor is its end: the compiler would load the thread-local words in each call, even
    /// without a transfer.
    #[inline(never)]
    pub fn begin() -> Self {
        take_interrupted();
        Self { before: ALLOWED.try_with(|allowed| allowed.replace(true)).unwrap_or(false) }
    }
}

impl Drop for Allowed {
    #[inline(never)]
    fn drop(&mut self) {
        let _ = ALLOWED.try_with(|allowed| allowed.set(self.before));
        let _ = MASKED.try_with(|masked| {
            if masked.borrow().is_some() {
                unmask(masked);
            }
        });
    }
}

/// Whether the present call may delay signals.
#[inline]
pub(crate) fn is_allowed() -> bool {
    ALLOWED.try_with(Cell::get).unwrap_or(false)
}

/// Whether a signal handler ran at the end of this thread's last transfer, which did not move all bytes: a call that
/// would wait now must return as interrupted.
#[inline(never)]
pub fn take_interrupted() -> bool {
    INTERRUPTED.try_with(Cell::take).unwrap_or(false)
}

/// Called when a transfer begins: signals of this thread are delayed until the present call has ended.
pub(super) fn mask() {
    let _ = MASKED.try_with(|masked| {
        masked.borrow_mut().get_or_insert_with(Masked::new);
    });
}

/// Called when a transfer has ended: whether it did not move all bytes.
pub(super) fn set_partly(partly: bool) {
    let _ = PARTLY.try_with(|word| word.set(partly));
}

/// Delivers signals again. If one was pending, and not all bytes were moved, the call is to be interrupted.
#[cold]
fn unmask(masked: &RefCell<Option<Masked>>) {
    // A handler may run this function again.
    let Some(masked) = masked.borrow_mut().take() else { return };
    if PARTLY.try_with(Cell::take).unwrap_or(false) && masked.any_waits() {
        let _ = INTERRUPTED.try_with(|interrupted| interrupted.set(true));
    }
    masked.end();
}
