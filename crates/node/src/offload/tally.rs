//! What an engine's thread counts.

use core::sync::atomic::AtomicU64;
use std::sync::OnceLock;

/// What a thread has done, for people.
#[derive(Debug, Default)]
pub struct Tally {
    /// The name of what copies.
    pub copy: OnceLock<&'static str>,
    /// Payload, bytes.
    pub bytes: AtomicU64,
    /// Those of it that were copied from, or to, buffers that are mapped.
    pub registered: AtomicU64,
    /// Transfers that were taken.
    pub transfers: AtomicU64,
    /// Those that the kernel refused.
    pub refused: AtomicU64,
    /// Times that the thread slept.
    pub sleeps: AtomicU64,
}
