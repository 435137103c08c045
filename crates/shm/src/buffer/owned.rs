//! Buffers that a program asks for by name.

use super::{Block, Kind, Landing, alloc, free, locate};
use crate::copy;
use crate::shared_bytes::BadPlace;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use rustix::io::Errno;

/// Zeroed memory, whole pages, that far programs may map for loads. Given back when dropped: who has it mapped keeps the old
/// bytes, and sees nothing new.
///
/// It is a segment of bytes, since nobody but this process writes there: the kernel maps it for stores for nobody else (see
/// [`super`]).
#[derive(Debug)]
pub struct Buffer(Block);

/// Zeroed memory, whole pages, that far programs may map for stores. They may store there at any time, so it is reached by
/// copies alone. Given back when dropped: later stores reach nobody.
#[derive(Debug)]
pub struct OpenBuffer(Block);

// SAFETY: plain memory, to which the handle is the only way.
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

    /// Its start, for programs in C.
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
        // SAFETY: as above; far programs load, which they may at any time, and believe nothing.
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

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has none; it always has some.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Its start, for programs in C. Others may store there at any time.
    pub fn pointer(&self) -> NonNull<u8> {
        self.0.at
    }

    /// The place of `len` bytes at `offset`, to tell far programs of.
    ///
    /// # Errors
    /// It is outside.
    pub fn locate(&self, offset: usize, len: usize) -> Result<super::Located, BadPlace> {
        let at = self.check(offset, len)?;
        locate(at, len).ok_or(self.outside(offset, len))
    }

    /// A line behind it for an offer of a place in it; `None` if all are in use.
    pub fn landing(&self) -> Option<Landing<'_>> {
        let place = locate(self.0.at.as_ptr(), 0)?;
        // SAFETY: the buffer is freed when the handle is dropped, which the line does not outlive.
        unsafe { place.landing() }
    }

    /// Copies from `offset` into `target`. The bytes may change meanwhile; the copy is what counts.
    ///
    /// # Errors
    /// The place is outside.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), BadPlace> {
        let at = self.check(offset, target.len())?;
        // SAFETY: in range; `target` is private memory, so the two cannot overlap.
        unsafe { copy::from_shared(target, at) }
        Ok(())
    }

    /// Copies `source` to `offset`.
    ///
    /// # Errors
    /// The place is outside.
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
