//! Circuits over cables that programs here ask for: their memory, and what their programs hear. Which paths are tried is
//! decided in `crosslane_policy::dial`.

use crate::end_resources::Segments;
use crate::host::{Attempt, Host, Provider, not_there};
use crate::proof::Cookie;
use crate::quota::{self, Payer};
use crate::random;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::circuit::{End, Path};
use crosslane_policy::{Dial, Purpose, Ring, Size};
use crosslane_shm::Segment;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{CircuitId, PortId, SegmentInfo, SegmentRange, Tuple, Way};

impl Host {
    /// Asks a neighbour; the answer comes later. `hurried`: the program must not wait.
    pub(crate) fn connect_there(
        &mut self,
        session: SessionId,
        tuple: Tuple,
        socket: Cookie,
        hurried: bool,
    ) -> Result<(), Plain> {
        let host = self.config.addresses.host_of(tuple.server.ip()).ok_or(Plain::NotFabric)?;
        let payer = self.payer_of(session).ok_or(Plain::System)?;
        let now = self.now;
        let charges = self.charge_end(payer, false).map_err(Plain::Refused)?;
        let (policy, mut provider) = self.split();
        let dial = Dial { tuple, host, hurried };
        let circuit = policy.dial(dial, (payer, (payer, charges)), now, &mut provider)?;
        self.own(session, circuit, socket);
        self.sessions.wait_for(session, Waiting::Circuit(circuit));
        self.run_circuits();
        Ok(())
    }

    /// A neighbour made the circuit that a session asked for: the program gets it, if it is still there.
    pub(crate) fn granted(&mut self, circuit: CircuitId) {
        let Some(session) = self.ends.opener(circuit) else { return self.close_end(circuit, true) };
        self.sessions.answered(session);
        if let Some(why) = self.grant(session, circuit, false) {
            self.refuse(session, why);
        }
    }

    /// The circuit that a neighbour made for a session cannot be used.
    pub(crate) fn unusable(&mut self, circuit: CircuitId, why: Plain) {
        let session = self.ends.opener(circuit);
        self.close_end(circuit, true);
        if let Some(session) = session {
            self.sessions.answered(session);
            self.refuse(session, why);
        }
    }

    /// No neighbour makes the circuit that a session asked for.
    pub(crate) fn answer_dial(&mut self, circuit: CircuitId, why: Refusal) {
        let Some(resources) = self.ends.get(circuit) else { return };
        if why == Refusal::NoMemory {
            tracing::warn!(
                uid = resources.uid,
                "a neighbour has no window memory left; the connection uses TCP"
            );
        }
        let holders: Vec<SessionId> = resources.holders.iter().map(|(session, _)| *session).collect();
        self.drop_holders(circuit);
        for session in holders {
            self.sessions.answered(session);
            self.refuse(session, Plain::Refused(why));
        }
    }
}

impl Provider<'_> {
    /// Memory for the first channel of a path.
    pub(crate) fn make_attempt(
        &mut self,
        payer: Payer,
        path: Path,
        purpose: Purpose,
        size: Size,
    ) -> Result<(Attempt, Ring), Plain> {
        let purpose = quota::Purpose::of_end(purpose);
        let ring_of = |len: u64| len.saturating_sub(segment_len(0));
        let ring_max = match size {
            Size::Ample => self.new_ring(path),
            Size::Short => self.short_ring(path),
            Size::Moved { refused } => self.moved_ring(path, refused.map(ring_of)),
        };
        let attempt = self.longest_attempt(path, (payer, purpose), ring_max)?;
        let ring = Ring { segment: attempt.carved.range, key: attempt.key };
        Ok((attempt, ring))
    }

    /// The same, with a ring of `ring_max` bytes.
    pub(crate) fn attempt_ring(
        &mut self,
        path: Path,
        payer: Payer,
        purpose: quota::Purpose,
        ring_max: u64,
    ) -> Result<Attempt, Plain> {
        let len = segment_len(ring_max);
        let charges = self.accounts.charge_segments(payer, len, purpose, self.now).map_err(Plain::Refused)?;
        let carved = self.carve(path.port, len, payer, purpose)?;
        Ok(Attempt { port: path.port, carved, charges, ring_max, key: random::u64() })
    }

    /// What a circuit can do over so many cables, the first of which is at `port` and has these segments, and past so many pumps.
    pub(crate) fn way(
        &self,
        port: PortId,
        distance: (u8, u8),
        inbound: &SegmentInfo,
        outbound: &SegmentInfo,
    ) -> Way {
        let grows = self.resumes() && inbound.len < segment_len(self.long_ring(port));
        Way { grows, ..Way::new(distance, inbound, outbound, self.resumes()) }
    }

    /// Completes the segments of the circuit that was asked for with what the neighbour said. Units that had arrived here
    /// `before`, and `arrived` at the far end.
    pub(crate) fn complete_attempt(
        &mut self,
        (circuit, end): (CircuitId, &End),
        port: PortId,
        ring: Ring,
        (before, arrived): (u64, u64),
    ) -> Result<(), Plain> {
        let attempt = self.ends.get_mut(circuit).and_then(|resources| resources.attempt.take());
        let segments = attempt.ok_or(Plain::System)?;
        let outbound = self.outbound_of(port, ring.segment)?;
        let way = self.way(port, (end.hops, end.pumps), &segments.inbound.info, &outbound.info);
        let resources = self.ends.get_mut(circuit).ok_or(Plain::System)?;
        if way.keeps {
            let moves = segments.generation > 0;
            let purpose = if moves { quota::Purpose::Move } else { quota::Purpose::New };
            resources.keep_sent((self.accounts.ledger(), self.shelves), purpose)?;
        }
        let (outbound, far_range) = (Some(self.shelves.keep_segment(outbound)), Some(ring.segment));
        let segments = Segments { way, outbound, far_range, tx_key: ring.key, before, arrived, ..segments };
        self.push_segments((circuit, end), port, segments);
        Ok(())
    }

    /// Carves the segment that a neighbour allotted for a circuit that it was asked for.
    pub(crate) fn outbound_of(&mut self, port: PortId, segment: SegmentRange) -> Result<Segment, Plain> {
        let cable = self.cables.get_mut(port).ok_or(Plain::System)?;
        cable.carve_outbound(segment).map_err(|error| {
            tracing::warn!(port = port.0, %error, "neighbour's segment is not there");
            Plain::Refused(not_there(&error))
        })
    }
}
