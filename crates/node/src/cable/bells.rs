//! Who may ring whom over a cable, without a daemon.

use super::Cable;
use crosslane_wire::WaiterId;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most bells of the peer's that are kept; each is a descriptor of the daemon.
const IMPORTED_MAX: usize = 1024;

/// Bells that went over a cable in its present epoch.
#[derive(Debug, Default)]
pub struct Bells {
    /// Our waiters that the peer may ring: the port's handles.
    pub exported: HashMap<WaiterId, u64>,
    /// The peer's waiters that we may ring.
    pub imported: HashMap<WaiterId, OwnedFd>,
}

impl Cable {
    /// Lets the peer ring one of our waiters directly: the handle, or `None` if the port cannot.
    pub fn export_bell(&mut self, waiter: WaiterId, bell: BorrowedFd<'_>) -> Option<u64> {
        if let Some(handle) = self.bells.exported.get(&waiter) {
            return Some(*handle);
        }
        let copy = bell.try_clone_to_owned().ok()?;
        let handle = self.port.export_bell(copy).ok()?;
        self.bells.exported.insert(waiter, handle);
        Some(handle)
    }

    /// A waiter is gone.
    pub fn withdraw_bell(&mut self, waiter: WaiterId) {
        if let Some(handle) = self.bells.exported.remove(&waiter) {
            self.port.withdraw_bell(handle);
        }
    }

    /// The bell under a handle that the peer named.
    pub fn import_bell(&mut self, waiter: WaiterId, handle: u64) -> Option<BorrowedFd<'_>> {
        let bell = self.port.import_bell(handle).ok().flatten()?;
        if self.bells.imported.len() >= IMPORTED_MAX {
            // The owners of most are gone by now; the others are asked for again.
            self.bells.imported.clear();
        }
        self.bells.imported.insert(waiter, bell);
        self.bells.imported.get(&waiter).map(AsFd::as_fd)
    }
}
