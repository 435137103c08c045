//! Stores into a ring that must follow the bytes of its records.

use core::cell::RefCell;
use crosslane_shm::Store;

/// Stores into the ring that are executed after the copy.
#[derive(Debug, Default)]
pub(super) struct Marks(RefCell<Vec<(usize, u64)>>);

impl Marks {
    /// Executes them in the order in which they were made.
    pub(super) fn play(&self, ring: &impl Store) {
        for (at, value) in self.0.take() {
            ring.store_fence();
            ring.store_u64(at, value);
        }
    }
}

impl Store for Marks {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn store_u32(&self, _offset: usize, _value: u32) {
        unreachable!("records have words of 8 bytes");
    }

    fn store_u64(&self, offset: usize, value: u64) {
        self.0.borrow_mut().push((offset, value));
    }

    fn write(&self, _offset: usize, _source: &[u8]) {
        unreachable!("the payload is copied by the engine");
    }

    fn store_fence(&self) {}

    fn fence(&self) {}
}
