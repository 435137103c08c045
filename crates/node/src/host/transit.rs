//! Circuits through this host: decision 10. The state machine is `crosslane_fabric::transit`; the bytes are the pumps'
//! ([`crate::pump`]), which get their segments and wakers here, or go by without us (`shared`, decision 33).

mod meter;
mod shared;

use super::{Carved, Host, Provider, not_there, refusal_of};
use crate::cable::Cable;
use crate::pump::{Command, Leg, Pumps, Report};
use crate::quota::{Charge, Kind, Payer, Purpose};
use crate::random;
use crate::transit_wakes::PumpAsk;
use crosslane_fabric::transit::{BEFORE, BEHIND};
use crosslane_policy::{Asked, Prepared, Ring};
use crosslane_shm::wake::{Receiver, Waker};
use crosslane_shm::{Inbound, Outbound, Segment};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{ChannelId, PortId, SegmentRange, TransitId, WaiterId};

/// Most reports of pumps that are heard in one turn: a program that is rung at each record must not keep the others
/// waiting.
const BATCH: usize = 256;
/// Mappings of a circuit through this host, and its descriptor: what wakes its pump.
const MAPPINGS: u64 = 4;

/// A circuit through this host whose far half is not there yet, or is pumped.
#[derive(Debug)]
pub struct TransitCircuit {
    /// Its ports, before and behind.
    pub ports: [PortId; 2],
    /// By which both neighbours name its pump when they wake it.
    pub waiter: WaiterId,
    carried: Carried,
    ring_max: u64,
    /// Whether it is of a stream that goes on.
    moves: bool,
    /// What the neighbour before pays for it.
    _charges: Vec<Charge>,
}

impl TransitCircuit {
    /// Bytes of the stream that came from before and from behind.
    pub(crate) fn moved(&self, transit: TransitId, pumps: &Pumps) -> [u64; 2] {
        match &self.carried {
            Carried::Shared(shared) => shared.traffic(),
            Carried::Pumped(_) => pumps.traffic(transit),
        }
    }

    /// What went by each of its ports, sent and received, bytes, of which so many came from before and from behind.
    pub(crate) fn traffic(&self, [before, behind]: [u64; 2]) -> [(PortId, (u64, u64)); 2] {
        [(self.ports[BEFORE], (behind, before)), (self.ports[BEHIND], (before, behind))]
    }
}

/// How its bytes get from one neighbour to the other.
#[derive(Debug)]
enum Carried {
    /// A pump copies them.
    Pumped(Pumped),
    /// Both ends share memory, and need nobody.
    Shared(shared::SharedSegments),
}

/// A circuit that is pumped.
#[derive(Debug)]
struct Pumped {
    /// What the opener said, and our memory on both sides, until the pump has them.
    opening: Option<Opening>,
    /// Our memory that the host before writes.
    range: SegmentRange,
    rx_keys: [u64; 2],
    /// Whether there is no other pump between here and the opener.
    is_end: bool,
}

#[derive(Debug)]
struct Opening {
    inbound: [Inbound; 2],
    before: Outbound,
    tx_key: u64,
}

/// What was made for a circuit before the host behind is asked: our ranges of both windows, each with what is paid for it.
pub(crate) struct Made {
    carried: Carried,
    before: Option<(SegmentRange, Charge)>,
    behind: (SegmentRange, Charge),
    /// Bytes of its segments.
    len: u64,
    /// Whether it is of a stream that goes on.
    moves: bool,
    charges: Vec<Charge>,
}

impl Host {
    /// One side closed in order: what it wrote is pumped on, if it is not there already.
    pub(crate) fn drain(&mut self, transit: TransitId, side: usize) {
        match self.transit_circuits.get(&transit).map(|circuit| &circuit.carried) {
            Some(Carried::Shared(_)) => self.policy.circuits.drained(transit, side),
            _ => self.tell_pump(Command::Drain { transit, leg: side }),
        }
    }

    /// A circuit through this host is over.
    pub(crate) fn stop_transit(&mut self, transit: TransitId) {
        self.transit_wakes.forget(transit);
        self.copy_transit_early(transit);
        let Some(transit_circuit) = self.transit_circuits.remove(&transit) else { return };
        let is_pumped = match &transit_circuit.carried {
            Carried::Pumped(Pumped { opening: Some(_), .. }) => return,
            Carried::Pumped(_) => true,
            Carried::Shared(_) => false,
        };
        let moved = transit_circuit.moved(transit, &self.pumps);
        // Of shared memory the ends say what they moved, and may say anything.
        let both = moved[BEFORE].wrapping_add(moved[BEHIND]);
        self.counters.transit_bytes = self.counters.transit_bytes.wrapping_add(both);
        for (port, (tx, rx)) in transit_circuit.traffic(moved) {
            self.cables.count_past(port, (tx, rx));
        }
        if is_pumped {
            self.tell_pump(Command::Remove { transit });
        }
    }

    /// What the pumps have to say, a part of it at a time; whether there was anything.
    pub fn hear_pumps(&mut self) -> bool {
        let mut heard = false;
        for _ in 0..BATCH {
            let Some(report) = self.pumps.poll_report() else { break };
            heard = true;
            match report {
                Report::Wake { transit, leg, waiter } => self.wake_for_pump(transit, leg, waiter),
                Report::Dry { transit, leg } => self.policy.circuits.drained(transit, leg),
                Report::Removed { .. } => {}
                Report::Violated { transit, leg, why } => {
                    self.counters.violations += 1;
                    let port = self
                        .transit_circuits
                        .get(&transit)
                        .and_then(|transit_circuit| transit_circuit.ports.get(leg));
                    let port = port.map(|port| port.0);
                    tracing::warn!(port, %transit, leg, %why, "circuit in transit broken off: a side broke the protocol");
                    self.policy.break_transit(transit);
                }
            }
            self.run_circuits();
        }
        heard
    }

    /// What wakes the pump of a circuit, if that is the waiter which is asked for.
    pub(crate) fn pump_waiter(&self, transit: TransitId, waiter: WaiterId) -> Option<&Receiver> {
        self.pumps.receiver_of(transit).filter(|(mine, _)| *mine == waiter).map(|(_, event)| event)
    }

    /// A neighbour says how a waiter is rung: that is for the pump that asked. Whether one did.
    pub(crate) fn answer_pump(
        &mut self,
        port: PortId,
        (channel, waiter): (ChannelId, WaiterId),
        waker: &mut Option<Waker>,
    ) -> bool {
        let Some(PumpAsk { transit, side, .. }) = self.transit_wakes.answer_pump(port, channel, waiter)
        else {
            return false;
        };
        self.tell_pump(Command::Waker { transit, leg: side, waiter, waker: waker.take() });
        true
    }

    /// Rings a neighbour's waiter by way of its daemon, and finds out how the pump can do it itself next time.
    fn wake_for_pump(&mut self, transit: TransitId, side: usize, waiter: WaiterId) {
        let Some(channel) = self.policy.circuits.channel_of(transit, side) else { return };
        let Some((port, peer)) = self.neighbour_of(channel) else { return };
        self.wake_neighbour(channel, waiter);
        let is_new = self.transit_wakes.ask(PumpAsk { port, channel: peer, waiter, transit, side });
        if let Some(cable) = self.cables.get_mut(port).filter(|_| is_new) {
            cable.want_waker(peer, waiter);
        }
    }

    fn tell_pump(&mut self, command: Command) {
        if let Err(error) = self.pumps.command(command) {
            tracing::warn!(%error, "pump does not do as it is told");
        }
    }
}

impl Provider<'_> {
    /// Memory for a circuit that passes through, for which the neighbour before pays.
    pub(crate) fn make_transit(
        &mut self,
        ports: [PortId; 2],
        asked: &Asked,
    ) -> Result<Prepared<Made>, Refusal> {
        let payer = Payer::Neighbour(ports[BEFORE]);
        let purpose = Purpose::of_transit(asked.resume.is_some());
        let charges = [(Kind::Transits, 1), (Kind::Mappings, MAPPINGS), (Kind::Descriptors, 1)]
            .into_iter()
            .map(|(kind, amount)| self.charge_or_refuse(payer, kind, amount, purpose))
            .collect::<Result<Vec<_>, _>>()?;
        let cable = self.cables.get_mut(ports[BEFORE]).ok_or(Refusal::NoRoute)?;
        let segment = cable.carve_outbound(asked.segment).map_err(|error| not_there(&error))?;
        let mut prepared = if self.can_share(ports) {
            self.share(ports[BEHIND], &segment, (payer, purpose), asked)?
        } else {
            self.prepare_pump(ports, &segment, (payer, purpose), asked)?
        };
        prepared.made.charges = charges;
        Ok(prepared)
    }

    /// Keeps it.
    pub(crate) fn enter_transit(
        &mut self,
        transit: TransitId,
        ports: [PortId; 2],
        channels: [ChannelId; 2],
        made: Made,
    ) {
        if let Some(before) = made.before {
            self.cables.keep(channels[BEFORE], before);
        }
        self.cables.keep(channels[BEHIND], made.behind);
        let transit_circuit = TransitCircuit {
            ports,
            waiter: self.new_waiter(),
            carried: made.carried,
            ring_max: made.len - segment_len(0),
            moves: made.moves,
            _charges: made.charges,
        };
        self.transit_circuits.insert(transit, transit_circuit);
    }

    /// The far half of a circuit is there, behind which so many hosts pump: our ring for the host before, by whose channel it
    /// comes, and how many pump from here on.
    pub(crate) fn carry(
        &mut self,
        transit: TransitId,
        before: ChannelId,
        behind: Ring,
        pumps: u8,
    ) -> Result<(Ring, u8), Plain> {
        match self.transit_circuits.get(&transit).map(|circuit| &circuit.carried) {
            Some(Carried::Shared(_)) => Ok((self.begin_sharing(transit, before, behind)?, pumps)),
            Some(Carried::Pumped(_)) => {
                Ok((self.begin_pumping(transit, behind, pumps == 0)?, pumps.saturating_add(1)))
            }
            None => Err(Plain::System),
        }
    }

    /// Memory of ours on both sides, for a pump between.
    fn prepare_pump(
        &mut self,
        [port, onward]: [PortId; 2],
        segment: &Segment,
        (payer, purpose): (Payer, Purpose),
        asked: &Asked,
    ) -> Result<Prepared<Made>, Refusal> {
        let len = asked.segment.len;
        let outbound = Outbound::map(segment).map_err(|_| Refusal::NoMemory)?;
        let (range, window, inbound) = self.carve_mapped(port, len, payer, purpose)?;
        let (range_behind, window_behind, inbound_behind) =
            match self.carve_mapped(onward, len, payer, purpose) {
                Ok(carved) => carved,
                Err(why) => {
                    self.cables.free_inbound(port, range);
                    return Err(why);
                }
            };
        let inbound = [inbound, inbound_behind];
        let rx_keys = [random::u64(), random::u64()];
        let opening = Some(Opening { inbound, before: outbound, tx_key: asked.key });
        let is_end = asked.pumps == 0;
        let key = rx_keys[BEHIND];
        let made = Made {
            carried: Carried::Pumped(Pumped { opening, range, rx_keys, is_end }),
            before: Some((range, window)),
            behind: (range_behind, window_behind),
            len,
            moves: asked.resume.is_some(),
            charges: Vec::new(),
        };
        let pumps = asked.pumps.saturating_add(1);
        Ok(Prepared { made, behind: Ring { segment: range_behind, key }, pumps })
    }

    /// Memory for one side of a circuit in transit, of which the neighbour before has a share only: else it could use up
    /// what belongs to a cable that is not its own.
    fn carve_mapped(
        &mut self,
        port: PortId,
        len: u64,
        payer: Payer,
        purpose: Purpose,
    ) -> Result<(SegmentRange, Charge, Inbound), Refusal> {
        let Carved { range, window, memory } = self.carve(port, len, payer, purpose).map_err(refusal_of)?;
        match Inbound::map(&memory) {
            Ok(mapped) => Ok((range, window, mapped)),
            Err(_) => {
                self.cables.free_inbound(port, range);
                Err(Refusal::NoMemory)
            }
        }
    }

    /// Has a circuit pumped: our memory for the host before, and its key. `is_end`: no other pump is behind.
    fn begin_pumping(
        &mut self,
        transit: TransitId,
        Ring { segment, key }: Ring,
        is_end: bool,
    ) -> Result<Ring, Plain> {
        let transit_circuit = self.transit_circuits.get(&transit).ok_or(Plain::System)?;
        let (port, ring_max) = (transit_circuit.ports[BEHIND], transit_circuit.ring_max);
        let behind = self.outbound_of(port, segment)?;
        let behind = Outbound::map(&behind).map_err(|_| Plain::System)?;
        let in_flight_ns = self.in_flight_ns(transit);
        let transit_circuit = self.transit_circuits.get_mut(&transit).ok_or(Plain::System)?;
        let waiter = transit_circuit.waiter;
        let Carried::Pumped(pumped) = &mut transit_circuit.carried else { return Err(Plain::System) };
        let Opening { inbound: [in_before, in_behind], before, tx_key } =
            pumped.opening.take().ok_or(Plain::System)?;
        let (rx_keys, ends) = (pumped.rx_keys, [pumped.is_end, is_end]);
        let answer = Ring { segment: pumped.range, key: rx_keys[BEFORE] };
        let leg = |side: usize, inbound, outbound, tx_key| Leg {
            inbound,
            outbound,
            ring_max,
            rx_key: rx_keys[side],
            tx_key,
            is_end: ends[side],
            in_flight_ns: in_flight_ns[side],
        };
        let legs = [leg(BEFORE, in_before, before, tx_key), leg(BEHIND, in_behind, behind, key)];
        self.pumps.command(Command::Add { transit, legs, waiter }).map_err(|error| {
            tracing::warn!(port = port.0, %transit, %error, "circuit is not pumped");
            Plain::System
        })?;
        Ok(answer)
    }

    /// How long stores to the two neighbours of a circuit, and theirs after them, may be under way, ns.
    fn in_flight_ns(&self, transit: TransitId) -> [u32; 2] {
        let of = |port: PortId| self.cables.get(port).map_or(0, Cable::in_flight_ns);
        self.transit_circuits.get(&transit).map_or([0; 2], |transit_circuit| transit_circuit.ports.map(of))
    }
}
