//! Circuits through this host: decision 10. Their bytes are the pumps' ([`crate::pump`]), or go by without us (`shared`,
//! decision 33).

mod meter;
mod shared;

pub(crate) use shared::{Measured, SharedSegments};

use crate::pump::{AddError, Command, Leg, Pumps, Report};
use crate::quota::Charge;
use core::ops::Bound::{Excluded, Unbounded};
use crosslane_fabric::transit::{BEFORE, BEHIND};
use crosslane_policy::Ring;
use crosslane_shm::wake::Receiver;
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::{PortId, SegmentRange, TransitId, WaiterId};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Threads that pump.
const THREADS: usize = 1;

/// A circuit through this host whose far half is not there yet, or is pumped.
#[derive(Debug)]
pub(crate) struct TransitCircuit {
    /// Its ports, before and behind.
    pub(crate) ports: [PortId; 2],
    /// By which both neighbours name its pump when they wake it.
    pub(crate) waiter: WaiterId,
    /// How its bytes get from one neighbour to the other.
    pub(crate) carried: Carried,
    /// Most bytes of each ring.
    pub(crate) ring_max: u64,
    /// Whether it is of a stream that goes on.
    pub(crate) moves: bool,
    /// What the neighbour before pays for it.
    pub(crate) _charges: Vec<Charge>,
}

/// How the bytes of a circuit get from one neighbour to the other.
#[derive(Debug)]
pub(crate) enum Carried {
    /// A pump copies them.
    Pumped(Pumped),
    /// Both ends share memory, and need nobody.
    Shared(SharedSegments),
}

/// A circuit that is pumped.
#[derive(Debug)]
pub(crate) struct Pumped {
    /// What the opener said, and our memory on both sides, until the pump has them.
    pub(crate) opening: Option<Opening>,
    /// Our memory that the host before writes.
    pub(crate) range: SegmentRange,
    /// Keys of the rings in our memory.
    pub(crate) rx_keys: [u64; 2],
    /// Whether there is no other pump between here and the opener.
    pub(crate) is_end: bool,
}

/// What a pump gets when the far half of its circuit is there.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Our memory on both sides.
    pub(crate) inbound: [Inbound; 2],
    /// The opener's.
    pub(crate) before: Outbound,
    /// The key of the opener's ring.
    pub(crate) tx_key: u64,
}

/// What a circuit through this host has moved: bytes of payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Through {
    /// By each of its two ports: sent, received.
    pub(crate) by_port: [(PortId, (u64, u64)); 2],
    /// Both directions.
    pub(crate) bytes: u64,
}

/// All circuits through this host, and their pumps.
#[derive(Debug)]
pub struct Transits {
    all: BTreeMap<TransitId, TransitCircuit>,
    pumps: Pumps,
}

impl Transits {
    /// None yet. While nothing moves a pump polls for up to `spin`, if that has paid lately.
    pub(crate) fn new(spin: Duration) -> Result<Self, Errno> {
        Ok(Self { all: BTreeMap::new(), pumps: Pumps::new(THREADS, spin)? })
    }

    /// Readable when pumps have something to say.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.pumps.event_fd()
    }

    /// What a pump has to say next.
    pub(crate) fn poll_report(&mut self) -> Option<Report> {
        self.pumps.poll_report()
    }

    /// Enters a circuit.
    pub(crate) fn add(&mut self, transit: TransitId, circuit: TransitCircuit) {
        self.all.insert(transit, circuit);
    }

    /// A circuit.
    pub(crate) fn get(&self, transit: TransitId) -> Option<&TransitCircuit> {
        self.all.get(&transit)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether a pump is named so when it is woken.
    pub(crate) fn has_waiter(&self, waiter: WaiterId) -> bool {
        self.all.values().any(|circuit| circuit.waiter == waiter)
    }

    /// What the circuits after `last` have moved, in the order of their ids.
    pub(crate) fn after(&self, last: Option<TransitId>) -> impl Iterator<Item = (TransitId, Through)> {
        let circuits = self.all.range((last.map_or(Unbounded, Excluded), Unbounded));
        circuits.map(|(transit, circuit)| (*transit, self.through_of(*transit, circuit)))
    }

    /// What a circuit has moved.
    pub(crate) fn through(&self, transit: TransitId) -> Option<Through> {
        self.get(transit).map(|circuit| self.through_of(transit, circuit))
    }

    /// Of shared memory the ends say what they moved, and may say anything.
    fn through_of(&self, transit: TransitId, circuit: &TransitCircuit) -> Through {
        let [before, behind] = match &circuit.carried {
            Carried::Shared(shared) => shared.traffic(),
            Carried::Pumped(_) => self.pumps.traffic(transit),
        };
        let by_port = [(circuit.ports[BEFORE], (behind, before)), (circuit.ports[BEHIND], (before, behind))];
        Through { by_port, bytes: before.wrapping_add(behind) }
    }

    /// The port on the other side of a circuit whose segments were handed on.
    pub(crate) fn opposite(&self, transit: TransitId, side: usize) -> Option<PortId> {
        let circuit = self.get(transit)?;
        matches!(circuit.carried, Carried::Shared(_)).then_some(circuit.ports[1 - side])
    }

    /// The far half of a circuit is there, in whose memory this counts what comes by: the ends share it from now on.
    pub(crate) fn share(&mut self, transit: TransitId, measured: Measured) {
        if let Some(TransitCircuit { carried: Carried::Shared(shared), .. }) = self.all.get_mut(&transit) {
            shared.behind = Some(measured);
        }
    }

    /// The far half of a circuit is there: it is pumped from now on, into `behind`, whose ring has this key; `is_end`: no other
    /// pump is behind. Our ring for the host before; `None` if there is nothing to be pumped.
    pub(crate) fn pump(
        &mut self,
        transit: TransitId,
        (behind, key): (Outbound, u64),
        is_end: bool,
        in_flight_ns: [u32; 2],
    ) -> Result<Option<Ring>, AddError> {
        let Some(TransitCircuit { carried: Carried::Pumped(pumped), ring_max, waiter, .. }) =
            self.all.get_mut(&transit)
        else {
            return Ok(None);
        };
        let Some(Opening { inbound: [in_before, in_behind], before, tx_key }) = pumped.opening.take() else {
            return Ok(None);
        };
        let (rx_keys, ends) = (pumped.rx_keys, [pumped.is_end, is_end]);
        let leg = |side: usize, inbound, outbound, tx_key| Leg {
            inbound,
            outbound,
            ring_max: *ring_max,
            rx_key: rx_keys[side],
            tx_key,
            is_end: ends[side],
            in_flight_ns: in_flight_ns[side],
        };
        let legs = [leg(BEFORE, in_before, before, tx_key), leg(BEHIND, in_behind, behind, key)];
        self.pumps.command(Command::Add { transit, legs, waiter: *waiter })?;
        Ok(Some(Ring { segment: pumped.range, key: rx_keys[BEFORE] }))
    }

    /// One side closed in order: what it wrote is pumped on, if it is not there already. Whether it is.
    pub(crate) fn drain(&mut self, transit: TransitId, side: usize) -> bool {
        let is_there = self.opposite(transit, side).is_some();
        if !is_there {
            self.tell_pump(Command::Drain { transit, leg: side });
        }
        is_there
    }

    /// A circuit is over: what it has moved, if its far half was there.
    pub(crate) fn stop(&mut self, transit: TransitId) -> Option<Through> {
        let circuit = self.all.remove(&transit)?;
        let through = self.through_of(transit, &circuit);
        if let Carried::Pumped(pumped) = &circuit.carried {
            if pumped.opening.is_some() {
                return None;
            }
            self.tell_pump(Command::Remove { transit });
        }
        Some(through)
    }

    /// What wakes the pump of a circuit, if that is the waiter which is asked for.
    pub(crate) fn waiter(&self, transit: TransitId, waiter: WaiterId) -> Option<&Receiver> {
        self.pumps.receiver_of(transit).filter(|(mine, _)| *mine == waiter).map(|(_, event)| event)
    }

    /// Commands the pump of a circuit.
    pub(crate) fn tell_pump(&mut self, command: Command) {
        if let Err(error) = self.pumps.command(command) {
            tracing::warn!(%error, "pump does not do as it is told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::Segment;
    use crosslane_shm::mem::new_segment;
    use crosslane_wire::segment::{RING_MIN, segment_len};

    const PORTS: [PortId; 2] = [PortId(3), PortId(4)];

    fn segment() -> Segment {
        let len = segment_len(RING_MIN);
        Segment::sealed(new_segment("test", len).unwrap(), len)
    }

    fn measured() -> Measured {
        Measured::new(&segment(), RING_MIN, 1).unwrap()
    }

    /// With a circuit that is pumped and one whose segments are handed on; the far half of neither is there.
    fn transits() -> (Transits, TransitId, TransitId) {
        let mut transits = Transits::new(Duration::ZERO).unwrap();
        let inbound = [segment(), segment()].map(|segment| Inbound::map(&segment).unwrap());
        let opening = Opening { inbound, before: Outbound::map(&segment()).unwrap(), tx_key: 9 };
        let range = SegmentRange { offset: 0, len: segment_len(RING_MIN) };
        let pumped = Pumped { opening: Some(opening), range, rx_keys: [5, 6], is_end: true };
        let shared = SharedSegments::new(measured());
        let [first, second] = [TransitId(1), TransitId(2)];
        for (transit, carried) in [(first, Carried::Pumped(pumped)), (second, Carried::Shared(shared))] {
            let waiter = WaiterId(100 + u32::try_from(transit.0).unwrap());
            let (ring_max, charges) = (RING_MIN, Vec::new());
            transits.add(
                transit,
                TransitCircuit { ports: PORTS, waiter, carried, ring_max, moves: false, _charges: charges },
            );
        }
        (transits, first, second)
    }

    #[test]
    fn pumped_circuit_begins_once_and_counts_from_then_on() {
        let (mut transits, pumped, _) = transits();
        let behind = || (Outbound::map(&segment()).unwrap(), 7);
        assert!(transits.waiter(pumped, WaiterId(101)).is_none(), "nobody sleeps yet");
        let ring = transits.pump(pumped, behind(), true, [0; 2]).unwrap().unwrap();
        assert_eq!(ring.key, 5);
        assert!(transits.pump(pumped, behind(), true, [0; 2]).unwrap().is_none());
        assert!(transits.waiter(pumped, WaiterId(101)).is_some());
        assert!(transits.waiter(pumped, WaiterId(102)).is_none(), "that is another's");
        assert!(!transits.drain(pumped, BEFORE) && transits.opposite(pumped, BEFORE).is_none());
        assert!(transits.stop(pumped).is_some() && transits.stop(pumped).is_none());
    }

    #[test]
    fn circuit_whose_far_half_never_came_has_moved_nothing() {
        let (mut transits, pumped, shared) = transits();
        assert_eq!(transits.after(None).map(|(transit, _)| transit).collect::<Vec<_>>(), [pumped, shared]);
        assert!(transits.stop(pumped).is_none());
        assert_eq!(transits.stop(shared).map(|through| through.bytes), Some(0));
        assert_eq!(transits.len(), 0);
    }

    #[test]
    fn shared_circuit_needs_no_pump() {
        let (mut transits, pumped, shared) = transits();
        transits.share(pumped, measured());
        transits.share(shared, measured());
        assert_eq!([0, 1].map(|side| transits.opposite(shared, side)), [Some(PORTS[1]), Some(PORTS[0])]);
        assert!(transits.drain(shared, BEHIND), "it is there already");
        assert_eq!(transits.through(shared).unwrap().by_port.map(|(port, _)| port), PORTS);
        assert!(
            transits.after(Some(pumped)).count() == 1 && transits.waiter(shared, WaiterId(102)).is_none()
        );
        assert!(transits.has_waiter(WaiterId(102)) && !transits.has_waiter(WaiterId(7)));
    }
}
