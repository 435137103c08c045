//! What a port gives out, and what a circuit over it can do: the values in which hardware differs from shared memory.
//!
//! A daemon learns a [`SegmentInfo`] from its port and sends it with the descriptor to the program, which maps and fences by
//! it. From the segments and the number of cables the daemon decides the [`Way`] of a circuit, once; programs do as it says.

use crate::segment::PAGE;
use serde::{Deserialize, Serialize};

/// How the processor treats stores to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Caching {
    /// Ordinary coherent memory: software ports.
    WriteBack,
    /// Stores are gathered and leave in no order between two store fences: a BAR that is mapped for bandwidth.
    WriteCombining,
}

/// What the descriptor of a segment is, and by what whoever maps it knows that touching the memory cannot end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemoryKind {
    /// A memfd of ordinary pages that is sealed against shrinking and long enough: any process may have made it.
    Sealed,
    /// A character device (a BAR, a DMA buffer of a kernel driver): the driver answers for the range, and the daemon for the
    /// device. Has no length of its own.
    Device,
    /// A sealed memfd that holds a queue of stores for a port which lands them later (`kind = "posted"`). For stores only.
    Queue,
}

/// A segment as a port gives it out, beside its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Where it begins behind the descriptor, bytes; a multiple of [`PAGE`].
    pub offset: u64,
    /// Its length, bytes.
    pub len: u64,
    /// What the descriptor is.
    pub memory: MemoryKind,
    /// How the processor treats stores to it.
    pub caching: Caching,
    /// How long a store to it may be under way, ns; 0 where memory is coherent.
    pub posted_ns: u32,
    /// Whether stores that are under way are lost when the cable is.
    pub lossy: bool,
}

impl SegmentInfo {
    /// A whole sealed memfd of `len` bytes, which is coherent.
    pub const fn sealed(len: u64) -> Self {
        let (memory, caching) = (MemoryKind::Sealed, Caching::WriteBack);
        Self { offset: 0, len, memory, caching, posted_ns: 0, lossy: false }
    }

    /// Whether both sides of it are memory of this machine, in which they see each other's stores at once.
    pub const fn is_coherent(&self) -> bool {
        matches!(self.memory, MemoryKind::Sealed) && self.posted_ns == 0 && !self.lossy
    }

    /// Whether it can be mapped at all: on page boundaries, not empty, and not past the end of all addresses.
    pub const fn is_mappable(&self) -> bool {
        self.len > 0 && self.offset.is_multiple_of(PAGE) && self.offset.checked_add(self.len).is_some()
    }
}

/// What tells a program that the far program of a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedBy {
    /// The kernel's FIN on the carrier socket, once what was stored before it has landed.
    Fin,
    /// The status word of the segment: the FIN may overtake what hosts between still carry.
    Status,
}

/// What a circuit can do for its stream. The daemon of each end decides it when the circuit is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Whether what is sent may be lost, and is kept until the far end has it (`ACKED`).
    pub keeps: bool,
    /// Whether credit for one direction rides on the records of the other: both are written by the same far program.
    pub rides: bool,
    /// What ends the stream.
    pub ended_by: EndedBy,
    /// Whether a host between pumps, that is, writes and reads the segments itself: wakers and handshakes are for its pump.
    pub relayed: bool,
    /// Whether the waker of a far sleeper can be handed over: else waking it goes by the daemons, and nobody asks for one.
    pub wakers: bool,
    /// Whether both programs can map each other's buffers (RDMA read and write by SDP's announcements).
    pub zero_copy: bool,
    /// Whether the daemon's offload engine can copy for it.
    pub offload: bool,
    /// Whether the daemon may have a longer ring for the stream than its segment has room for (`Request::Grow`).
    pub grows: bool,
}

/// The two segments of a circuit's end, and what the circuit can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelInfo {
    /// What the far side stores into.
    pub inbound: SegmentInfo,
    /// Where this end stores.
    pub outbound: SegmentInfo,
    /// Bytes of each ring.
    pub ring_max: u64,
    /// What the circuit can do.
    pub way: Way,
}

impl Way {
    /// The way over one cable between two programs whose segments are coherent memory that both of them map.
    pub const DIRECT: Self = Self {
        keeps: false,
        rides: true,
        ended_by: EndedBy::Fin,
        relayed: false,
        wakers: true,
        zero_copy: true,
        offload: true,
        grows: false,
    };

    /// The way between two such programs over hosts between that hand their segments on (decision 33). Credit does not ride, so
    /// that those hosts can count by the credit words what goes by.
    pub const SHARED: Self = Self { rides: false, zero_copy: false, offload: false, ..Self::DIRECT };

    /// The way over hosts between that pump, of a stream that goes on over other circuits when one is lost.
    pub const RELAYED: Self = Self {
        keeps: true,
        rides: false,
        ended_by: EndedBy::Status,
        relayed: true,
        wakers: true,
        zero_copy: false,
        offload: false,
        grows: false,
    };

    /// The way of a circuit over `cables` cables, whose first has these segments, and past so many hosts that pump; `resumes`:
    /// streams go on over other circuits when one is lost. That it grows is for the daemon to say.
    pub const fn new(
        (cables, pumps): (u8, u8),
        inbound: &SegmentInfo,
        outbound: &SegmentInfo,
        resumes: bool,
    ) -> Self {
        let relayed = pumps > 0;
        let one_cable = cables <= 1 && !relayed;
        let coherent = inbound.is_coherent() && outbound.is_coherent();
        Self {
            keeps: resumes && (relayed || inbound.lossy || outbound.lossy),
            rides: one_cable,
            ended_by: if relayed { EndedBy::Status } else { EndedBy::Fin },
            relayed,
            wakers: coherent,
            zero_copy: one_cable && coherent,
            offload: one_cable && coherent,
            grows: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFT: SegmentInfo = SegmentInfo::sealed(8192);

    #[test]
    fn way_over_one_soft_cable_is_direct() {
        assert_eq!(Way::new((1, 0), &SOFT, &SOFT, true), Way::DIRECT);
    }

    #[test]
    fn way_past_a_pump_keeps_what_is_sent_if_streams_resume() {
        assert_eq!(Way::new((2, 1), &SOFT, &SOFT, true), Way::RELAYED);
        assert!(!Way::new((2, 1), &SOFT, &SOFT, false).keeps);
    }

    #[test]
    fn way_past_hosts_that_hand_segments_on_keeps_nothing() {
        assert_eq!(Way::new((3, 0), &SOFT, &SOFT, true), Way::SHARED);
    }

    #[test]
    fn way_over_a_posted_cable_keeps_but_rides() {
        let posted = SegmentInfo { memory: MemoryKind::Queue, posted_ns: 1000, lossy: true, ..SOFT };
        let way = Way::new((1, 0), &SOFT, &posted, true);
        assert!(way.keeps && way.rides && way.ended_by == EndedBy::Fin);
        assert!(!way.relayed && !way.wakers && !way.zero_copy && !way.offload);
    }

    #[test]
    fn segment_that_wraps_or_is_not_aligned_is_not_mappable() {
        assert!(SOFT.is_mappable());
        for bad in [
            SegmentInfo { offset: 1, ..SOFT },
            SegmentInfo { len: 0, ..SOFT },
            SegmentInfo { offset: u64::MAX - 4095, ..SOFT },
        ] {
            assert!(!bad.is_mappable(), "{bad:?}");
        }
    }
}
