//! Who sent a descriptor: whoever it is waits for what is done with it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The first number that is no user's.
const NO_USER: u64 = 1 << 32;

/// A stranger whose descriptors we handle: a user of this host, or what is at the far end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u64);

impl Owner {
    /// Nobody in particular: our own process.
    pub const NOBODY: Self = Self(NO_USER);

    /// All processes of this user id.
    pub fn user(uid: u32) -> Self {
        Self(uid.into())
    }

    /// Somebody else than anybody before: the neighbour at one port, say.
    pub fn fresh() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(NO_USER);
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}
