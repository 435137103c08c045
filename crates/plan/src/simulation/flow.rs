//! Flows of bytes, and how far each has come over each cable of its path.

/// A flow of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

/// How far a flow has come over one cable of its path: bytes since its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hop {
    /// Given to the wire.
    pub(super) sent: u64,
    /// Seen at the end of the cable.
    pub(super) landed: u64,
    /// Of which the writer knows that their room is free again.
    pub(super) credited: u64,
    /// Whether it waits for a turn of the wire, or of the pump that writes into the cable.
    pub(super) queued: bool,
}

/// Bytes in their order from one host to another.
#[derive(Debug)]
pub(super) struct Flow {
    /// The directions.
    pub(super) path: Vec<u32>,
    pub(super) hops: Vec<Hop>,
    /// Bytes that the program sends in all.
    bytes: u64,
    /// Since when the program has had bytes and room.
    pub(super) ordered: u64,
    /// Events that are to happen.
    expected: u32,
}

impl Flow {
    pub(super) fn new(path: Vec<usize>, bytes: u64) -> Self {
        let hops = vec![Hop::default(); path.len()];
        let path = path.into_iter().map(super::narrow).collect();
        Self { path, hops, bytes, ordered: 0, expected: 0 }
    }

    pub(super) fn more(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Bytes at the far end.
    pub(super) fn arrived(&self) -> u64 {
        self.hops.last().map_or(0, |hop| hop.landed)
    }

    /// Bytes of the next piece that can go over a cable of the path: as many as there are, `piece` at most, if the ring of `ring` bytes
    /// behind it has room for all of them.
    pub(super) fn next_piece(&self, cable: usize, piece: u64, ring: u64) -> Option<u64> {
        let there = if cable == 0 { self.bytes } else { self.hops[cable - 1].landed };
        let hop = &self.hops[cable];
        let len = (there - hop.sent).min(piece.min(ring));
        (len > 0 && hop.sent - hop.credited + len <= ring).then_some(len)
    }

    fn is_done(&self) -> bool {
        self.expected == 0 && self.arrived() == self.bytes
    }
}

/// Flows by their ids, which are given again when a flow has ended.
#[derive(Debug, Default)]
pub(super) struct Flows {
    all: Vec<Option<Flow>>,
    free: Vec<u32>,
}

impl Flows {
    pub(super) fn add(&mut self, flow: Flow) -> FlowId {
        if let Some(place) = self.free.pop() {
            self.all[place as usize] = Some(flow);
            return FlowId(place);
        }
        self.all.push(Some(flow));
        FlowId(super::narrow(self.all.len() - 1))
    }

    pub(super) fn get(&self, id: FlowId) -> Option<&Flow> {
        self.all.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.all.get_mut(id.0 as usize)?.as_mut()
    }

    /// An event of this flow is to happen.
    pub(super) fn expect(&mut self, id: FlowId) {
        if let Some(flow) = self.get_mut(id) {
            flow.expected += 1;
        }
    }

    /// It has happened; forgets the flow if that was all.
    pub(super) fn happened(&mut self, id: FlowId) {
        let Some(flow) = self.get_mut(id) else { return };
        flow.expected -= 1;
        if flow.is_done() {
            self.all[id.0 as usize] = None;
            self.free.push(id.0);
        }
    }
}
