//! The two views of a segment: one can only be loaded from, the other only stored to.

mod outbound;

pub use outbound::Outbound;

use crate::guarded::{self, Fault};
pub(crate) use crate::mapping::Mapping;
pub use crate::mapping::{MapError, check_memory, inspect_memory, new_segment};
use crate::segment::Segment;
use core::sync::atomic::Ordering;
use crosslane_wire::MemoryKind;
use std::os::fd::AsFd;

/// Stores into a neighbour's memory. There is no load: a read across a cable would stall for a round trip.
///
/// Offsets are bytes from the segment's start. An offset out of range panics, since it is a bug of this program: offsets
/// that derive from a peer's words are checked before they are used here.
pub trait Store {
    /// Length of the segment, bytes.
    fn len(&self) -> usize;
    /// Whether the segment is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Stores a word after all earlier stores (release). `offset` must be a multiple of 4.
    fn store_u32(&self, offset: usize, value: u32);
    /// Stores a word after all earlier stores (release). `offset` must be a multiple of 8.
    fn store_u64(&self, offset: usize, value: u64);
    /// Copies `source` to `offset`, in no particular order.
    fn write(&self, offset: usize, source: &[u8]);
    /// As [`Self::write`], from a program's memory, which may be unmapped. See [`guarded`].
    ///
    /// # Errors
    /// A page is not mapped; a part of the bytes may have been copied.
    fn write_guarded(&self, offset: usize, source: &[u8]) -> Result<(), Fault> {
        self.write(offset, source);
        Ok(())
    }
    /// All earlier stores reach the peer before any later store (law 4): `sfence` where stores are write-combined, only a
    /// compiler fence where memory is coherent.
    fn store_fence(&self);
    /// All earlier stores are visible to the peer before any later store, and before any later load of this side's
    /// memory: a full fence, which also drains write-combining buffers.
    fn fence(&self);
}

/// Loads from this side's memory, into which a neighbour stores.
pub trait Load {
    /// Length of the segment, bytes.
    fn len(&self) -> usize;
    /// Whether the segment is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Loads a word; stores that came before it are visible after (acquire). `offset` must be a multiple of 4.
    fn load_u32(&self, offset: usize) -> u32;
    /// Loads a word; stores that came before it are visible after (acquire). `offset` must be a multiple of 8.
    fn load_u64(&self, offset: usize) -> u64;
    /// Copies from `offset` into `target`. The peer may change the bytes during the copy; only the copy is used.
    fn read(&self, offset: usize, target: &mut [u8]);
    /// As [`Self::read`], into a program's memory, which may be unmapped. See [`guarded`].
    ///
    /// # Errors
    /// A page is not mapped; a part of the bytes may have been copied.
    fn read_guarded(&self, offset: usize, target: &mut [u8]) -> Result<(), Fault> {
        self.read(offset, target);
        Ok(())
    }
}

/// A segment of this side's memory into which a neighbour stores: loads only.
#[derive(Debug)]
pub struct Inbound {
    memory: Mapping,
    near: bool,
}

impl Inbound {
    /// Maps a sealed memfd of exactly `len` bytes; refuses one that could still be shrunk.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn sealed(fd: impl AsFd, len: u64) -> Result<Self, MapError> {
        Ok(Self { memory: Mapping::new(fd, len)?, near: true })
    }

    /// Maps a segment that a port gave out, in the way that its description says.
    ///
    /// # Errors
    /// See [`MapError`]: the descriptor is not as described, or it is a queue of stores.
    pub fn map(segment: &Segment) -> Result<Self, MapError> {
        if segment.info.memory == MemoryKind::Queue {
            return Err(MapError::NotThatKind(MemoryKind::Queue));
        }
        Ok(Self { memory: segment.map()?, near: segment.info.is_near() })
    }

    /// Whether who stores to it runs on this machine's processors: [`SegmentInfo::is_near`](crosslane_wire::SegmentInfo::is_near).
    pub fn is_near(&self) -> bool {
        self.near
    }

    /// Address of `len` bytes at `offset`, to copy from.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *const u8 {
        self.memory.at(offset, len)
    }
}

impl Load for Inbound {
    fn len(&self) -> usize {
        self.memory.len()
    }

    #[inline]
    fn load_u32(&self, offset: usize) -> u32 {
        self.memory.word32(offset).load(Ordering::Acquire)
    }

    #[inline]
    fn load_u64(&self, offset: usize) -> u64 {
        self.memory.word64(offset).load(Ordering::Acquire)
    }

    #[inline]
    fn read(&self, offset: usize, target: &mut [u8]) {
        let source = self.memory.at(offset, target.len());
        // SAFETY: `source` is in range; `target` is private memory, so the two cannot overlap.
        unsafe { crate::copy::from_shared(target, source) }
    }

    #[inline]
    fn read_guarded(&self, offset: usize, target: &mut [u8]) -> Result<(), Fault> {
        let source = self.memory.at(offset, target.len());
        guarded::check(target.as_ptr())?;
        // SAFETY: `source` is in range; `target` is the program's, which does not know the address of this mapping.
        unsafe { guarded::copy(target.as_mut_ptr(), source, target.len()) }
    }
}

/// A program's own memory, which its processes share: loads and stores by one mapping.
#[derive(Debug)]
pub struct Own(Mapping);

impl Own {
    /// Maps a sealed memfd of exactly `len` bytes; refuses one that could still be shrunk.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn sealed(fd: impl AsFd, len: u64) -> Result<Self, MapError> {
        Mapping::new(fd, len).map(Self)
    }

    /// Copies `source`, a program's memory, which may be unmapped, to `offset`.
    ///
    /// # Errors
    /// A page is not mapped; a part of the bytes may have been copied.
    pub fn write_guarded(&self, offset: usize, source: &[u8]) -> Result<(), Fault> {
        let target = self.0.at(offset, source.len());
        guarded::check(source.as_ptr())?;
        // SAFETY: `target` is in range; `source` is the program's, which does not know the address of this mapping.
        unsafe { guarded::copy(target, source.as_ptr(), source.len()) }
    }

    /// Copies from `offset` into `target`. Other processes may change the bytes meanwhile.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        let source = self.0.at(offset, target.len());
        // SAFETY: `source` is in range; `target` is private memory, so the two cannot overlap.
        unsafe { crate::copy::from_shared(target, source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_shows_the_stores_of_the_other_view() {
        let fd = new_segment("test", 8192).unwrap();
        let (out, inb) = (Outbound::sealed(&fd, 8192).unwrap(), Inbound::sealed(&fd, 8192).unwrap());
        out.write(100, b"hello");
        out.store_u64(64, 7);
        let mut bytes = [0; 5];
        inb.read(100, &mut bytes);
        assert_eq!((inb.load_u64(64), &bytes), (7, b"hello"));
    }

    #[test]
    fn mapping_copies_on_what_arrived_and_nothing_beside_it() {
        let (near, far) = (new_segment("near", 4096).unwrap(), new_segment("far", 4096).unwrap());
        Outbound::sealed(&near, 4096).unwrap().write(1000, b"hello");
        let out = Outbound::sealed(&far, 4096).unwrap();
        out.copy_from(2001, &Inbound::sealed(&near, 4096).unwrap(), 1000, 4);
        let mut bytes = [0; 6];
        Inbound::sealed(&far, 4096).unwrap().read(2000, &mut bytes);
        assert_eq!(&bytes, b"\0hell\0");
    }

    #[test]
    #[should_panic(expected = "outside the segment")]
    fn mapping_copies_nothing_from_outside_a_segment() {
        let fd = new_segment("test", 4096).unwrap();
        let out = Outbound::sealed(&fd, 4096).unwrap();
        out.copy_from(0, &Inbound::sealed(&fd, 4096).unwrap(), 4000, 97);
    }

    #[test]
    fn mapping_of_another_length_or_without_seals_is_refused() {
        let fd = new_segment("test", 8192).unwrap();
        assert!(matches!(Inbound::sealed(&fd, 4096), Err(MapError::Length { actual: 8192, .. })));
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        assert!(matches!(Inbound::sealed(&open, 8192), Err(MapError::NotSealed)));
    }
}
