//! Circuits over cables: what is asked of a neighbour, and what comes of it. What a neighbour asks is in [`crate::answer`].
//!
//! ```text
//!   opener                                   answerer
//!   allots a segment, Open ------------------> is there a listener? allots a segment, keeps a pending end
//!   carves the far segment  <---------- Opened
//!   Reply::Circuit to the program            ... the program accepts the connection: Reply::Circuit
//! ```
//! Hosts between pass both on ([`crate::transit`]). Streams that go on over another circuit: [`crate::resume`].

use crate::end_resources::{EndResources, Segments};
use crate::host::{Carved, Host};
use crate::proof::Cookie;
use crate::quota::{Charge, Payer, Purpose};
use crate::random;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::channel;
use crosslane_fabric::circuit::Path;
use crosslane_port::PortError;
use crosslane_shm::Segment;
use crosslane_wire::control::{Control, Refusal, Resumption};
use crosslane_wire::local::Plain;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, Tuple, Way};
use std::time::Duration;

/// How long a neighbour may take to answer `Open` for a program that waits for its connection. On a busy machine its
/// daemon may have to wait for a processor; and the program wins nothing by going on earlier, since the connection's SYN
/// takes the same way. But its other threads cannot ask us meanwhile.
pub const DIAL_TIMEOUT: Duration = Duration::from_millis(500);
/// The same for a program that must not wait (`O_NONBLOCK`). A daemon that runs answers in 0.1 ms.
const PROMPT_ANSWER: Duration = Duration::from_millis(100);

/// A path that is about to be asked for, with the memory of its first channel.
pub(crate) struct Attempt {
    pub(crate) path: Path,
    pub(crate) route: Vec<HostId>,
    pub(crate) carved: Carved,
    pub(crate) charges: Vec<Charge>,
    pub(crate) ring_max: u64,
    pub(crate) key: u64,
}

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
        let (path, route) = self.path_to(host, &[]).map_err(Plain::Refused)?;
        let deadline = self.now + if hurried { PROMPT_ANSWER } else { DIAL_TIMEOUT };
        let payer = self.payer_of(session).ok_or(Plain::System)?;
        let charges = self.charge_end(payer, false).map_err(Plain::Refused)?;
        let ring_max = self.new_ring(path);
        let attempt = self.longest_attempt(path, &route, (payer, Purpose::New), ring_max)?;
        let stream = random::u64().max(1);
        let (circuit, channel) = self.policy.circuits.dial(tuple, stream, host, path, deadline);
        let mut resources = EndResources::new(None, payer, charges);
        (resources.tried, resources.deadline) = (vec![path.port], deadline);
        self.resources.insert(circuit, resources);
        self.own(session, circuit, socket);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.waiting = Some(Waiting::Circuit(circuit));
        }
        self.ask_for(circuit, channel, attempt, None);
        Ok(())
    }

    /// The shortest path to a host that does not begin with one of these ports. A neighbour that owes an answer for
    /// too long is not asked.
    pub(crate) fn path_to(&mut self, host: HostId, tried: &[PortId]) -> Result<(Path, Vec<HostId>), Refusal> {
        let paths: Vec<_> = self.policy.links.paths(host).collect();
        let mut why = Refusal::NoRoute;
        for (way, route) in paths {
            if tried.contains(&way.port) {
                continue;
            }
            if self.is_late(way.port) {
                why = Refusal::Timeout;
                continue;
            }
            let epoch = self.cable(way.port).and_then(|cable| Some(cable.agreement()?.epoch));
            if let Some(epoch) = epoch {
                return Ok((Path { port: way.port, epoch, hops: way.hops, pumps: 0 }, route));
            }
        }
        Err(why)
    }

    /// Memory for the first channel of a path.
    pub(crate) fn attempt(
        &mut self,
        path: Path,
        route: Vec<HostId>,
        payer: Payer,
        purpose: Purpose,
        ring_max: u64,
    ) -> Result<Attempt, Plain> {
        let len = segment_len(ring_max);
        let charges = self.charge_segments(payer, len, purpose).map_err(Plain::Refused)?;
        let carved = self.carve(path.port, len, payer, purpose)?;
        Ok(Attempt { path, route, carved, charges, ring_max, key: random::u64() })
    }

    /// What a circuit can do over so many cables, the first of which is at `port` and has these segments, and past so many pumps.
    pub(crate) fn way(
        &mut self,
        port: PortId,
        distance: (u8, u8),
        inbound: &Segment,
        outbound: &Segment,
    ) -> Way {
        let grows = self.resumes() && inbound.info.len < segment_len(self.long_ring(port));
        Way { grows, ..Way::new(distance, &inbound.info, &outbound.info, self.resumes()) }
    }

    /// Gives back what an attempt took that is not made.
    pub(crate) fn forgo(&mut self, attempt: Attempt) {
        if let Some(cable) = self.cable(attempt.path.port) {
            cable.free_inbound(attempt.carved.range);
        }
    }

    /// Sends `Open` for an end's new channel.
    pub(crate) fn ask_for(
        &mut self,
        circuit: CircuitId,
        channel: ChannelId,
        attempt: Attempt,
        resume: Option<Resumption>,
    ) {
        let Some((tuple, stream)) = self.policy.circuits.get(circuit).map(|end| (end.tuple, end.stream))
        else {
            return;
        };
        let Attempt {
            path,
            route,
            carved: Carved { range, window, memory: inbound },
            charges,
            ring_max,
            key,
        } = attempt;
        self.leaning |= path.hops > 1;
        self.memory.insert(channel, (range, window));
        if let Some(resources) = self.resources.get_mut(&circuit) {
            resources.attempt = Some(Segments {
                generation: resume.map_or(0, |resume| resume.generation),
                port: Some(path.port),
                inbound,
                outbound: None,
                far_range: None,
                ring_max,
                rx_key: key,
                tx_key: 0,
                before: 0,
                arrived: 0,
                way: Way::DIRECT,
                charges,
            });
        }
        let open =
            Control::Open { channel, tuple, stream, segment: range, key, passed: 0, pumps: 0, route, resume };
        if let Some(cable) = self.cable(path.port) {
            cable.send(&open);
        }
    }

    /// A circuit that was asked for will not be: another path is tried, if there is one and time for it.
    pub(crate) fn failed(&mut self, circuit: CircuitId, channel: ChannelId, why: Refusal) {
        if why == Refusal::Timeout {
            self.note_late(channel);
        }
        if self.policy.circuits.get(circuit).is_some_and(|end| end.moving.is_some()) {
            return self.try_failed(circuit, why);
        }
        let attempt = self.resources.get_mut(&circuit).and_then(|resources| resources.attempt.take());
        let refused = attempt.map_or(0, |attempt| attempt.ring_max);
        if matches!(why, Refusal::NoMemory | Refusal::NoRoute | Refusal::Quota)
            && self.try_another(circuit, refused).is_some()
        {
            return;
        }
        if why == Refusal::NoMemory {
            let uid = self.resources.get(&circuit).map(|resources| resources.uid);
            tracing::warn!(uid, "a neighbour has no window memory left; the connection uses TCP");
        }
        self.answer_dial(circuit, Plain::Refused(why));
        self.policy.circuits.give_up(circuit);
    }

    /// Another path, or if there is none the same ones with short rings, unless what was refused was that: `refused` bytes.
    fn try_another(&mut self, circuit: CircuitId, refused: u64) -> Option<()> {
        let host = self.policy.circuits.get(circuit)?.far_host();
        let resources = self.resources.get(&circuit).filter(|resources| resources.deadline > self.now)?;
        let (tried, deadline, payer) = (resources.tried.clone(), resources.deadline, resources.payer);
        let (path, route) = self.path_to(host, &tried).or_else(|_| self.path_to(host, &[])).ok()?;
        let ring_max = self.short_ring(path);
        if tried.contains(&path.port) && refused <= ring_max {
            return None;
        }
        let attempt = self.attempt(path, route, payer, Purpose::New, ring_max).ok()?;
        self.policy.circuits.rename(circuit, random::u64().max(1));
        let Some((channel, _)) = self.policy.circuits.redial(circuit, path, deadline) else {
            self.forgo(attempt);
            return None;
        };
        self.resources.get_mut(&circuit)?.tried.push(path.port);
        self.ask_for(circuit, channel, attempt, None);
        Some(())
    }

    /// The neighbour did not answer in time. What counts is the oldest answer that it owes.
    fn note_late(&mut self, channel: ChannelId) {
        if let Some(port) = self.policy.circuits.channel(channel).map(|found| found.port)
            && !self.owes(port)
        {
            self.late.insert(port, (channel, self.now));
        }
    }

    /// Whether the neighbour owes us an answer for so long that it does not run: nobody is kept waiting for it.
    fn is_late(&mut self, port: PortId) -> bool {
        let owes = self.owes(port);
        if !owes {
            self.late.remove(&port);
        }
        owes && self.late.get(&port).is_some_and(|(_, since)| self.now.saturating_sub(*since) >= DIAL_TIMEOUT)
    }

    fn owes(&self, port: PortId) -> bool {
        let channel = self.late.get(&port).and_then(|(channel, _)| self.policy.circuits.channel(*channel));
        channel.is_some_and(|found| matches!(found.state, channel::State::Abandoned(_)))
    }

    /// A neighbour made the circuit that a session asked for.
    pub(crate) fn opened(&mut self, circuit: CircuitId, segment: SegmentRange, key: u64) {
        let outcome = self.complete(circuit, segment, key, (0, 0));
        let Some(resources) = self.resources.get_mut(&circuit) else { return };
        let session = resources.holders.first().map(|(session, _)| *session);
        match (outcome, session) {
            (Ok(()), Some(session)) => {
                self.wake_session(session);
                if let Some(why) = self.grant(session, circuit, false) {
                    self.refuse(session, why);
                }
            }
            // The cable went down after the answer had come: as if it had gone down before.
            (Err(Plain::Refused(Refusal::NoRoute)), Some(_)) => self.policy.circuits.unopen(circuit),
            (Err(why), Some(session)) => {
                self.close_end(circuit, true);
                self.wake_session(session);
                self.refuse(session, why);
            }
            (_, None) => self.close_end(circuit, true),
        }
    }

    /// Completes the segments of the circuit that was asked for with what the neighbour said. Units that had arrived here
    /// `before`, and `arrived` at the far end.
    pub(crate) fn complete(
        &mut self,
        circuit: CircuitId,
        segment: SegmentRange,
        key: u64,
        (before, arrived): (u64, u64),
    ) -> Result<(), Plain> {
        let end = self.policy.circuits.get(circuit).ok_or(Plain::System)?;
        let (distance, port) = ((end.hops, end.pumps), self.port_of(circuit).ok_or(Plain::System)?);
        let attempt = self.resources.get_mut(&circuit).and_then(|resources| resources.attempt.take());
        let mut segments = attempt.ok_or(Plain::System)?;
        let outbound = self.outbound_of(port, segment, segments.ring_max)?;
        segments.way = self.way(port, distance, &segments.inbound, &outbound);
        (segments.outbound, segments.far_range) = (Some(outbound), Some(segment));
        let ledger = self.accounts.ledger().clone();
        let resources = self.resources.get_mut(&circuit).ok_or(Plain::System)?;
        if segments.way.keeps {
            resources
                .keep_sent(&ledger, if segments.generation > 0 { Purpose::Move } else { Purpose::New })?;
        }
        (segments.tx_key, segments.before, segments.arrived) = (key, before, arrived);
        self.push_segments(circuit, segments);
        Ok(())
    }

    pub(crate) fn answer_dial(&mut self, circuit: CircuitId, why: Plain) {
        let Some(resources) = self.resources.get(&circuit) else { return };
        let holders: Vec<SessionId> = resources.holders.iter().map(|(session, _)| *session).collect();
        self.drop_holders(circuit);
        for session in holders {
            self.wake_session(session);
            self.refuse(session, why);
        }
    }

    /// Checks and carves the segment that a neighbour allotted for a circuit that we asked for.
    pub(crate) fn outbound_of(
        &mut self,
        port: PortId,
        segment: SegmentRange,
        ring_max: u64,
    ) -> Result<Segment, Plain> {
        let cable = self.cable(port).ok_or(Plain::System)?;
        let agreement = cable.agreement().ok_or(Plain::Refused(Refusal::NoRoute))?;
        let window = agreement.peer_window;
        if segment.len != segment_len(ring_max) || !segment.fits(window) {
            self.counters.violations += 1;
            tracing::warn!(port = port.0, "neighbour allotted a segment that cannot be");
            return Err(Plain::Refused(Refusal::Protocol));
        }
        cable.carve_outbound(segment).map_err(|error| {
            tracing::warn!(port = port.0, %error, "neighbour's segment is not there");
            Plain::Refused(not_there(&error))
        })
    }
}

/// What a segment is refused for that a neighbour named and that cannot be had.
pub(crate) fn not_there(error: &PortError) -> Refusal {
    match error {
        PortError::Down => Refusal::NoRoute,
        _ => Refusal::Protocol,
    }
}
