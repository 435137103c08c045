//! Circuits through this host, with what they need of the others: their memory, and who is woken. The state machine is
//! `crosslane_fabric::transit`; how their bytes go by is [`crate::transit`].

mod wakes;

use super::{Carved, Host, Provider, not_there, refusal_of};
use crate::cable::Cable;
use crate::pump::Report;
use crate::quota::{Charge, Kind, Payer, Purpose};
use crate::random;
use crate::transit::{Carried, Measured, Opening, Pumped, SharedSegments, TransitCircuit};
use crosslane_fabric::transit::{BEFORE, BEHIND};
use crosslane_policy::{Asked, Prepared, Ring};
use crosslane_shm::{Inbound, Outbound, Segment};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{ChannelId, PortId, SegmentRange, TransitId};

/// Most reports of pumps that are heard in one turn: a program that is rung at each record must not keep the others
/// waiting.
const BATCH: usize = 256;
/// Mappings of a circuit through this host, and its descriptor: what wakes its pump.
const MAPPINGS: u64 = 4;

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
        if self.transits.drain(transit, side) {
            self.policy.circuits.drained(transit, side);
        }
    }

    /// A circuit through this host is over.
    pub(crate) fn stop_transit(&mut self, transit: TransitId) {
        self.transit_wakes.forget(transit);
        self.copy_transit_early(transit);
        let Some(through) = self.transits.stop(transit) else { return };
        self.counters.transit_bytes = self.counters.transit_bytes.wrapping_add(through.bytes);
        for (port, moved) in through.by_port {
            self.cables.count_past(port, moved);
        }
    }

    /// What the pumps have to say, a part of it at a time; whether there was anything.
    pub fn hear_pumps(&mut self) -> bool {
        let mut heard = false;
        for _ in 0..BATCH {
            let Some(report) = self.transits.poll_report() else { break };
            heard = true;
            match report {
                Report::Wake { transit, leg, waiter } => self.wake_for_pump(transit, leg, waiter),
                Report::Dry { transit, leg } => self.policy.circuits.drained(transit, leg),
                Report::Removed { .. } => {}
                Report::Violated { transit, leg, why } => {
                    self.counters.violations += 1;
                    let port = self.transits.get(transit).and_then(|circuit| circuit.ports.get(leg));
                    let port = port.map(|port| port.0);
                    tracing::warn!(port, %transit, leg, %why, "circuit in transit broken off: a side broke the protocol");
                    self.policy.break_transit(transit);
                }
            }
            self.run_circuits();
        }
        heard
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
            self.prepare_sharing(ports[BEHIND], &segment, (payer, purpose), asked)?
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
        let Made { carried, before, behind, len, moves, charges } = made;
        if let Some(before) = before {
            self.cables.keep(channels[BEFORE], before);
        }
        self.cables.keep(channels[BEHIND], behind);
        let (waiter, ring_max) = (self.new_waiter(), len - segment_len(0));
        self.transits
            .add(transit, TransitCircuit { ports, waiter, carried, ring_max, moves, _charges: charges });
    }

    /// The far half of a circuit is there, behind which so many hosts pump: our ring for the host before, by whose channel it
    /// comes, and how many pump from here on.
    pub(crate) fn carry(
        &mut self,
        transit: TransitId,
        before: ChannelId,
        Ring { segment, key }: Ring,
        pumps: u8,
    ) -> Result<(Ring, u8), Plain> {
        let circuit = self.transits.get(transit).ok_or(Plain::System)?;
        let (ports, ring_max) = (circuit.ports, circuit.ring_max);
        let purpose = Purpose::of_transit(circuit.moves);
        let is_shared = matches!(circuit.carried, Carried::Shared(_));
        let [port, onward] = ports;
        let given = self.outbound_of(onward, segment)?;
        if is_shared {
            let measured = Measured::new(&given, ring_max, key).map_err(Plain::Refused)?;
            let (range, window) = self.pass_segment(port, &given, Payer::Neighbour(port), purpose)?;
            self.cables.keep(before, (range, window));
            self.transits.share(transit, measured);
            return Ok((Ring { segment: range, key }, pumps));
        }
        let behind = Outbound::map(&given).map_err(|_| Plain::System)?;
        // How long stores to the two neighbours, and theirs after them, may be under way.
        let in_flight_ns = ports.map(|port| self.cables.get(port).map_or(0, Cable::in_flight_ns));
        let ring = self.transits.pump(transit, (behind, key), pumps == 0, in_flight_ns);
        let ring = ring.map_err(|error| {
            tracing::warn!(port = onward.0, %transit, %error, "circuit is not pumped");
            Plain::System
        })?;
        Ok((ring.ok_or(Plain::System)?, pumps.saturating_add(1)))
    }

    /// Whether what one of these neighbours gives can be handed on to the other.
    fn can_share(&self, ports: [PortId; 2]) -> bool {
        let is_shared = |port: &PortId| self.cables.get(*port).is_some_and(Cable::is_shared_memory);
        !self.config.pump && ports.iter().all(is_shared)
    }

    /// Hands the opener's segment on to the host behind.
    fn prepare_sharing(
        &mut self,
        onward: PortId,
        segment: &Segment,
        (payer, purpose): (Payer, Purpose),
        asked: &Asked,
    ) -> Result<Prepared<Made>, Refusal> {
        let before = Measured::new(segment, segment.info.len - segment_len(0), asked.key)?;
        let behind = self.pass_segment(onward, segment, payer, purpose).map_err(refusal_of)?;
        let carried = Carried::Shared(SharedSegments::new(before));
        let (len, moves) = (segment.info.len, asked.resume.is_some());
        let ring = Ring { segment: behind.0, key: asked.key };
        let made = Made { carried, before: None, behind, len, moves, charges: Vec::new() };
        Ok(Prepared { made, behind: ring, pumps: asked.pumps })
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
}
