//! Arrays with room for the highest index.

use core::sync::atomic::{AtomicPtr, Ordering};
use rustix::mm::{MapFlags, ProtFlags};

/// A zeroed array that takes memory only where it was touched.
pub struct Table<T>(AtomicPtr<T>);

impl<T> Table<T> {
    /// Nothing yet: every look-up finds nothing.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The element at `index` of `len`.
    #[inline]
    pub fn get(&self, index: usize, len: usize) -> Option<&T> {
        let base = self.0.load(Ordering::Acquire);
        if base.is_null() || index >= len {
            return None;
        }
        // SAFETY: in range of a mapping that lives as long as the process; all-zero bytes are a valid T.
        Some(unsafe { &*base.add(index) })
    }

    /// Makes it, of `len` elements.
    pub fn make(&self, len: usize) {
        let bytes = len * size_of::<T>();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let made = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let Ok(made) = made else { return };
        let null = core::ptr::null_mut();
        let raced = self.0.compare_exchange(null, made.cast(), Ordering::AcqRel, Ordering::Acquire);
        if raced.is_err() {
            // SAFETY: another thread was first; nobody has seen this one.
            let _ = unsafe { rustix::mm::munmap(made, bytes) };
        }
    }
}
