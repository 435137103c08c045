//! What an end of a circuit holds: segments, and the state that its holders share.

use crate::buffer::Opened;
use crate::pace::Pace;
use crate::proof::{Announcer, Cookie};
use crate::quota::{Charge, Kind, Ledger, Payer, Purpose};
use crate::random;
use crate::session_id::SessionId;
use crate::shelves::{Kept, KeptSegment, Loan, Shelves};
use crosslane_port::posted::Lane;
use crosslane_shm::Inbound;
use crosslane_shm::mem::new_segment;
use crosslane_shm::ring::Cursor;
use crosslane_shm::state::{Sent, Snapshot, StateView};
use crosslane_wire::control::{ARRIVED_ALL, Refusal};
use crosslane_wire::local::Plain;
use crosslane_wire::segment::RETENTION;
use crosslane_wire::{BufferId, ChannelInfo, PortId, SegmentRange, Way};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Circuits of one stream whose segments are kept, at most: a program that stands still leaves none of them behind, while
/// cables or a neighbour move it on and on.
const GENERATIONS: usize = 64;
/// Most buffers of one circuit; beyond it the oldest is forgotten.
const BUFFERS: usize = 64;
/// How often a stream may move to a longer segment, or try to: each time it can double, and some in vain.
const GROWTHS: u8 = 16;
/// A program that has stopped is about to consume one record more at most; one that has not stopped harms itself only.
const COUNTS: u32 = 16;

/// The segments of one circuit of an end.
#[derive(Debug)]
pub struct Segments {
    /// Number of the circuit in the stream's life.
    pub generation: u32,
    /// The port that the circuit leaves by; none within this host.
    pub port: Option<PortId>,
    /// Memory that the far side writes.
    pub inbound: KeptSegment,
    /// What lands the stores to that memory inside this host, if they land later.
    pub lane: Option<Lane>,
    /// Memory of the far side; none before the far side has answered.
    pub outbound: Option<KeptSegment>,
    /// Where that lies in the far side's window; none within this host.
    pub far_range: Option<SegmentRange>,
    /// Bytes of each ring.
    pub ring_max: u64,
    /// Key of the ring that is read.
    pub rx_key: u64,
    /// Key of the ring that is written.
    pub tx_key: u64,
    /// Units of the stream that had arrived here before this circuit.
    pub before: u64,
    /// Units of the stream that had arrived at the far end before this circuit.
    pub arrived: u64,
    /// What the circuit can do; [`Way::DIRECT`] before the far side has answered.
    pub way: Way,
    /// What is paid for them.
    pub charges: Vec<Charge>,
}

impl Segments {
    /// What a program is told of them.
    pub(crate) fn channel_info(&self, outbound: &KeptSegment) -> ChannelInfo {
        let (inbound, outbound) = (self.inbound.info, outbound.info);
        ChannelInfo { inbound, outbound, ring_max: self.ring_max, way: self.way }
    }

    /// The descriptors that a program gets with them, and others behind those.
    pub(crate) fn lend<'a>(
        &self,
        outbound: &KeptSegment,
        others: impl IntoIterator<Item = &'a Kept>,
    ) -> Option<Vec<Loan>> {
        let segments = [self.inbound.lend(), outbound.lend()];
        segments.into_iter().chain(others.into_iter().map(Kept::lend)).collect::<Result<_, _>>().ok()
    }
}

/// What the holders of an end share.
#[derive(Debug)]
pub struct HeldState {
    /// The memory, which was found to be some.
    pub memory: Kept,
    /// What the user of the program that made it pays for the descriptor.
    pub charge: Charge,
}

impl HeldState {
    /// Looks into it; `None` if that is not possible now.
    pub(crate) fn view(&self) -> Option<StateView<Loan>> {
        self.memory.lend().ok().map(StateView::checked)
    }
}

/// What an end holds besides its state.
#[derive(Debug)]
pub struct EndResources {
    /// Sessions that hold the end, the owner first, each with the end's word in its status page.
    pub holders: Vec<(SessionId, u32)>,
    /// Name of the owner's program.
    pub program: String,
    /// The owner's process.
    pub pid: i32,
    /// The owner's user.
    pub uid: u32,
    /// The socket that the end belongs to: the one that announced it, or the accepted one.
    pub cookie: Option<Cookie>,
    /// Whether the socket that announced the connection became it.
    pub proof: Announcer,
    /// Of an end that no program has accepted yet: the socket of its connection on this side, once the end was proven.
    pub accepting: Option<Cookie>,
    /// What its holders share.
    pub state: Option<HeldState>,
    /// Segments by generation, the oldest that its program may still use first.
    pub segments: VecDeque<Segments>,
    /// What the far end may map, the oldest first.
    buffers: VecDeque<(BufferId, Rc<Opened>)>,
    /// What was sent and has perhaps not landed.
    pub retention: Option<Kept>,
    /// Payload that went by circuits before the newest one, sent and received, bytes.
    before: (u64, u64),
    /// How fast it moves bytes.
    pace: Pace,
    /// The generation that programs were told of last.
    pub published: u32,
    /// Proof for closing.
    pub token: u64,
    /// What the program had sent when it left, if that may be lacking at the far end.
    pub sent: Option<Sent>,
    /// Since when the stream has no circuit.
    pub lost_at: Option<Duration>,
    /// Who pays for the end: who asked for it until it is accepted, then its holder's user.
    pub payer: Payer,
    /// What is paid for the end, whatever circuit it has.
    charges: Vec<Charge>,
    /// Segments of the circuit that is being asked for.
    pub attempt: Option<Segments>,
    /// How often the stream moved for a longer ring.
    growths: u8,
    /// Bytes of the ring that it had when it did so last.
    pub grew_from: u64,
    /// Whether the stream waits for room for a longer ring.
    pub outgrown: bool,
}

impl EndResources {
    /// Nothing yet but segments of the first circuit, what is paid for the end, and a new token.
    pub(crate) fn new(segments: Option<Segments>, payer: Payer, charges: Vec<Charge>) -> Self {
        Self {
            holders: Vec::new(),
            program: String::new(),
            pid: 0,
            uid: u32::MAX,
            cookie: None,
            proof: Announcer::Unknown,
            accepting: None,
            state: None,
            segments: segments.into_iter().collect(),
            buffers: VecDeque::new(),
            retention: None,
            before: (0, 0),
            pace: Pace::default(),
            published: 0,
            token: random::u64(),
            sent: None,
            lost_at: None,
            payer,
            charges,
            attempt: None,
            growths: 0,
            grew_from: 0,
            outgrown: false,
        }
    }

    /// What is sent from here on is kept until it has landed.
    pub(crate) fn keep_sent(
        &mut self,
        (ledger, shelves): (&Ledger, &Shelves),
        purpose: Purpose,
    ) -> Result<(), Plain> {
        if self.retention.is_none() {
            for (kind, amount) in [(Kind::Stored, 1), (Kind::Memory, RETENTION)] {
                let charge = ledger.charge(self.payer, kind, amount, purpose);
                self.charges.push(charge.map_err(|_| Plain::Refused(Refusal::Quota))?);
            }
            let kept = new_segment("crosslane-retention", RETENTION).map_err(|_| Plain::System)?;
            self.retention = Some(shelves.keep(kept));
        }
        Ok(())
    }

    /// This user has the end from now on: he pays for it, and it is pending no longer.
    pub(crate) fn pass_to(&mut self, payer: Payer) {
        self.charges.retain(|charge| charge.kind() != Kind::Pending);
        self.payer = payer;
        let segments = self.segments.iter_mut().chain(&mut self.attempt);
        let of_segments = segments.flat_map(|segments| &mut segments.charges);
        self.charges.iter_mut().chain(of_segments).for_each(|charge| charge.pass_to(payer));
    }

    /// The far end may map this buffer from now on.
    pub(crate) fn keep_buffer(&mut self, buffer: BufferId, opened: Rc<Opened>) {
        self.buffers.retain(|(known, _)| *known != buffer);
        if self.buffers.len() >= BUFFERS {
            self.buffers.pop_front();
        }
        self.buffers.push_back((buffer, opened));
    }

    /// A buffer that the far end may map.
    pub(crate) fn buffer(&self, buffer: BufferId) -> Option<Rc<Opened>> {
        self.buffers.iter().find(|(known, _)| *known == buffer).map(|(_, opened)| opened.clone())
    }

    /// This buffer of a session is given out no more, or all of them.
    pub(crate) fn forget_buffers(&mut self, session: SessionId, buffer: Option<BufferId>) {
        let is_it = |known| buffer.is_none_or(|buffer| buffer == known);
        self.buffers.retain(|(known, opened)| !is_it(*known) || opened.owner != session);
    }

    /// The end is closed here: what its program shared is let go.
    pub(crate) fn close(&mut self) {
        self.state = None;
        self.buffers.clear();
    }

    /// What its program has sent, as far as that can be told now.
    pub(crate) fn view_sent(&self) -> Option<Sent> {
        self.state.as_ref()?.view()?.sent()
    }

    /// Its program has left it, perhaps while it has no circuit: what is needed to send again stays.
    pub(crate) fn leave(&mut self, moving: bool) {
        let retained = self.segments.back().is_some_and(|newest| newest.way.keeps);
        self.sent = if moving || retained { self.view_sent() } else { None };
        if self.sent.is_none() {
            self.retention = None;
        }
        // Those of a circuit that is being made are needed to say so.
        let published = self.published;
        self.segments.retain(|segments| segments.generation > published);
    }

    /// The segments that its program gets after those of this generation.
    pub(crate) fn after(&self, generation: u32) -> Option<&Segments> {
        let known = |next: u32| next > generation && next <= self.published;
        self.segments.iter().find(|segments| known(segments.generation))
    }

    /// The end is dead: its program gets the newest segments, too. By those of a circuit that never went on here bytes may have
    /// arrived of which the far side knows that they have.
    pub(crate) fn publish_all(&mut self) {
        if let Some(newest) = self.segments.back_mut().filter(|newest| newest.generation > self.published) {
            // Nothing is sent any more.
            newest.arrived = ARRIVED_ALL;
            self.published = newest.generation;
        }
    }

    /// Units of the stream that have arrived by the newest segments.
    pub(crate) fn count_arrived(&mut self) -> Option<u64> {
        self.trim();
        let newest = self.segments.back()?;
        let ring = Inbound::map(&newest.inbound.open().ok()?).ok()?;
        let fresh = Cursor::fresh(newest.ring_max, newest.rx_key, newest.before);
        let view = self.state.as_ref().and_then(HeldState::view);
        let reader = || {
            let (generation, cursor) = view.as_ref()?.receiver()?;
            (generation == newest.generation)
                .then(|| cursor.checked(newest.ring_max, newest.rx_key))
                .flatten()
        };
        let mut from = reader();
        for _ in 0..COUNTS {
            let arrived = from.unwrap_or(fresh).arrived(&ring);
            // The program may have been about to consume a record and have given its room back.
            let now = reader();
            if now.map(|cursor| cursor.position()) == from.map(|cursor| cursor.position()) {
                return Some(arrived);
            }
            from = now;
        }
        None
    }

    /// Bytes of the ring of a stream that may move for a longer one.
    pub(crate) fn short_ring(&self) -> Option<u64> {
        let newest = self.segments.back().filter(|newest| newest.way.grows && self.growths < GROWTHS);
        newest.map(|newest| newest.ring_max)
    }

    /// The stream moves for a longer ring than this one.
    pub(crate) fn grow_from(&mut self, ring: u64) {
        (self.growths, self.grew_from) = (self.growths + 1, ring);
    }

    /// The state, if a program uses it.
    pub(crate) fn view(&self) -> Option<StateView<Loan>> {
        self.state.as_ref().filter(|_| !self.holders.is_empty())?.view()
    }

    /// What the end has moved so far.
    pub fn traffic(&self) -> Snapshot {
        self.view().map(|view| view.counters()).unwrap_or_default()
    }

    /// Of what it has `moved`: the port of the newest circuit, and the payload that went by it, sent and received, bytes.
    pub fn port_traffic(&self, moved: &Snapshot) -> (Option<PortId>, (u64, u64)) {
        let (tx, rx) = self.before;
        let port = self.segments.back().and_then(|segments| segments.port);
        (port, (moved.tx_bytes.saturating_sub(tx), moved.rx_bytes.saturating_sub(rx)))
    }

    /// Whether the newest circuit leads by the cable at `port`, and moves bytes now. Programs count the bytes, and may lie.
    pub(crate) fn is_busy_by(&mut self, port: PortId, now: Duration) -> bool {
        if self.segments.back().and_then(|segments| segments.port) != Some(port) {
            return false;
        }
        let moved = self.traffic();
        self.pace.look(now, moved.tx_bytes.wrapping_add(moved.rx_bytes))
    }

    /// Payload that went by the newest circuit, and its port, as [`Self::port_traffic`]; it counts for that one no more.
    pub(crate) fn settle(&mut self) -> (Option<PortId>, (u64, u64)) {
        let (port, (tx, rx)) = self.port_traffic(&self.traffic());
        self.before = (self.before.0.wrapping_add(tx), self.before.1.wrapping_add(rx));
        (port, (tx, rx))
    }

    /// Forgets segments that the program has left behind in both directions: who adopts the end goes on from what is left.
    pub(crate) fn trim(&mut self) {
        let Some(state) = self.state.as_ref().filter(|_| self.segments.len() > 1) else { return };
        let Some(view) = state.view() else { return };
        let (Some((receives, _)), Some(sends)) = (view.receiver(), view.sent()) else { return };
        let oldest = receives.min(sends.generation);
        while self.segments.len() > 1 && self.segments.front().is_some_and(|old| old.generation < oldest) {
            self.segments.pop_front();
        }
    }

    /// Whether there is room for the segments of one more circuit.
    pub(crate) fn may_move(&mut self) -> bool {
        self.trim();
        self.segments.len() < GENERATIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Settings;
    use crosslane_client::shared::SharedState;
    use crosslane_shm::Segment;

    fn segments(shelves: &Shelves, generation: u32) -> Segments {
        Segments {
            generation,
            port: None,
            inbound: shelves.keep_segment(Segment::sealed(new_segment("test", 4096).unwrap(), 4096)),
            lane: None,
            outbound: None,
            far_range: None,
            ring_max: 4096,
            rx_key: 1,
            tx_key: 2,
            before: 0,
            arrived: 0,
            way: Way::DIRECT,
            charges: Vec::new(),
        }
    }

    #[test]
    fn segments_stay_as_long_as_the_program_uses_them_either_way_and_not_without_end() {
        let (shared, fd) = SharedState::create().unwrap();
        let shelves = Shelves::new(1000, Ledger::new(Settings::default(), 1000, []));
        let mut resources = EndResources::new(Some(segments(&shelves, 0)), Payer::User(0), Vec::new());
        resources.state = Some(HeldState { memory: shelves.keep(fd), charge: Charge::of_nothing() });
        resources.segments.extend([1, 2].map(|generation| segments(&shelves, generation)));
        let oldest = |resources: &mut EndResources| {
            resources.trim();
            resources.segments.front().map(|segments| segments.generation)
        };
        assert_eq!(oldest(&mut resources), Some(0), "it has not begun");
        shared.consumer.resume(2, 4096, 4096, 1, 0);
        assert_eq!(oldest(&mut resources), Some(0), "it sends by the first ones");
        shared.producer.resume(1, 4096, 4096, 2, 0);
        assert_eq!(oldest(&mut resources), Some(1));
        for generation in 3.. {
            if !resources.may_move() {
                break;
            }
            resources.segments.push_back(segments(&shelves, generation));
        }
        assert_eq!(resources.segments.len(), GENERATIONS);
        shared.producer.resume(9, 4096, 4096, 2, 0);
        assert!(resources.may_move());
    }
}
