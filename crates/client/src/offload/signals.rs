//! Signals and calls that wait while the engine has the program's buffer.
//!
//! They wait until the call has given back the stream's locks, too: a handler may call the same stream, and may jump away.

use core::cell::{Cell, RefCell};
use crosslane_shm::signals::Masked;

thread_local! {
    /// Whether the present call may wait.
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
    /// What was blocked before the present call's first transfer.
    static MASKED: RefCell<Option<Masked>> = const { RefCell::new(None) };
    /// The last transfer did not do all.
    static PARTLY: Cell<bool> = const { Cell::new(false) };
    /// A signal came while a transfer was under way that did not do all.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, sends and receives of this thread may be handed over to the engine: their call may wait. Signals of the thread
/// that came meanwhile are delivered when it is dropped, which is behind all locks of the stream.
#[derive(Debug)]
#[must_use = "nothing is handed over after it was dropped"]
pub struct Allowed {
    before: bool,
}

impl Allowed {
    /// From here on.
    // Not inlined, nor is its end: the compiler would look up their thread-local words in each call, handed over or not.
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

/// Whether a call is under way that may wait.
#[inline]
pub(crate) fn is_allowed() -> bool {
    ALLOWED.try_with(Cell::get).unwrap_or(false)
}

/// Whether a signal handler ran when the last transfer of this thread had ended, which did not do all: if its call would wait
/// now, it is interrupted by that.
#[inline(never)]
pub fn take_interrupted() -> bool {
    INTERRUPTED.try_with(Cell::take).unwrap_or(false)
}

/// A transfer begins: signals of this thread wait until the present call has ended.
pub(super) fn mask() {
    let _ = MASKED.try_with(|masked| {
        masked.borrow_mut().get_or_insert_with(Masked::new);
    });
}

/// A transfer has ended; whether it did not do all.
pub(super) fn set_partly(partly: bool) {
    let _ = PARTLY.try_with(|word| word.set(partly));
}

/// Signals are delivered again. If one waited, and not all was done, the call must hear of it.
#[cold]
fn unmask(masked: &RefCell<Option<Masked>>) {
    // A handler may come back to this very place.
    let Some(masked) = masked.borrow_mut().take() else { return };
    if PARTLY.try_with(Cell::take).unwrap_or(false) && masked.any_waits() {
        let _ = INTERRUPTED.try_with(|interrupted| interrupted.set(true));
    }
    masked.end();
}
