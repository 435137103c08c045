//! The two views of a segment. What arrives can be loaded and not stored; what leaves can be stored and not loaded.

mod outbound;

pub use outbound::Outbound;

use crate::guarded::{self, Fault};
use crate::segment::Segment;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crosslane_wire::MemoryKind;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use thiserror::Error;

/// Stores into a neighbour's memory. There is no load: a read across a cable would stall for a round trip.
///
/// Offsets are bytes from the segment's start; one out of range panics, since it is our own mistake: offsets that
/// derive from a peer's words are checked before they come here.
pub trait Store {
    /// Length of the segment, bytes.
    fn len(&self) -> usize;
    /// Whether the segment is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Stores a word after everything stored before (release). `offset` must be a multiple of 4.
    fn store_u32(&self, offset: usize, value: u32);
    /// Stores a word after everything stored before (release). `offset` must be a multiple of 8.
    fn store_u64(&self, offset: usize, value: u64);
    /// Copies `source` to `offset`, in no particular order.
    fn write(&self, offset: usize, source: &[u8]);
    /// As [`Self::write`] of memory of the program's, which may not be there. See [`guarded`].
    ///
    /// # Errors
    /// Part of it may have been copied.
    fn write_guarded(&self, offset: usize, source: &[u8]) -> Result<(), Fault> {
        self.write(offset, source);
        Ok(())
    }
    /// Everything stored before reaches the peer before anything stored after (law 4): `sfence` where stores are
    /// write-combined, nothing but an order for the compiler where memory is coherent.
    fn store_fence(&self);
    /// Everything stored before is visible to the peer before anything stored after, and before any later load of
    /// our own memory: a full fence, which also drains write-combining buffers.
    fn fence(&self);
}

/// Loads from our own memory, into which a neighbour stores.
pub trait Load {
    /// Length of the segment, bytes.
    fn len(&self) -> usize;
    /// Whether the segment is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Loads a word; what was stored before it is visible after (acquire). `offset` must be a multiple of 4.
    fn load_u32(&self, offset: usize) -> u32;
    /// Loads a word; what was stored before it is visible after (acquire). `offset` must be a multiple of 8.
    fn load_u64(&self, offset: usize) -> u64;
    /// Copies from `offset` into `target`. The bytes may change meanwhile; the copy is what is believed.
    fn read(&self, offset: usize, target: &mut [u8]);
    /// As [`Self::read`] into memory of the program's, which may not be there. See [`guarded`].
    ///
    /// # Errors
    /// Part of it may have been copied.
    fn read_guarded(&self, offset: usize, target: &mut [u8]) -> Result<(), Fault> {
        self.read(offset, target);
        Ok(())
    }
}

/// Why a descriptor was not mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// It is not the length that was promised: touching its end would kill the program.
    #[error("segment is {actual} bytes long, {expected} were promised")]
    Length {
        /// What was promised, bytes.
        expected: u64,
        /// What `fstat` says, bytes.
        actual: u64,
    },
    /// The descriptor is not of the kind that the port names, or memory of that kind cannot be used so.
    #[error("segment is no memory of kind {0:?} that can be mapped so")]
    NotThatKind(MemoryKind),
    /// It could still be shrunk under us.
    #[error("segment is not sealed against shrinking")]
    NotSealed,
    /// It is of huge pages, which may run out when one is touched.
    #[error("segment is of huge pages, which may run out")]
    HugePages,
    /// A system call failed.
    #[error("cannot map segment: {0}")]
    System(#[from] rustix::io::Errno),
}

/// A mapped range; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory that any thread may reach; all access goes through atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: impl AsFd, len: u64) -> Result<Self, MapError> {
        Self::with(fd, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// A mapping for loads, or stores, or both; the other kind would end the program.
    pub(crate) fn with(fd: impl AsFd, len: u64, protection: ProtFlags) -> Result<Self, MapError> {
        let (_, actual) = inspect_memory(&fd, SealFlags::SHRINK)?;
        if actual != len || len == 0 {
            return Err(MapError::Length { expected: len, actual });
        }
        Self::at_offset(fd, 0, len, protection)
    }

    /// A mapping of a segment, once its descriptor was found to be what the port says that it is.
    fn of(segment: &Segment) -> Result<Self, MapError> {
        segment.check()?;
        let info = &segment.info;
        Self::at_offset(&segment.fd, info.offset, info.len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn at_offset(fd: impl AsFd, offset: u64, len: u64, protection: ProtFlags) -> Result<Self, MapError> {
        let len = usize::try_from(len).map_err(|_| rustix::io::Errno::OVERFLOW)?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &fd, offset)?
        };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// A mapping of nothing: no range but empty ones at its start lies inside.
    const fn nothing() -> Self {
        Self { base: NonNull::dangling(), len: 0 }
    }

    /// Where `len` bytes at `offset` lie; `None` if that is not inside.
    #[inline(always)]
    pub(crate) fn place(&self, offset: usize, len: usize) -> Option<*mut u8> {
        // SAFETY: the range lies inside the mapping.
        (offset <= self.len && len <= self.len - offset).then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        self.place(offset, len).expect("offset outside the segment")
    }

    #[inline]
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert_eq!(offset % 4, 0);
        // SAFETY: in range, aligned, mapped as long as `self`; atomics may be shared with other processes.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    #[inline]
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert_eq!(offset % 8, 0);
        // SAFETY: in range, aligned, mapped as long as `self`; atomics may be shared with other processes.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: the mapping is ours and nobody refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A segment of our own memory that a neighbour stores into: loads only.
#[derive(Debug)]
pub struct Inbound(Mapping);

impl Inbound {
    /// Maps a sealed memfd of exactly `len` bytes; refuses one that could still be shrunk.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn sealed(fd: impl AsFd, len: u64) -> Result<Self, MapError> {
        Mapping::new(fd, len).map(Self)
    }

    /// Maps what a port gave out, in the way that it says.
    ///
    /// # Errors
    /// See [`MapError`]: the descriptor is not what was said, or it holds a queue of stores.
    pub fn map(segment: &Segment) -> Result<Self, MapError> {
        if segment.info.memory == MemoryKind::Queue {
            return Err(MapError::NotThatKind(MemoryKind::Queue));
        }
        Mapping::of(segment).map(Self)
    }

    /// Where `len` bytes at `offset` lie, to be copied from.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *const u8 {
        self.0.at(offset, len)
    }
}

impl Load for Inbound {
    fn len(&self) -> usize {
        self.0.len
    }

    #[inline]
    fn load_u32(&self, offset: usize) -> u32 {
        self.0.word32(offset).load(Ordering::Acquire)
    }

    #[inline]
    fn load_u64(&self, offset: usize) -> u64 {
        self.0.word64(offset).load(Ordering::Acquire)
    }

    #[inline]
    fn read(&self, offset: usize, target: &mut [u8]) {
        let source = self.0.at(offset, target.len());
        // SAFETY: `source` is in range; `target` is private memory, so the two cannot overlap.
        unsafe { crate::copy::from_shared(target, source) }
    }

    #[inline]
    fn read_guarded(&self, offset: usize, target: &mut [u8]) -> Result<(), Fault> {
        let source = self.0.at(offset, target.len());
        guarded::check(target.as_ptr())?;
        // SAFETY: `source` is in range; `target` is the program's, which does not have our mapping.
        unsafe { guarded::copy(target.as_mut_ptr(), source, target.len()) }
    }
}

/// Memory of one program's own, which its processes share: loads and stores by one mapping.
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

    /// Copies `source`, which is the program's and may not be there, to `offset`.
    ///
    /// # Errors
    /// Part of it may have been copied.
    pub fn write_guarded(&self, offset: usize, source: &[u8]) -> Result<(), Fault> {
        let target = self.0.at(offset, source.len());
        guarded::check(source.as_ptr())?;
        // SAFETY: `target` is in range; `source` is the program's, which does not have our mapping.
        unsafe { guarded::copy(target, source.as_ptr(), source.len()) }
    }

    /// Copies from `offset` into `target`. Other processes may change the bytes meanwhile.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        let source = self.0.at(offset, target.len());
        // SAFETY: `source` is in range; `target` is private memory, so the two cannot overlap.
        unsafe { crate::copy::from_shared(target, source) }
    }
}

/// `f_type` of the kernel's in-memory file system, `TMPFS_MAGIC`.
const IN_MEMORY: rustix::fs::FsWord = 0x0102_1994;

/// The one rule for every descriptor that is mapped as memory: a memfd of ordinary pages with the `required` seals. Returns
/// all its seals and its length in bytes.
///
/// The seals are asked for first: to ask any other file than a memfd for its length may block. Huge pages
/// (`MFD_HUGETLB`) are refused everywhere: they may run out when one is touched, which ends the process, and the seals
/// and the guard page behind a buffer count in ordinary pages.
///
/// # Errors
/// [`MapError::NotSealed`], [`MapError::HugePages`], or [`MapError::System`] (`INVAL` for what is no memfd).
pub fn inspect_memory(fd: impl AsFd, required: SealFlags) -> Result<(SealFlags, u64), MapError> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    if !seals.contains(required) {
        return Err(MapError::NotSealed);
    }
    if rustix::fs::fstatfs(&fd)?.f_type != IN_MEMORY {
        return Err(MapError::HugePages);
    }
    Ok((seals, u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0)))
}

/// Refuses all but memory of exactly `len` bytes that can never be resized ([`inspect_memory`]); returns its seals.
pub fn check_memory(fd: impl AsFd, len: u64) -> Result<SealFlags, MapError> {
    let (seals, actual) = inspect_memory(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    if actual == len { Ok(seals) } else { Err(MapError::Length { expected: len, actual }) }
}

/// Fresh zeroed memory of `len` bytes for a segment, sealed so that nobody can resize it. No other process has ever
/// mapped it, so a segment that was freed is never seen by its old writer again.
pub fn new_segment(name: &str, len: u64) -> Result<OwnedFd, MapError> {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, len)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_stores_the_other_loads() {
        let fd = new_segment("test", 8192).unwrap();
        let (out, inb) = (Outbound::sealed(&fd, 8192).unwrap(), Inbound::sealed(&fd, 8192).unwrap());
        out.write(100, b"hello");
        out.store_u64(64, 7);
        let mut bytes = [0; 5];
        inb.read(100, &mut bytes);
        assert_eq!((inb.load_u64(64), &bytes), (7, b"hello"));
    }

    #[test]
    fn what_arrived_is_copied_on_and_nothing_beside_it() {
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
    fn nothing_is_copied_from_outside_a_segment() {
        let fd = new_segment("test", 4096).unwrap();
        let out = Outbound::sealed(&fd, 4096).unwrap();
        out.copy_from(0, &Inbound::sealed(&fd, 4096).unwrap(), 4000, 97);
    }

    #[test]
    fn a_descriptor_of_another_length_or_without_seals_is_refused() {
        let fd = new_segment("test", 8192).unwrap();
        assert!(matches!(Inbound::sealed(&fd, 4096), Err(MapError::Length { actual: 8192, .. })));
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        assert!(matches!(Inbound::sealed(&open, 8192), Err(MapError::NotSealed)));
    }
}
