//! Circuits that neighbours ask for: those that end here. Hosts between pass `Open` on ([`crate::transit`]); streams that go
//! on by another circuit are in [`crate::resume`].

use crate::dial::not_there;
use crate::end_resources::{EndResources, Segments};
use crate::host::{Carved, Host};
use crate::quota::{Charge, Payer, Purpose};
use crate::random;
use crosslane_fabric::circuit::{Path, Scope};
use crosslane_fabric::setup::Agreement;
use crosslane_wire::control::{Control, Refusal, Resumption};
use crosslane_wire::local::Plain;
use crosslane_wire::segment::{ring_max_ok, segment_len};
use crosslane_wire::{ChannelId, HostId, PortId, SegmentRange, Tuple};

/// What a neighbour's `Open` says.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The neighbour's end of the channel.
    pub channel: ChannelId,
    /// The connection.
    pub tuple: Tuple,
    /// The stream's secret.
    pub stream: u64,
    /// Where we may write.
    pub segment: SegmentRange,
    /// Mark key of the ring there.
    pub key: u64,
    /// Cables passed before this one.
    pub passed: u8,
    /// Hosts passed that pump.
    pub pumps: u8,
    /// A stream that goes on.
    pub resume: Option<Resumption>,
}

impl Host {
    /// A neighbour asks for a circuit, which ends here or passes on.
    pub fn handle_open(&mut self, port: PortId, asked: &Asked, route: Vec<HostId>) {
        let outcome = match (&asked.resume, route.is_empty()) {
            (_, false) => self.pass_on(port, asked, route),
            (None, true) => self.open_for(port, asked),
            (Some(resume), true) => self.resume_for(port, asked, *resume),
        };
        if let Err(why) = outcome {
            tracing::debug!(tuple = %asked.tuple, ?why, "circuit refused");
            if let Some(cable) = self.cable(port) {
                cable.send(&Control::Refused { channel: asked.channel, why });
            }
        }
    }

    fn open_for(&mut self, port: PortId, asked: &Asked) -> Result<(), Refusal> {
        let tuple = crate::address::plain_tuple(asked.tuple);
        let agreement = self.check_segment(port, asked.segment)?;
        let client = self.check_origin(&tuple, &agreement, asked.passed)?;
        if self.config.addresses.host_of(tuple.server.ip()) != Some(self.me()) {
            return Err(Refusal::NoListener);
        }
        let accepter = self.check_listener(&tuple, Scope(0))?;
        self.check_accepter(accepter)?;
        let path = path_of(port, &agreement, asked)?;
        let payer = Payer::Neighbour(port);
        let charges = self.charge_end(payer, true)?;
        let (segments, (range, window)) = self.answering_segments(port, asked, 0, payer)?;
        let (keeps, key, ledger) = (segments.way.keeps, segments.rx_key, self.accounts.ledger().clone());
        let mut resources =
            EndResources { uid: accepter, ..EndResources::new(Some(segments), payer, charges) };
        let kept = if keeps { resources.keep_sent(&ledger, Purpose::New) } else { Ok(()) };
        let opened = kept.map_err(refusal_of).and_then(|()| {
            self.policy.circuits.handle_open(tuple, asked.stream, client, path, asked.channel)
        });
        let (circuit, channel) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                if let Some(cable) = self.cable(port) {
                    cable.free_inbound(range);
                }
                return Err(why);
            }
        };
        self.memory.insert(channel, (range, window));
        self.resources.insert(circuit, resources);
        self.publish_announced();
        self.policy.circuits.answer(channel, range, key, 0);
        Ok(())
    }

    /// The host that a neighbour asks for, if it can be: what comes by this cable must be able to come from there.
    pub(crate) fn check_origin(
        &self,
        tuple: &Tuple,
        agreement: &Agreement,
        passed: u8,
    ) -> Result<HostId, Refusal> {
        let client = self.config.addresses.host_of(tuple.client.ip()).ok_or(Refusal::Protocol)?;
        let hops = passed.checked_add(1).ok_or(Refusal::Protocol)?;
        if client == self.me() || (passed == 0 && client != agreement.peer) {
            return Err(Refusal::Protocol);
        }
        if !self.policy.links.can_come(client, agreement.peer, hops) {
            return Err(Refusal::NoRoute);
        }
        Ok(client)
    }

    /// Segments for a circuit that a neighbour asks for: its memory, and ours for it. The neighbour pays for the window, and
    /// `payer` for the rest.
    pub(crate) fn answering_segments(
        &mut self,
        port: PortId,
        asked: &Asked,
        before: u64,
        payer: Payer,
    ) -> Result<(Segments, (SegmentRange, Charge)), Refusal> {
        let purpose = if asked.resume.is_some() { Purpose::Move } else { Purpose::New };
        let charges = self.charge_segments(payer, asked.segment.len, purpose)?;
        self.leaning |= asked.passed > 0;
        let cable = self.cable(port).ok_or(Refusal::NoRoute)?;
        let outbound = cable.carve_outbound(asked.segment).map_err(|error| not_there(&error))?;
        let Carved { range, window, memory: inbound } =
            self.carve(port, asked.segment.len, Payer::Neighbour(port), purpose).map_err(refusal_of)?;
        let cables = asked.passed.saturating_add(1);
        let way = self.way(port, (cables, asked.pumps), &inbound, &outbound);
        let segments = Segments {
            generation: asked.resume.map_or(0, |resume| resume.generation),
            port: Some(port),
            inbound,
            outbound: Some(outbound),
            far_range: Some(asked.segment),
            ring_max: asked.segment.len - segment_len(0),
            rx_key: random::u64(),
            tx_key: asked.key,
            before,
            arrived: 0,
            way,
            charges,
        };
        Ok((segments, (range, window)))
    }

    /// Checks the segment that a neighbour allotted for a circuit that it asks for.
    pub(crate) fn check_segment(
        &mut self,
        port: PortId,
        segment: SegmentRange,
    ) -> Result<Agreement, Refusal> {
        let agreement =
            self.cable(port).and_then(|cable| cable.agreement().copied()).ok_or(Refusal::NoRoute)?;
        let ring_max = segment.len.checked_sub(segment_len(0)).filter(|ring| ring_max_ok(*ring));
        ring_max.filter(|_| segment.fits(agreement.peer_window)).ok_or(Refusal::Protocol)?;
        Ok(agreement)
    }
}

/// What a neighbour is told of it.
pub(crate) fn refusal_of(why: Plain) -> Refusal {
    match why {
        Plain::Refused(why) => why,
        _ => Refusal::NoMemory,
    }
}

/// The path of a circuit that a neighbour asks for, seen from here.
pub(crate) fn path_of(port: PortId, agreement: &Agreement, asked: &Asked) -> Result<Path, Refusal> {
    let hops = asked.passed.checked_add(1).ok_or(Refusal::Protocol)?;
    Ok(Path { port, epoch: agreement.epoch, hops, pumps: asked.pumps })
}
