//! Memory of the daemon's own that many ends took, given back to the system when few of them are left.

use super::Host;
use std::collections::HashMap;

/// Room for so many ends is kept in any case.
const KEPT: usize = 1024;
/// Room is given back when less than one part of so many is used.
const USED: usize = 8;

/// Whether a map has much more room than it uses. A map that was made for [`KEPT`] may have twice that.
fn is_roomy<K, V>(map: &HashMap<K, V>) -> bool {
    map.capacity() > 2 * KEPT && map.len() < map.capacity() / USED
}

impl Host {
    /// Gives back what the ends that are gone have left empty: maps do not become smaller by themselves, and the allocator
    /// keeps what is free between blocks that are in use.
    pub(super) fn give_room_back(&mut self) {
        if is_roomy(&self.resources) {
            let kept = KEPT.max(2 * self.resources.len());
            self.resources.shrink_to(kept);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_once_for_each_time_that_many_ends_go() {
        let mut map: HashMap<usize, usize> = (0..20_000).map(|end| (end, end)).collect();
        assert!(!is_roomy(&map));
        let mut times = 0;
        for end in 0..20_000 {
            map.remove(&end);
            if is_roomy(&map) {
                map.shrink_to(KEPT.max(2 * map.len()));
                times += 1;
            }
        }
        assert!((1..=3).contains(&times), "{times}");
        assert!(map.capacity() <= 2 * KEPT, "{}", map.capacity());
    }
}
