//! Memory of the daemon's own that many ends took, given back to the system when few of them are left.

use super::Host;

impl Host {
    /// Gives back what the ends that are gone have left empty. The allocator keeps what is free between blocks that are in use.
    pub(super) fn give_room_back(&mut self) {
        if let Some(kept) = self.ends.give_room_back() {
            self.cables.shrink_to(kept);
            self.waiters.shrink_to(kept);
            self.policy.shrink_to(kept);
            trim_heap();
        }
    }
}

/// Gives pages of the heap that hold nothing back to the system.
#[cfg(target_env = "gnu")]
fn trim_heap() {
    // SAFETY: the call takes a number, and changes nothing that a block in use holds.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim_heap() {}
