//! Counters of an engine's thread.

use core::sync::atomic::AtomicU64;
use std::sync::OnceLock;

/// What a thread has done, for display.
#[derive(Debug, Default)]
pub struct Tally {
    /// Name of the copy engine.
    pub copy: OnceLock<&'static str>,
    /// Payload moved, bytes.
    pub bytes: AtomicU64,
    /// Payload copied from or to mapped buffers, bytes.
    pub registered: AtomicU64,
    /// Transfers that were taken.
    pub transfers: AtomicU64,
    /// Transfers for which the kernel refused access.
    pub refused: AtomicU64,
    /// Times that the thread slept.
    pub sleeps: AtomicU64,
}
