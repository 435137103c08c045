//! A buffer of another program, mapped into this process.

use crate::copy::Strategy;
use crate::guarded::{self, Fault};
use crate::mem::{Mapping, check_memory};
use crate::shared_bytes::BadPlace;
use crate::{Inbound, MapError, Outbound, copy};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crosslane_wire::Reach;
use crosslane_wire::buffer::{ALIVE, landing_at, len_ok, memory_len};
use rustix::fs::SealFlags;
use rustix::mm::ProtFlags;
use std::os::fd::AsFd;
use thiserror::Error;

/// Memory of a far program, mapped for loads or for stores. Its bytes may change at any time, but it cannot shrink; every
/// place that a message names in it is checked before use.
#[derive(Debug)]
pub struct FarBuffer {
    mapping: Mapping,
    len: u64,
    reach: Reach,
}

/// Why the copy stopped, perhaps after a part of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CopyError {
    /// The place lies outside the far program's buffer.
    #[error(transparent)]
    Place(#[from] BadPlace),
    /// A page of this program's memory is not mapped.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Checks that `fd` is a buffer of `len` bytes with this `reach`. Refuses memory of another length or that can be
/// resized, and, for [`Reach::Load`], memory that processes other than its owner can write.
pub fn check_buffer(fd: impl AsFd, len: u64, reach: Reach) -> Result<(), MapError> {
    if !len_ok(len) {
        return Err(MapError::Length { expected: len, actual: 0 });
    }
    let seals = check_memory(fd, memory_len(len))?;
    let sealed = seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
    if sealed == (reach == Reach::Load) { Ok(()) } else { Err(MapError::NotSealed) }
}

impl FarBuffer {
    /// Maps a buffer of exactly `len` bytes.
    pub fn map(fd: impl AsFd, len: u64, reach: Reach) -> Result<Self, MapError> {
        check_buffer(&fd, len, reach)?;
        let protection = match reach {
            Reach::Load => ProtFlags::READ,
            Reach::Store => ProtFlags::READ | ProtFlags::WRITE,
        };
        Ok(Self { mapping: Mapping::with(fd, memory_len(len), protection)?, len, reach })
    }

    /// Length of the buffer, bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Always `false`: a buffer has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the buffer is mapped for loads or for stores.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Whether the owner has freed the buffer.
    pub fn is_gone(&self) -> bool {
        let at = usize::try_from(self.len).unwrap_or(0);
        self.mapping.word32(at).load(Acquire) != ALIVE
    }

    /// Copies from `offset` into `target`, memory of the program's that may be unmapped. The far program may change the
    /// bytes during the copy; only the copy is used.
    pub fn copy_out(&self, offset: u64, target: &mut [u8]) -> Result<(), CopyError> {
        let at = self.place(offset, target.len())?;
        // SAFETY: in range; `target` is the program's, which does not know the address of this mapping.
        unsafe { guarded::copy(target.as_mut_ptr(), at, target.len()) }.map_err(CopyError::from)
    }

    /// Copies `source`, memory of the program's that may be unmapped, to `offset`, in no particular order. Fails if the
    /// buffer is mapped for loads.
    pub fn copy_in(&self, offset: u64, source: &[u8]) -> Result<(), CopyError> {
        if self.reach != Reach::Store {
            return Err(self.outside(offset, source.len()).into());
        }
        let at = self.place(offset, source.len())?;
        // SAFETY: in range, and mapped for stores; `source` is the program's, which does not know the address of this mapping.
        unsafe { guarded::copy(at, source.as_ptr(), source.len()) }.map_err(CopyError::from)
    }

    /// Stores the completion word of line `number` behind the buffer: `word`, with its `seal`, after the bytes that were
    /// written into the buffer.
    pub fn land(&self, number: u32, word: u64, seal: u64) -> Result<(), BadPlace> {
        let at = landing_at(number).and_then(|at| usize::try_from(self.len + at).ok());
        let at = at.filter(|_| self.reach == Reach::Store).ok_or(self.outside(self.len, 0))?;
        self.mapping.word64(at + 8).store(seal, Relaxed);
        self.mapping.word64(at).store(word, Release);
        Ok(())
    }

    /// Copies `len` bytes from `offset` to byte `at` of a segment, in no particular order. Panics if the range is outside
    /// the buffer, as segments do: the caller has checked it.
    pub fn send(&self, offset: usize, to: &Outbound, at: usize, len: usize) {
        let source = self.mapping.at(offset, len);
        // SAFETY: in range, and in another mapping than the segment's; the two cannot overlap, even if both map the same memory.
        unsafe { to.copy_shared(at, source, len) }
    }

    /// Copies `len` bytes from byte `at` of a segment to `offset`, as [`Self::send`] does. Panics also if the buffer is mapped for loads.
    pub fn receive(&self, offset: usize, from: &Inbound, at: usize, len: usize) {
        assert_eq!(self.reach, Reach::Store, "a buffer for loads");
        let (source, target) = (from.at(at, len), self.mapping.at(offset, len));
        // SAFETY: as above, and mapped for stores.
        unsafe { copy::copy(Strategy::Cached, target, source, len) }
    }

    /// Whether `len` bytes at `offset` lie inside the buffer.
    pub fn has(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    fn place(&self, offset: u64, len: usize) -> Result<*mut u8, BadPlace> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len);
        match (end, usize::try_from(offset)) {
            (Some(_), Ok(offset)) => Ok(self.mapping.at(offset, len)),
            _ => Err(self.outside(offset, len)),
        }
    }

    fn outside(&self, offset: u64, len: usize) -> BadPlace {
        BadPlace::Outside { offset, len: len as u64, region: self.len }
    }
}
