//! What is to happen, in the order of its times; of one time in the order in which it was planned.

use super::FlowId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A flow has bytes to send.
    Offer { flow: FlowId },
    /// Bytes are there at the end of a cable of the flow's path, the first of them `offset` behind the flow's beginning.
    Landed { flow: FlowId, cable: u16, len: u32, offset: u64 },
    /// There is room for so many more bytes at the end of a cable of the flow's path.
    Credit { flow: FlowId, cable: u16, len: u32 },
    /// A piece has been handed over, and is followed by the next one without a gap.
    WireFree { direction: u32 },
    /// A pump has handed over a piece.
    PumpFree { host: u16 },
}

impl Event {
    /// The flow that it is about.
    pub(super) fn flow(self) -> Option<FlowId> {
        match self {
            Self::Offer { flow } | Self::Landed { flow, .. } | Self::Credit { flow, .. } => Some(flow),
            Self::WireFree { .. } | Self::PumpFree { .. } => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    at: u64,
    number: u64,
    event: Event,
}

impl Ord for Entry {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

/// All that is to happen.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Entry>,
    planned: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Entry { at, number: self.planned, event });
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}
