//! A segment as it is passed between processes: a descriptor, and the port's description of the memory behind it.

use crate::mapping::{MapError, Mapping, inspect_memory};
use crosslane_wire::{MemoryKind, SegmentInfo};
use rustix::fs::SealFlags;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of the memfd of every queue of stores ([`crate::queue`]).
pub(crate) const QUEUE_LEN: u64 = 4096 + (256 << 10);

/// The file system of the descriptors that the kernel module carves. Nobody else can make a file of it, and none of its files is truncated.
pub const DEVICE_MAGIC: u64 = 0x584c_5347;

/// Memory of a segment that this process has not mapped yet.
#[derive(Debug)]
pub struct Segment {
    /// Descriptor of the memory, and perhaps of more of it: see [`SegmentInfo::offset`].
    pub fd: OwnedFd,
    /// The port's description of it.
    pub info: SegmentInfo,
}

impl Segment {
    /// A whole sealed memfd of `len` bytes. It is checked when it is mapped.
    pub fn sealed(fd: OwnedFd, len: u64) -> Self {
        Self { fd, info: SegmentInfo::sealed(len) }
    }

    /// Maps the memory, after a check that the descriptor is of the kind that the port says.
    pub(crate) fn map(&self) -> Result<Mapping, MapError> {
        self.check()?;
        Mapping::at_offset(&self.fd, self.info.offset, self.info.len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Checks that the descriptor is of the kind that the port says: then touching the memory cannot end the process.
    ///
    /// # Errors
    /// [`MapError::NotThatKind`], or what is wrong with a memfd ([`inspect_memory`]).
    pub(crate) fn check(&self) -> Result<(), MapError> {
        let info = &self.info;
        if !info.is_mappable() {
            return Err(MapError::NotThatKind(info.memory));
        }
        if info.memory == MemoryKind::Device {
            let kind = rustix::fs::fstatfs(&self.fd)?.f_type;
            let fits = u64::try_from(kind).is_ok_and(|kind| kind == DEVICE_MAGIC);
            return if fits { Ok(()) } else { Err(MapError::NotThatKind(MemoryKind::Device)) };
        }
        let (_, actual) = inspect_memory(&self.fd, SealFlags::SHRINK)?;
        // All queues have the same length, whatever the length of the segment behind them. A memfd that contains only this segment is
        // as long as the segment; any other reaches at least to the segment's end.
        let is_queue = info.memory == MemoryKind::Queue;
        let expected = if is_queue { QUEUE_LEN } else { info.offset + info.len };
        let fits = if is_queue || info.offset == 0 { actual == expected } else { actual >= expected };
        if fits { Ok(()) } else { Err(MapError::Length { expected, actual }) }
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::new_segment;
    use crate::{Inbound, Load, Outbound, Store};

    const PAGE: u64 = 4096;

    fn of(len: u64, offset: u64, part: u64) -> Segment {
        let info = SegmentInfo { offset, ..SegmentInfo::sealed(part) };
        Segment { fd: new_segment("test", len).unwrap(), info }
    }

    #[test]
    fn segment_is_mapped_where_it_begins() {
        let part = of(4 * PAGE, PAGE, 2 * PAGE);
        let whole = Inbound::sealed(&part.fd, 4 * PAGE).unwrap();
        Outbound::map(&part).unwrap().store_u64(8, 7);
        assert_eq!((whole.load_u64(4096 + 8), whole.load_u64(8)), (7, 0));
    }

    #[test]
    fn segment_beyond_its_memory_or_of_another_kind_is_refused() {
        for bad in [of(PAGE, PAGE, PAGE), of(4 * PAGE, 0, PAGE), of(PAGE, 1, PAGE), of(PAGE, 0, 0)] {
            assert!(Outbound::map(&bad).is_err(), "{bad:?}");
        }
        let mut wrong = of(PAGE, 0, PAGE);
        for kind in [MemoryKind::Device, MemoryKind::Queue] {
            wrong.info.memory = kind;
            assert!(Inbound::map(&wrong).is_err());
        }
    }

    #[test]
    fn segment_of_another_device_than_the_modules_is_refused() {
        let fd = rustix::fs::open("/dev/zero", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        let info = SegmentInfo { memory: MemoryKind::Device, ..SegmentInfo::sealed(PAGE) };
        assert!(Outbound::map(&Segment { fd, info }).is_err());
    }
}
