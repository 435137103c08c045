//! Streams that go on over another circuit: decision 11. What is tried is decided in `crosslane_policy::resume`; here is what it
//! means for memory and programs.

use crate::host::{Host, Provider};
use crate::quota::{Charge, Purpose};
use crate::session::SessionId;
use core::sync::atomic::{Ordering, fence};
use crosslane_fabric::circuit::{End, State};
use crosslane_policy::Asked;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply};
use crosslane_wire::{CircuitId, PortId, SegmentRange};
use std::os::fd::AsFd;

impl Host {
    /// The end's circuit is lost: its programs stop at what they have.
    pub(crate) fn moving(&mut self, circuit: CircuitId) {
        self.counters.moves += 1;
        self.show_life(circuit);
        let now = self.elapsed();
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.lost_at.get_or_insert(now);
        }
        let uid = self.ends.uid(circuit);
        if let Some(end) = self.policy.circuits.get(circuit) {
            tracing::info!(uid, %circuit, tuple = %end.tuple, "circuit is lost; the stream looks for another");
        }
    }

    /// `Resume`: the segments after those that the program has.
    pub(crate) fn next_segments(
        &mut self,
        session: SessionId,
        circuit: CircuitId,
        token: u64,
        generation: u32,
    ) {
        let reply = self.segments_after(session, circuit, token, generation);
        if reply.is_none()
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.reply(&Reply::Plain { why: Plain::System }, &[]);
        }
    }

    fn segments_after(
        &mut self,
        session: SessionId,
        circuit: CircuitId,
        token: u64,
        generation: u32,
    ) -> Option<()> {
        let resources = self.ends.get_mut(circuit).filter(|resources| resources.token == token)?;
        resources.trim();
        let next = resources.after(generation)?;
        let (outbound, retention) = (next.outbound.as_ref()?, resources.retention.as_ref());
        let reply = Reply::Resumed {
            generation: next.generation,
            newest: next.generation == resources.published,
            limit: next.before,
            arrived: next.arrived,
            rx_key: next.rx_key,
            tx_key: next.tx_key,
            channel: Box::new(next.channel_info(outbound)),
            retained: retention.is_some(),
        };
        let fds = next.lend(outbound, retention)?;
        self.sessions.get_mut(session)?.reply(&reply, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        Some(())
    }

    /// Programs are told of the newest circuit, and woken.
    fn publish(&mut self, circuit: CircuitId) {
        let now = self.elapsed();
        let (Some(end), Some(resources)) = (self.policy.circuits.get(circuit), self.ends.get_mut(circuit))
        else {
            return;
        };
        resources.published = end.generation;
        resources.outgrown = false;
        if let Some(lost_at) = resources.lost_at.take() {
            self.counters.moved(now.saturating_sub(lost_at));
        }
        let uid = resources.uid;
        tracing::info!(uid, %circuit, tuple = %end.tuple, hops = end.hops, generation = end.generation, "stream goes on");
        self.wake_holders(circuit);
    }

    /// The end goes on over its newest circuit: programs get its segments, or what they left behind is sent.
    pub(crate) fn goes_on(&mut self, circuit: CircuitId, arrived: u64) {
        let generation = self.policy.circuits.get(circuit).map(|end| end.generation);
        let newest = self.ends.get_mut(circuit).and_then(|resources| resources.segments.back_mut());
        if let Some(newest) = newest.filter(|newest| Some(newest.generation) == generation) {
            newest.arrived = arrived;
        }
        self.publish(circuit);
        self.finish(circuit, arrived);
    }

    /// The end is dead: its programs may have all segments there are, and read what has arrived in them.
    pub(crate) fn died(&mut self, circuit: CircuitId) {
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.publish_all();
        }
        self.wake_holders(circuit);
    }

    /// Units of the stream that have arrived here; `None`: nobody reads here any more.
    pub(crate) fn count_arrived(&mut self, circuit: CircuitId) -> Option<u64> {
        let end = self.policy.circuits.get(circuit)?;
        if matches!(end.state, State::Closing(_)) {
            return None;
        }
        self.ends.get_mut(circuit)?.count_arrived()
    }
}

impl Provider<'_> {
    /// Programs that hold the end stop at what they have.
    pub(crate) fn stop(&mut self, (circuit, end): (CircuitId, &End)) {
        self.show_life(circuit, end);
        // A program looks at a record first and at its status word then; we store that word first and look at the ring then.
        fence(Ordering::SeqCst);
    }

    /// Segments for the circuit by which a stream goes on, of which `arrived` units have: our memory, and its key.
    pub(crate) fn add_segments(
        &mut self,
        (circuit, end): (CircuitId, &End),
        port: PortId,
        asked: &Asked,
        arrived: u64,
    ) -> Result<(SegmentRange, Charge, u64), Refusal> {
        let now = self.now;
        let resources = self.ends.get_mut(circuit).ok_or(Refusal::Unknown)?;
        if !resources.may_move() {
            return Err(Refusal::NoMemory);
        }
        // A stream that is taken to a shorter way has lost none, and stands still all the same.
        resources.lost_at.get_or_insert(now);
        let payer = resources.payer;
        let (segments, (range, window)) = self.answering_segments(port, asked, arrived, payer)?;
        let key = segments.rx_key;
        let resources = self.ends.get_mut(circuit).ok_or(Refusal::Unknown)?;
        if segments.way.keeps
            && resources.keep_sent((self.accounts.ledger(), self.shelves), Purpose::Move).is_err()
        {
            self.cables.free_inbound(port, range);
            return Err(Refusal::NoMemory);
        }
        self.push_segments((circuit, end), port, segments);
        Ok((range, window, key))
    }
}
