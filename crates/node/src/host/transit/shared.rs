//! Circuits through this host whose segments it hands on, from one neighbour to the other: where both cables are memory of this
//! machine the ends share it directly, and nobody here copies or sleeps for them (decision 33).
//!
//! ```text
//!   host before                     this host                     host behind
//!   Open{segment} ----------> carve_outbound, pass_inbound ------> Open{segment}
//!   Opened{segment} <-------- pass_inbound, carve_outbound <------ Opened{segment}
//!   WantWaker, Wake <-------- each to the other side      -------> WantWaker, Wake
//! ```
//! What stays here are a range of each window, as with a pump, and a mapping of both segments, to count what goes by.

use super::meter::Meter;
use super::{Carried, Made, TransitCircuit};
use crate::cable::Cable;
use crate::host::{Host, Provider, refusal_of};
use crate::quota::{Payer, Purpose};
use crate::transit_wakes::{OwedWake, PassedAsk};
use crosslane_policy::{Asked, Prepared, Ring};
use crosslane_shm::wake::Waker;
use crosslane_shm::{Inbound, Segment};
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::local::Plain;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{ChannelId, PortId, TransitId, WaiterId};

/// Memory of the two ends, as far as it is known here.
#[derive(Debug)]
pub(super) struct SharedSegments {
    before: Option<Measured>,
    behind: Option<Measured>,
}

/// The segment that a neighbour gave, and what comes by in it.
#[derive(Debug)]
struct Measured {
    mapped: Inbound,
    meter: Meter,
}

impl Measured {
    fn new(segment: &Segment, ring_max: u64, key: u64) -> Result<Self, Refusal> {
        let mapped = Inbound::map(segment).map_err(|_| Refusal::NoMemory)?;
        Ok(Self { mapped, meter: Meter::new(ring_max, key) })
    }
}

impl SharedSegments {
    /// Bytes of the stream that have come from the host before and from the one behind. What comes from one goes into the
    /// segment that the other gave.
    pub(super) fn traffic(&self) -> [u64; 2] {
        let (Some(before), Some(behind)) = (&self.before, &self.behind) else { return [0; 2] };
        let from_before = behind.meter.look(&behind.mapped, &before.mapped);
        let from_behind = before.meter.look(&before.mapped, &behind.mapped);
        [from_before, from_behind]
    }
}

impl Provider<'_> {
    /// Whether what one of these neighbours gives can be handed on to the other.
    pub(super) fn can_share(&self, ports: [PortId; 2]) -> bool {
        !self.config.pump
            && ports.iter().all(|port| self.cables.get(*port).is_some_and(Cable::is_shared_memory))
    }

    /// Hands the opener's segment on to the host behind.
    pub(super) fn share(
        &mut self,
        onward: PortId,
        segment: &Segment,
        (payer, purpose): (Payer, Purpose),
        asked: &Asked,
    ) -> Result<Prepared<Made>, Refusal> {
        let ring_max = segment.info.len - segment_len(0);
        let before = Some(Measured::new(segment, ring_max, asked.key)?);
        let behind = self.pass_segment(onward, segment, payer, purpose).map_err(refusal_of)?;
        let carried = Carried::Shared(SharedSegments { before, behind: None });
        let (len, moves) = (segment.info.len, asked.resume.is_some());
        let ring = Ring { segment: behind.0, key: asked.key };
        let made = Made { carried, before: None, behind, len, moves, charges: Vec::new() };
        Ok(Prepared { made, behind: ring, pumps: asked.pumps })
    }

    /// The far half is there: its segment is handed on to the host before, by this channel.
    pub(super) fn begin_sharing(
        &mut self,
        transit: TransitId,
        channel: ChannelId,
        Ring { segment, key }: Ring,
    ) -> Result<Ring, Plain> {
        let circuit = self.transit_circuits.get(&transit).ok_or(Plain::System)?;
        let ([port, onward], ring_max) = (circuit.ports, circuit.ring_max);
        let purpose = Purpose::of_transit(circuit.moves);
        let given = self.outbound_of(onward, segment)?;
        let measured = Measured::new(&given, ring_max, key).map_err(Plain::Refused)?;
        let (range, window) = self.pass_segment(port, &given, Payer::Neighbour(port), purpose)?;
        self.cables.keep(channel, (range, window));
        if let Some(TransitCircuit { carried: Carried::Shared(shared), .. }) =
            self.transit_circuits.get_mut(&transit)
        {
            shared.behind = Some(measured);
        }
        Ok(Ring { segment: range, key })
    }
}

impl Host {
    /// The port on the other side of a circuit whose segments were handed on.
    fn opposite(&self, transit: TransitId, side: usize) -> Option<PortId> {
        let circuit = self.transit_circuits.get(&transit)?;
        matches!(circuit.carried, Carried::Shared(_)).then_some(circuit.ports[1 - side])
    }

    /// A neighbour wants to wake a waiter that sleeps at the far end of a circuit: whether the question was passed on, or
    /// answered. `named` is the channel as it named it.
    pub(crate) fn pass_want(
        &mut self,
        (transit, side): (TransitId, usize),
        named: ChannelId,
        waiter: WaiterId,
    ) -> bool {
        let Some(asked) = self.opposite(transit, side) else { return false };
        let asker = self.transit_circuits[&transit].ports[side];
        let channel = self.policy.circuits.channel_of(transit, 1 - side).and_then(|it| self.neighbour_of(it));
        let peer = channel.map(|(_, peer)| peer);
        let peer = peer.filter(|&peer| {
            self.transit_wakes.pass(PassedAsk { transit, asker, named, asked, peer, waiter })
        });
        if let (Some(peer), Some(cable)) = (peer, self.cables.get_mut(asked)) {
            cable.want_waker(peer, waiter);
        } else {
            self.cables.send(asker, &Control::Waker { channel: named, waiter, doorbell: None });
        }
        true
    }

    /// A neighbour's answer to a question that was passed on to it goes back to whoever asked; nothing of it stays here.
    pub(crate) fn pass_waker(
        &mut self,
        port: PortId,
        (channel, waiter): (ChannelId, WaiterId),
        waker: Option<&Waker>,
    ) {
        let answered = self.transit_wakes.answer_passed(port, channel, waiter);
        let Some(PassedAsk { asker, named, .. }) = answered else { return };
        if let Some(cable) = self.cables.get_mut(asker) {
            let doorbell = waker.and_then(|waker| cable.export_waker(waker));
            cable.send(&Control::Waker { channel: named, waiter, doorbell });
        }
    }

    /// A cable is down: what pumps and others asked of its neighbour is not answered any more, and what it asked not needed.
    pub(crate) fn fail_transit_wakes(&mut self, port: PortId) {
        for PassedAsk { asker, named, waiter, .. } in self.transit_wakes.fail(port) {
            self.cables.send(asker, &Control::Waker { channel: named, waiter, doorbell: None });
        }
    }

    /// A neighbour wakes a waiter at the far end of a circuit: passed on at once, or when there is room for it. Whether it was
    /// for the far end.
    pub(crate) fn pass_wake(&mut self, (transit, side): (TransitId, usize), waiter: WaiterId) -> bool {
        let Some(port) = self.opposite(transit, side) else { return false };
        if self.cables.get(port).is_some_and(Cable::has_room) {
            self.wake_opposite(transit, side, waiter);
            return true;
        }
        self.transit_wakes.owe(OwedWake { port, transit, side, waiter });
        true
    }

    /// Passes wakes on that waited for room.
    pub(crate) fn send_owed_wakes(&mut self) {
        for port in self.cables.ports() {
            while self.cables.get(port).is_some_and(Cable::has_room)
                && let Some(wake) = self.transit_wakes.poll_owed(port)
            {
                self.wake_opposite(wake.transit, wake.side, wake.waiter);
            }
        }
    }

    fn wake_opposite(&mut self, transit: TransitId, side: usize, waiter: WaiterId) {
        if let Some(channel) = self.policy.circuits.channel_of(transit, 1 - side) {
            self.wake_neighbour(channel, waiter);
        }
    }
}
