//! Ends of circuits: closed, counted, and let go.

use super::{Host, Provider};
use crate::end_resources::Segments;
use crosslane_fabric::circuit::{End, State};
use crosslane_wire::{ChannelId, CircuitId, Epoch, PortId};

impl Host {
    /// An end is closed here, by its program or because there is none any more; with it the end of the second circuit, if the stream is
    /// striped.
    pub fn close_end(&mut self, circuit: CircuitId, abort: bool) {
        if let Some(twin) = self.policy.circuits.twin(circuit) {
            self.close_end(twin, abort);
        }
        let abort = abort || self.is_unproven(circuit);
        self.settle_accounts(circuit, abort);
        let whole = self.leave_segments(circuit);
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.close();
        }
        self.drop_holders(circuit);
        self.policy.circuits.close(circuit, abort || !whole);
        self.publish_announced();
    }

    /// Adds what an end has moved to the totals, before its state is let go.
    fn settle_accounts(&mut self, circuit: CircuitId, abort: bool) {
        self.copy_early(circuit);
        let Some(resources) = self.ends.get(circuit) else { return };
        let open = self.policy.circuits.get(circuit).is_some_and(|end| end.state == State::Open);
        if !open || resources.holders.is_empty() {
            return;
        }
        let moved = resources.traffic();
        // A program keeps these counts itself, and may write anything there.
        let closed = &mut self.counters;
        closed.closed_tx_bytes = closed.closed_tx_bytes.wrapping_add(moved.tx_bytes);
        closed.closed_rx_bytes = closed.closed_rx_bytes.wrapping_add(moved.rx_bytes);
        closed.closed_wakes = closed.closed_wakes.wrapping_add(moved.wakes);
        match (self.is_twin(circuit), abort) {
            (true, _) => {}
            (false, true) => self.counters.streams_aborted += 1,
            (false, false) => self.counters.streams_closed += 1,
        }
        self.provider().settle_port(circuit);
    }

    /// An end is gone.
    pub(crate) fn free(&mut self, circuit: CircuitId) {
        self.drop_holders(circuit);
        if let Some(engines) = &mut self.offload {
            engines.free(circuit);
        }
        self.ends.remove(circuit);
        self.give_room_back();
    }

    /// A channel is gone: its memory may be given to another.
    pub(crate) fn free_memory(&mut self, channel: ChannelId, port: PortId, epoch: Epoch) {
        if self.cables.free_channel(channel, port, epoch) {
            self.grow_next(port);
        }
    }
}

impl Provider<'_> {
    /// The stream goes on by a circuit with these segments, which leaves by `port`.
    pub(crate) fn push_segments(
        &mut self,
        (circuit, end): (CircuitId, &End),
        port: PortId,
        segments: Segments,
    ) {
        self.copy_early((circuit, end), Some(port));
        self.settle_port(circuit);
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.segments.push_back(segments);
        }
    }

    /// Adds what an end has moved by its newest circuit to the totals of that one's port. It was copied for those who count
    /// already.
    pub(crate) fn settle_port(&mut self, circuit: CircuitId) {
        let Some(resources) = self.ends.get_mut(circuit) else { return };
        if let (Some(port), moved) = resources.settle() {
            self.cables.count_past(port, moved);
        }
    }
}
