//! Circuits that neighbours ask for and that end here: whose they are, and their memory. Which are answered is decided in
//! `crosslane_policy::answer`.

use crate::end_resources::{EndResources, Segments};
use crate::host::{Answer, Carved, Provider, not_there, refusal_of};
use crate::quota::{Charge, Payer, Purpose};
use crate::random;
use crosslane_fabric::circuit::Scope;
use crosslane_policy::{Asked, Ring};
use crosslane_wire::control::Refusal;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{PortId, SegmentRange};

impl Provider<'_> {
    /// An end that a neighbour asks for: it pays until a program accepts.
    pub(crate) fn make_answer(&mut self, port: PortId, asked: &Asked) -> Result<(Answer, Ring), Refusal> {
        let accepter = self.hearing().check_listener(&asked.tuple, Scope(0))?;
        self.accounts.check_accepter(accepter, self.now)?;
        let payer = Payer::Neighbour(port);
        let charges = self.accounts.charge_end(payer, true, self.now)?;
        let (segments, (range, window)) = self.answering_segments(port, asked, 0, payer)?;
        let (keeps, key) = (segments.way.keeps, segments.rx_key);
        let mut resources = EndResources::new(Some(segments), payer, charges);
        resources.uid = accepter;
        if keeps && let Err(why) = resources.keep_sent((self.accounts.ledger(), self.shelves), Purpose::New) {
            self.cables.free_inbound(port, range);
            return Err(refusal_of(why));
        }
        Ok((Answer { resources, range, window }, Ring { segment: range, key }))
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
        let charges = self.accounts.charge_segments(payer, asked.segment.len, purpose, self.now)?;
        let cable = self.cables.get_mut(port).ok_or(Refusal::NoRoute)?;
        let outbound = cable.carve_outbound(asked.segment).map_err(|error| not_there(&error))?;
        let Carved { range, window, memory: inbound } =
            self.carve(port, asked.segment.len, Payer::Neighbour(port), purpose).map_err(refusal_of)?;
        let cables = asked.passed.saturating_add(1);
        let way = self.way(port, (cables, asked.pumps), &inbound.info, &outbound.info);
        let (inbound, outbound) = (self.shelves.keep_segment(inbound), self.shelves.keep_segment(outbound));
        let segments = Segments {
            generation: asked.generation(),
            port: Some(port),
            inbound,
            lane: None,
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
}
