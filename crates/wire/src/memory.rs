//! The properties in which memory behind hardware differs from shared memory: of a segment, and of a circuit over it.
//!
//! A port gives its daemon a [`SegmentInfo`] with each segment. The daemon sends it with the descriptor to the program,
//! which maps the segment and fences its stores accordingly. When a circuit is made, each end's daemon decides the
//! circuit's [`Way`] once, from the segments and the number of cables; programs follow it.

use crate::segment::PAGE;
use serde::{Deserialize, Serialize};

/// How the processor treats stores to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Caching {
    /// Ordinary coherent memory: software ports.
    WriteBack,
    /// The processor combines stores, and they leave in any order between two store fences: a BAR that is mapped for bandwidth.
    WriteCombining,
}

/// The kind of a segment's descriptor, and why touching the memory cannot kill a process that maps it (`SIGBUS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemoryKind {
    /// A memfd of ordinary pages that is sealed against shrinking and long enough: any process may have made it.
    Sealed,
    /// A character device (a BAR, a DMA buffer of a kernel driver): the driver guarantees the range, and the daemon that it is
    /// such a device. `st_size` is 0.
    Device,
    /// A sealed memfd with a queue of stores, which a `posted` port makes visible later. It cannot be loaded from.
    Queue,
}

/// A segment as a port describes it, beside its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Where the segment begins in the descriptor's memory, bytes; a multiple of [`PAGE`].
    pub offset: u64,
    /// Length of the segment, bytes.
    pub len: u64,
    /// What the descriptor is.
    pub memory: MemoryKind,
    /// How the processor treats stores to it.
    pub caching: Caching,
    /// The longest time from a store until the far side can load it, ns; 0 if the memory is coherent.
    pub posted_ns: u32,
    /// Whether a cable that goes down loses the stores that have not landed.
    pub lossy: bool,
}

impl SegmentInfo {
    /// A whole sealed memfd of `len` bytes, which is coherent.
    pub const fn sealed(len: u64) -> Self {
        let (memory, caching) = (MemoryKind::Sealed, Caching::WriteBack);
        Self { offset: 0, len, memory, caching, posted_ns: 0, lossy: false }
    }

    /// Whether both sides map the same memory of this machine and see each other's stores at once.
    pub const fn is_coherent(&self) -> bool {
        matches!(self.memory, MemoryKind::Sealed) && self.posted_ns == 0 && !self.lossy
    }

    /// Whether the side that stores to it runs on this machine's processors: always but behind a bridge, whose ends are
    /// taken for two machines (a pair of bridges in one kernel is not).
    pub const fn is_near(&self) -> bool {
        !matches!(self.memory, MemoryKind::Device)
    }

    /// Whether its range can be mapped: page-aligned, not empty, and without overflow.
    pub const fn is_mappable(&self) -> bool {
        self.len > 0 && self.offset.is_multiple_of(PAGE) && self.offset.checked_add(self.len).is_some()
    }
}

/// What shows a program that the far program of a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedBy {
    /// The kernel's FIN on the carrier socket, `posted_ns` after this end saw it.
    Fin,
    /// The `STATE` word of the segment, since the FIN may overtake bytes that pumps still forward.
    Status,
}

/// What a circuit can do for its stream. The daemon of each end decides it when the circuit is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Whether the sender keeps sent bytes in a retention ring until the far end acknowledges them, since they may be lost.
    pub keeps: bool,
    /// Whether the ends piggyback credit: only if the far program itself writes and reads both segments.
    pub rides: bool,
    /// What shows this end that the stream has ended.
    pub ended_by: EndedBy,
    /// Whether the neighbour on the circuit is a pump, which reads and writes the segments itself: then this end wakes
    /// the pump, and a handshake record in the ring may not have reached the far end yet.
    pub relayed: bool,
    /// Whether both programs can map each other's buffers, so that zero copy works.
    pub zero_copy: bool,
    /// Whether the daemon's offload engine can copy for this end.
    pub offload: bool,
    /// Whether `Request::Grow` can move the stream to a longer segment.
    pub grows: bool,
}

/// The two segments of a circuit's end, and what the circuit can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelInfo {
    /// The segment into which the far side stores.
    pub inbound: SegmentInfo,
    /// The segment into which this end stores.
    pub outbound: SegmentInfo,
    /// Longest ring of each direction, bytes.
    pub ring_max: u64,
    /// What the circuit can do.
    pub way: Way,
}

impl Way {
    /// The way over one cable between two programs that both map the same coherent memory.
    pub const DIRECT: Self = Self {
        keeps: false,
        rides: true,
        ended_by: EndedBy::Fin,
        relayed: false,
        zero_copy: true,
        offload: true,
        grows: false,
    };

    /// The way between two such programs over hosts that pass the segments' descriptors along (decision 33). The ends do
    /// not piggyback credit, so that these hosts can count the bytes by the `CREDIT` words.
    pub const SHARED: Self = Self { rides: false, zero_copy: false, offload: false, ..Self::DIRECT };

    /// The way over pumps, for a stream that moves to another circuit when this one is lost.
    pub const RELAYED: Self = Self {
        keeps: true,
        rides: false,
        ended_by: EndedBy::Status,
        relayed: true,
        zero_copy: false,
        offload: false,
        grows: false,
    };

    /// The way of a circuit over `cables` cables with `pumps` pumps; the first cable has these segments. `resumes`: the
    /// stream moves to another circuit when this one is lost. `grows` is `false`; the daemon sets it.
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
        assert!(!way.relayed && !way.zero_copy && !way.offload);
    }

    #[test]
    fn way_over_a_bridge_keeps_and_rides() {
        let (memory, caching) = (MemoryKind::Device, Caching::WriteCombining);
        let inbound = SegmentInfo { memory, posted_ns: 1000, lossy: true, ..SOFT };
        let way = Way::new((1, 0), &inbound, &SegmentInfo { caching, ..inbound }, true);
        assert!(way.keeps && way.rides && !way.zero_copy && !way.offload);
    }

    #[test]
    fn segment_behind_a_bridge_is_written_by_processors_with_numbers_of_their_own() {
        let of = |memory| SegmentInfo { memory, ..SOFT }.is_near();
        assert_eq!([MemoryKind::Sealed, MemoryKind::Queue, MemoryKind::Device].map(of), [true, true, false]);
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
