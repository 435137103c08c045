//! How many threads sleep in sets that hold streams.

use core::sync::atomic::{AtomicU32, Ordering};

/// Threads that do.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);

/// Whether any thread sleeps in a set with streams.
#[inline]
pub fn any_sleeper() -> bool {
    SLEEPERS.load(Ordering::Relaxed) > 0
}

/// A thread is about to sleep in a set with streams (`true`), or has slept.
pub fn sleeps(begins: bool) {
    if begins {
        SLEEPERS.fetch_add(1, Ordering::SeqCst);
    } else {
        SLEEPERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// In the child of `fork` nobody sleeps.
pub fn forked_child() {
    SLEEPERS.store(0, Ordering::Relaxed);
}
