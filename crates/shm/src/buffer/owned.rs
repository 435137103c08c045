//! Buffers that a program asks for by name.

use super::{Block, Kind, Landing, alloc, free, locate};
use crate::copy;
use crate::shared_bytes::BadPlace;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use rustix::io::Errno;

/// Zeroed memory, whole pages, that far programs may map for loads. Freed when dropped: a program that has it mapped
/// keeps the old bytes, and sees no new ones.
///
/// It derefs to a slice of bytes, since only this process writes to it: the kernel allows no other process a mapping for
/// stores (see [`super`]).
/// [`super`]).
#[derive(Debug)]
pub struct Buffer(Block);

/// Zeroed memory, whole pages, that far programs may map for stores. They may store at any time, so this program only
/// copies in and out. Freed when dropped: later stores reach no program.
#[derive(Debug)]
pub struct OpenBuffer(Block);

// SAFETY: plain memory, reached only through the handle.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared handles only read.
unsafe impl Sync for Buffer {}
// SAFETY: plain memory, reached by raw copies only.
unsafe impl Send for OpenBuffer {}
// SAFETY: as above.
unsafe impl Sync for OpenBuffer {}

impl Buffer {
    /// Memory of at least `len` bytes.
    ///
    /// # Errors
    /// As [`alloc`].
    pub fn new(len: usize) -> Result<Self, Errno> {
        alloc(len as u64, Kind::Own).map(Self)
    }

    /// Start of the memory, for programs in C.
    pub fn pointer(&self) -> NonNull<u8> {
        self.0.at
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as the handle lives; only this process can write there, and only by `&mut self`.
        unsafe { core::slice::from_raw_parts(self.0.at.as_ptr(), self.0.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; far programs only load, which they may do at any time, and must not trust what they read.
        unsafe { core::slice::from_raw_parts_mut(self.0.at.as_ptr(), self.0.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        free(self.0.at.as_ptr());
    }
}

impl OpenBuffer {
    /// Memory of at least `len` bytes.
    ///
    /// # Errors
    /// As [`alloc`].
    pub fn new(len: usize) -> Result<Self, Errno> {
        alloc(len as u64, Kind::Open).map(Self)
    }

    /// Length of the buffer, bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Always `false`: a buffer has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Start of the memory, for programs in C. Far programs may store there at any time.
    pub fn pointer(&self) -> NonNull<u8> {
        self.0.at
    }

    /// The place of `len` bytes at `offset`, to be sent to far programs.
    ///
    /// # Errors
    /// The place is outside the buffer.
    pub fn locate(&self, offset: usize, len: usize) -> Result<super::Located, BadPlace> {
        let at = self.check(offset, len)?;
        locate(at, len).ok_or(self.outside(offset, len))
    }

    /// A completion line behind the buffer, for an offer of a place in it; `None` if all are in use.
    pub fn landing(&self) -> Option<Landing<'_>> {
        let place = locate(self.0.at.as_ptr(), 0)?;
        // SAFETY: the buffer is freed when the handle is dropped, which the line does not outlive.
        unsafe { place.landing() }
    }

    /// Copies from `offset` into `target`. Far programs may change the bytes during the copy; only the copy is used.
    ///
    /// # Errors
    /// The place is outside the buffer.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), BadPlace> {
        let at = self.check(offset, target.len())?;
        // SAFETY: in range; `target` is private memory, so the two cannot overlap.
        unsafe { copy::from_shared(target, at) }
        Ok(())
    }

    /// Copies `source` to `offset`.
    ///
    /// # Errors
    /// The place is outside the buffer.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), BadPlace> {
        let at = self.check(offset, source.len())?;
        // SAFETY: in range; `source` is private memory, so the two cannot overlap.
        unsafe { copy::into_shared(at, source) }
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result<*mut u8, BadPlace> {
        if offset > self.0.len || len > self.0.len - offset {
            return Err(self.outside(offset, len));
        }
        Ok(self.0.at.as_ptr().wrapping_add(offset))
    }

    fn outside(&self, offset: usize, len: usize) -> BadPlace {
        BadPlace::Outside { offset: offset as u64, len: len as u64, region: self.0.len as u64 }
    }
}

impl Drop for OpenBuffer {
    fn drop(&mut self) {
        free(self.0.at.as_ptr());
    }
}
