//! Values that replace one another and are never freed: a thread may go on with an old one.

use core::sync::atomic::{AtomicPtr, Ordering};

/// A place for the present value; all threads see it.
#[derive(Debug)]
pub struct Published<T: 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Published<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The present one.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from `set`: it lives for ever, and nobody changes it.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// From now on `value` is the present one; `None` is none.
    pub fn set(&self, value: Option<&'static T>) {
        let value = value.map_or(core::ptr::null(), core::ptr::from_ref);
        self.0.store(value.cast_mut(), Ordering::Release);
    }
}
