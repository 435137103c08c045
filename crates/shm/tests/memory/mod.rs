//! A segment in private memory, to test rings without any mapping: what leaves its range panics.

use crosslane_shm::{Load, Store};
use std::cell::RefCell;
use std::rc::Rc;

type Bytes = Rc<RefCell<Vec<u8>>>;

/// The store-only side.
#[derive(Clone, Debug)]
pub(crate) struct Out(Bytes);

/// The load-only side.
#[derive(Clone, Debug)]
pub(crate) struct In(Bytes);

/// Zeroed memory of `len` bytes, seen from both sides.
pub(crate) fn segment(len: u64) -> (Out, In) {
    let bytes: Bytes = Rc::new(RefCell::new(vec![0; usize::try_from(len).expect("length")]));
    (Out(bytes.clone()), In(bytes))
}

impl Store for Out {
    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn store_u32(&self, offset: usize, value: u32) {
        assert_eq!(offset % 4, 0);
        self.write(offset, &value.to_le_bytes());
    }

    fn store_u64(&self, offset: usize, value: u64) {
        assert_eq!(offset % 8, 0);
        self.write(offset, &value.to_le_bytes());
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.0.borrow_mut()[offset..offset + source.len()].copy_from_slice(source);
    }

    fn store_fence(&self) {}

    fn fence(&self) {}
}

impl Load for In {
    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn load_u32(&self, offset: usize) -> u32 {
        assert_eq!(offset % 4, 0);
        let mut word = [0; 4];
        self.read(offset, &mut word);
        u32::from_le_bytes(word)
    }

    fn load_u64(&self, offset: usize) -> u64 {
        assert_eq!(offset % 8, 0);
        let mut word = [0; 8];
        self.read(offset, &mut word);
        u64::from_le_bytes(word)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        target.copy_from_slice(&self.0.borrow()[offset..offset + target.len()]);
    }
}
