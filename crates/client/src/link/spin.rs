//! The right to spin.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Threads of this process that spin now.
static SPINNERS: AtomicU32 = AtomicU32::new(0);

/// The right to spin. One process may spin on half of the processors: if more of its threads wait, the threads that they
/// wait for need the processors.
#[derive(Debug)]
pub struct Spinner(());

impl Spinner {
    /// `None` if `most` threads of this process spin already, or `ns` is 0.
    #[inline]
    pub fn among(ns: u32, most: u32) -> Option<Self> {
        if ns == 0 {
            return None;
        }
        let before = SPINNERS.fetch_add(1, Relaxed);
        let spinner = Self(());
        (before < most).then_some(spinner)
    }

    /// Resets the count: in the child of `fork` no thread spins.
    pub fn forget_all() {
        SPINNERS.store(0, Relaxed);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Relaxed);
    }
}
