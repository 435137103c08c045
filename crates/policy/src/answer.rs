//! Circuits that neighbours ask for and that end on this host. Hosts between forward `Open` ([`crate::transit`]); streams
//! that move to another circuit are in [`crate::resume`].

use crate::tuple::plain_tuple;
use crate::{EndState, Policy, Resources};
use crosslane_fabric::circuit::Path;
use crosslane_fabric::setup::Agreement;
use crosslane_wire::control::{Control, Refusal, Resumption};
use crosslane_wire::segment::{ring_max_ok, segment_len};
use crosslane_wire::{ChannelId, HostId, PortId, SegmentRange, Tuple};
use std::time::Duration;

/// The content of a neighbour's `Open`.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The neighbour's end of the channel.
    pub channel: ChannelId,
    /// The connection.
    pub tuple: Tuple,
    /// The stream's secret.
    pub stream: u64,
    /// Where this host may write.
    pub segment: SegmentRange,
    /// Mark key of the ring there.
    pub key: u64,
    /// Cables passed before this one.
    pub passed: u8,
    /// Hosts before this one that pump.
    pub pumps: u8,
    /// Set if an existing stream moves.
    pub resume: Option<Resumption>,
    /// The secret of the stream of which this is the second circuit, or 0.
    pub twin_of: u64,
}

impl Asked {
    /// Generation of the circuit.
    pub fn generation(&self) -> u32 {
        self.resume.map_or(0, |resume| resume.generation)
    }
}

impl Policy {
    /// A neighbour asks for a circuit, which ends here or passes through.
    pub(crate) fn handle_open(
        &mut self,
        port: PortId,
        asked: &Asked,
        route: Vec<HostId>,
        now: Duration,
        resources: &mut impl Resources,
    ) {
        let outcome = match (&asked.resume, route.is_empty()) {
            (_, false) => self.pass_on(port, asked, route, now, resources),
            (None, true) => self.open_for(port, asked, resources),
            (Some(resume), true) => self.resume_for(port, asked, *resume, resources),
        };
        if let Err(why) = outcome {
            self.send(port, Control::Refused { channel: asked.channel, why });
        }
    }

    fn open_for<R: Resources>(
        &mut self,
        port: PortId,
        asked: &Asked,
        resources: &mut R,
    ) -> Result<(), Refusal> {
        let asked = &Asked { tuple: plain_tuple(asked.tuple), ..*asked };
        let agreement = self.check_segment(port, asked.segment)?;
        let client = self.check_origin(&asked.tuple, &agreement, asked.passed, resources)?;
        if resources.host_of(asked.tuple.server.ip()) != Some(self.me) {
            return Err(Refusal::NoListener);
        }
        let path = path_of(port, &agreement, asked)?;
        let (answer, ring) = resources.admit(port, asked)?;
        self.ways.relies |= asked.passed > 0;
        let opened = self.circuits.handle_open(
            asked.tuple,
            (asked.stream, asked.twin_of),
            client,
            path,
            asked.channel,
        );
        let (circuit, channel) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                resources.drop_answer(port, answer);
                return Err(why);
            }
        };
        self.ends.insert(circuit, EndState::default());
        resources.keep_answer(circuit, channel, answer);
        self.circuits.answer(channel, ring.segment, ring.key, 0);
        Ok(())
    }

    /// The host that asks for the circuit, if that is possible: a message from it must be able to arrive on this cable.
    pub(crate) fn check_origin(
        &self,
        tuple: &Tuple,
        agreement: &Agreement,
        passed: u8,
        resources: &impl Resources,
    ) -> Result<HostId, Refusal> {
        let client = resources.host_of(tuple.client.ip()).ok_or(Refusal::Protocol)?;
        let hops = passed.checked_add(1).ok_or(Refusal::Protocol)?;
        if client == self.me || (passed == 0 && client != agreement.peer) {
            return Err(Refusal::Protocol);
        }
        if !self.links.can_come(client, agreement.peer, hops) {
            return Err(Refusal::NoRoute);
        }
        Ok(client)
    }

    /// Checks the segment that a neighbour allocated for a circuit that it asks for.
    pub(crate) fn check_segment(&self, port: PortId, segment: SegmentRange) -> Result<Agreement, Refusal> {
        let agreement = self.agreement(port).ok_or(Refusal::NoRoute)?;
        let ring_max = segment.len.checked_sub(segment_len(0)).filter(|ring| ring_max_ok(*ring));
        ring_max.filter(|_| segment.fits(agreement.peer_window)).ok_or(Refusal::Protocol)?;
        Ok(agreement)
    }
}

/// The path of a circuit that a neighbour asks for, seen from here.
pub(crate) fn path_of(port: PortId, agreement: &Agreement, asked: &Asked) -> Result<Path, Refusal> {
    let hops = asked.passed.checked_add(1).ok_or(Refusal::Protocol)?;
    Ok(Path { port, epoch: agreement.epoch, hops, pumps: asked.pumps })
}
