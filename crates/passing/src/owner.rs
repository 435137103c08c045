//! The sender of a descriptor: only its own work waits if the descriptor blocks.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The first number that is not a user id.
const NO_USER: u64 = 1 << 32;

/// A stranger whose descriptors this process handles: a user of this host, or the far end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u64);

impl Owner {
    /// No stranger: this process itself.
    pub const NOBODY: Self = Self(NO_USER);

    /// All processes of this user id.
    pub fn user(uid: u32) -> Self {
        Self(uid.into())
    }

    /// A new owner, different from all others: for example the neighbour at one port.
    pub fn fresh() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(NO_USER);
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}
