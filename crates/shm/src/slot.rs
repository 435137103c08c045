//! A place for a value that comes later: empty, then filled once.

use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// It. Memory of zeros is an empty one, so that tables may begin as such.
#[derive(Debug)]
pub struct Slot<T>(AtomicPtr<T>, PhantomData<Box<T>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(AtomicPtr::new(null_mut()), PhantomData)
    }
}

impl<T: Send + Sync> Slot<T> {
    /// The value, if there is one.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or what `fill` got from a box, which is freed only by `drop`.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Puts a value here, unless there is one.
    pub fn fill(&self, value: T) {
        let new = Box::into_raw(Box::new(value));
        if self.0.compare_exchange(null_mut(), new, AcqRel, Acquire).is_err() {
            // SAFETY: from a box, just now, and nobody else has it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let value = *self.0.get_mut();
        if !value.is_null() {
            // SAFETY: from a box (`fill`), and nobody can refer to it any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn slot_is_filled_once_and_frees_what_it_has() {
        let (slot, one, other) = (Slot::default(), Arc::new(1), Arc::new(2));
        assert!(slot.get().is_none());
        slot.fill(one.clone());
        slot.fill(other.clone());
        assert_eq!(slot.get(), Some(&one));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (2, 1));
        drop(slot);
        assert_eq!(Arc::strong_count(&one), 1);
    }
}
