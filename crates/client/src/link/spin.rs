//! The right to spin.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Threads of this process that spin now.
static SPINNERS: AtomicU32 = AtomicU32::new(0);

/// The right to spin. Half of the processors may be spun on by one process: when more threads wait than that, those
/// that they wait for need the processors.
#[derive(Debug)]
pub struct Spinner(());

impl Spinner {
    /// `None` if `most` threads of this process spin already, or if there is no time (`ns` is 0) to spin.
    #[inline]
    pub fn among(ns: u32, most: u32) -> Option<Self> {
        if ns == 0 {
            return None;
        }
        let before = SPINNERS.fetch_add(1, Relaxed);
        let spinner = Self(());
        (before < most).then_some(spinner)
    }

    /// In the child of `fork` nobody spins.
    pub fn forget_all() {
        SPINNERS.store(0, Relaxed);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Relaxed);
    }
}
