//! Mappings of descriptors, and the check of which descriptors are mapped at all.

use core::sync::atomic::{AtomicU32, AtomicU64};
use crosslane_wire::MemoryKind;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use thiserror::Error;

/// Why a descriptor was not mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// The descriptor does not have the expected length: touching its end would kill the program.
    #[error("segment is {actual} bytes long, {expected} were promised")]
    Length {
        /// The expected length, bytes.
        expected: u64,
        /// The length by `fstat`, bytes.
        actual: u64,
    },
    /// The descriptor is not of the kind that the port says, or memory of that kind cannot be used for this.
    #[error("segment is no memory of kind {0:?} that can be mapped so")]
    NotThatKind(MemoryKind),
    /// The memory could still be shrunk.
    #[error("segment is not sealed against shrinking")]
    NotSealed,
    /// The memory is of huge pages, which may run out when one is touched.
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

    /// A mapping for loads, stores or both; any other access would kill the program.
    pub(crate) fn with(fd: impl AsFd, len: u64, protection: ProtFlags) -> Result<Self, MapError> {
        let (_, actual) = inspect_memory(&fd, SealFlags::SHRINK)?;
        if actual != len || len == 0 {
            return Err(MapError::Length { expected: len, actual });
        }
        Self::at_offset(fd, 0, len, protection)
    }

    pub(crate) fn at_offset(
        fd: impl AsFd,
        offset: u64,
        len: u64,
        protection: ProtFlags,
    ) -> Result<Self, MapError> {
        let len = usize::try_from(len).map_err(|_| rustix::io::Errno::OVERFLOW)?;
        // SAFETY: a fresh shared mapping at an address that the kernel chooses aliases nothing of this process.
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

    /// An empty mapping: only empty ranges at its start lie inside.
    pub(crate) const fn nothing() -> Self {
        Self { base: NonNull::dangling(), len: 0 }
    }

    /// Address of `len` bytes at `offset`; `None` if they are not inside.
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
        // SAFETY: this value's own mapping, to which no reference exists any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// `f_type` of the kernel's in-memory file system, `TMPFS_MAGIC`.
const IN_MEMORY: rustix::fs::FsWord = 0x0102_1994;

/// The check of every descriptor that is mapped as memory: it must be a memfd of ordinary pages with the `required`
/// seals. Returns all its seals and its length in bytes.
///
/// The seals are read first: reading the length of any other file than a memfd may block. Huge pages (`MFD_HUGETLB`) are refused: they
/// may run out when one is touched, which kills the process, and the seals and the guard page behind a buffer count in ordinary pages.
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

/// Accepts only memory of exactly `len` bytes that can never be resized ([`inspect_memory`]); returns its seals.
pub fn check_memory(fd: impl AsFd, len: u64) -> Result<SealFlags, MapError> {
    let (seals, actual) = inspect_memory(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    if actual == len { Ok(seals) } else { Err(MapError::Length { expected: len, actual }) }
}

/// Makes zeroed memory of `len` bytes for a segment, sealed against resizing. No other process has ever mapped it, so the
/// writer of a freed segment never sees a later one.
pub fn new_segment(name: &str, len: u64) -> Result<OwnedFd, MapError> {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, len)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}
