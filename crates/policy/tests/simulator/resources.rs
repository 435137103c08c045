//! What a host's policy asks for: simulated memory, and programs that always listen.

use crate::connection::{host_of, stream_of};
use crate::ends::{Parts, Segments};
use crate::host::Host;
use crate::memory::{Actor, Ring as There, range_of, ring_at};
use crate::network::Cable;
use crate::program::{Outcome, Program, Stream};
use crate::pump::Passage;
use crate::random::Random;
use crate::world::{Counts, World};
use crosslane_fabric::circuit::{End, Path};
use crosslane_policy::{Asked, Policy, Prepared, Purpose, Resources, Ring, Size};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, TransitId};
use std::net::IpAddr;

/// All that there is of the world for one host's policy.
pub(crate) struct Simulated<'a> {
    host: usize,
    here: &'a mut Host,
    rings: &'a mut Vec<There>,
    programs: &'a mut Vec<Program>,
    streams: &'a [Stream],
    cables: &'a [Cable],
    secrets: &'a mut Random,
    counts: &'a mut Counts,
    woken: &'a mut Vec<Actor>,
}

impl World {
    /// A host's policy, and what it may ask.
    pub(crate) fn split(&mut self, host: usize) -> (&mut Policy, Simulated<'_>) {
        let resources = Simulated {
            host,
            here: &mut self.hosts[host],
            rings: &mut self.rings,
            programs: &mut self.programs,
            streams: &self.streams,
            cables: &self.cables,
            secrets: &mut self.secrets,
            counts: &mut self.counts,
            woken: &mut self.woken,
        };
        (&mut self.policies[host], resources)
    }

    /// Wakes those that came into the possession of something.
    pub(crate) fn settle(&mut self) {
        for actor in std::mem::take(&mut self.woken) {
            self.wake(actor);
        }
    }
}

fn ring(ring: usize) -> Ring {
    Ring { segment: range_of(ring), key: 1 }
}

impl Simulated<'_> {
    /// A new ring in a port's window, if there is room.
    fn carve(&mut self, port: PortId) -> Result<usize, Refusal> {
        let home = (self.host, usize::from(port.0));
        let there = &mut self.here.ports[home.1];
        there.up.ok_or(Refusal::NoRoute)?;
        if there.window.len() >= there.room {
            return Err(Refusal::NoMemory);
        }
        let ring = self.rings.len();
        there.window.insert(ring);
        self.rings.push(There::new(home));
        Ok(ring)
    }

    /// A ring of the neighbour's at a port.
    fn carve_outbound(&self, port: PortId, segment: SegmentRange) -> Result<usize, Refusal> {
        let port = usize::from(port.0);
        self.here.ports[port].up.ok_or(Refusal::NoRoute)?;
        let (cable, side) = self.here.plugs[port].ok_or(Refusal::NoRoute)?;
        let ring = ring_at(segment);
        let is_there = self.rings.get(ring).is_some_and(|it| it.home == self.cables[cable].ends[1 - side]);
        if is_there && range_of(ring) == segment { Ok(ring) } else { Err(Refusal::Protocol) }
    }

    fn give_back(&mut self, port: PortId, ring: usize) {
        self.here.ports[usize::from(port.0)].window.remove(&ring);
        self.rings[ring].freed = true;
    }
}

impl Resources for Simulated<'_> {
    type Payer = ();
    type End = usize;
    type Attempt = usize;
    type Answer = Segments;
    type Transit = Passage;

    fn host_of(&self, address: IpAddr) -> Option<HostId> {
        host_of(address)
    }

    fn random(&mut self) -> u64 {
        self.secrets.next()
    }

    fn busy(&mut self, _: PortId) -> usize {
        0
    }

    fn payer(&mut self, circuit: CircuitId) -> Option<()> {
        self.here.parts.contains_key(&circuit).then_some(())
    }

    fn attempt(&mut self, (): (), path: Path, _: Purpose, _: Size) -> Result<(usize, Ring), Plain> {
        let carved = self.carve(path.port).map_err(Plain::Refused)?;
        Ok((carved, ring(carved)))
    }

    fn begin(&mut self, circuit: CircuitId, program: usize) {
        self.here.parts.insert(circuit, Parts { program: Some(program), ..Parts::default() });
        self.programs[program].circuit = circuit;
    }

    fn keep_attempt(&mut self, circuit: CircuitId, channel: ChannelId, generation: u32, inbound: usize) {
        self.here.memory.insert(channel, range_of(inbound));
        if let Some(parts) = self.here.parts.get_mut(&circuit) {
            parts.attempt = Some(Segments::new(generation, inbound));
        }
    }

    fn drop_attempt(&mut self, port: PortId, inbound: usize) {
        self.give_back(port, inbound);
    }

    fn forget_attempt(&mut self, circuit: CircuitId) {
        if let Some(parts) = self.here.parts.get_mut(&circuit) {
            parts.attempt = None;
        }
    }

    fn complete(
        &mut self,
        (circuit, end): (CircuitId, &End),
        port: PortId,
        ring: Ring,
        (before, arrived): (u64, u64),
    ) -> Result<(), Plain> {
        let outbound = Some(self.carve_outbound(port, ring.segment).map_err(Plain::Refused)?);
        let parts = self.here.parts.get_mut(&circuit).ok_or(Plain::System)?;
        let attempt = parts.attempt.take().ok_or(Plain::System)?;
        let retained = end.hops > 1;
        parts.segments.push_back(Segments { outbound, before, arrived, retained, ..attempt });
        Ok(())
    }

    fn arrived(&mut self, circuit: CircuitId) -> Option<u64> {
        let parts = self.here.parts.get_mut(&circuit)?;
        parts.trim(self.programs);
        let newest = parts.segments.back()?;
        Some(newest.before + self.rings[newest.inbound].written)
    }

    fn stop_and_count(&mut self, circuit: CircuitId, _: &End) -> Option<u64> {
        // Programs look at the end's state itself.
        self.arrived(circuit)
    }

    fn is_held(&self, circuit: CircuitId, end: &End) -> Option<bool> {
        let program = self.here.parts.get(&circuit).and_then(|parts| parts.program);
        // One that nobody has accepted is held by the kernel for as long as its client has it.
        let program =
            program.or_else(|| self.streams.get(stream_of(&end.tuple)?).and_then(|it| it.programs[0]));
        Some(program.is_some_and(|program| self.programs[program].outcome.is_none()))
    }

    fn is_lost(&self, circuit: CircuitId) -> bool {
        let program = self.here.parts.get(&circuit).and_then(|parts| parts.program);
        program.is_some_and(|program| self.programs[program].outcome == Some(Outcome::Killed))
    }

    fn is_orphaned(&self, circuit: CircuitId) -> bool {
        self.is_lost(circuit)
    }

    fn admit(&mut self, port: PortId, asked: &Asked) -> Result<(Segments, Ring), Refusal> {
        let outbound = Some(self.carve_outbound(port, asked.segment)?);
        let inbound = self.carve(port)?;
        let retained = asked.passed > 0;
        Ok((Segments { outbound, retained, ..Segments::new(0, inbound) }, ring(inbound)))
    }

    fn keep_answer(&mut self, circuit: CircuitId, channel: ChannelId, segments: Segments) {
        self.here.memory.insert(channel, range_of(segments.inbound));
        self.here.parts.insert(circuit, Parts { segments: [segments].into(), ..Parts::default() });
    }

    fn drop_answer(&mut self, port: PortId, segments: Segments) {
        self.give_back(port, segments.inbound);
    }

    fn answer_move(
        &mut self,
        (circuit, _): (CircuitId, &End),
        channel: ChannelId,
        (port, asked): (PortId, &Asked),
        before: u64,
    ) -> Result<Ring, Refusal> {
        let outbound = Some(self.carve_outbound(port, asked.segment)?);
        let inbound = self.carve(port)?;
        self.here.memory.insert(channel, range_of(inbound));
        let fresh = Segments::new(asked.generation(), inbound);
        let segments = Segments { outbound, before, retained: asked.passed > 0, ..fresh };
        if let Some(parts) = self.here.parts.get_mut(&circuit) {
            parts.segments.push_back(segments);
        }
        Ok(ring(inbound))
    }

    fn prepare_transit(&mut self, ports: [PortId; 2], asked: &Asked) -> Result<Prepared<Passage>, Refusal> {
        let outbound = self.carve_outbound(ports[0], asked.segment)?;
        let before = self.carve(ports[0])?;
        let behind = self.carve(ports[1]).inspect_err(|_| self.give_back(ports[0], before))?;
        let made = Passage::new([before, behind], outbound, ports[1], asked.pumps == 0);
        self.counts.transits += 1;
        Ok(Prepared { made, behind: ring(behind), pumps: asked.pumps.saturating_add(1) })
    }

    fn keep_transit(&mut self, transit: TransitId, _: [PortId; 2], channels: [ChannelId; 2], made: Passage) {
        for (channel, ring) in channels.into_iter().zip(made.inbound) {
            self.here.memory.insert(channel, range_of(ring));
        }
        self.here.passages.insert(transit, made);
    }

    fn begin_transit(
        &mut self,
        transit: TransitId,
        _: ChannelId,
        behind: Ring,
        pumps: u8,
    ) -> Result<(Ring, u8), Plain> {
        let onward = self.here.passages.get(&transit).ok_or(Plain::System)?.onward;
        let outbound = self.carve_outbound(onward, behind.segment).map_err(Plain::Refused)?;
        let passage = self.here.passages.get_mut(&transit).ok_or(Plain::System)?;
        passage.begin(outbound, pumps == 0);
        let actor = Actor::Pump(self.host, self.here.life, transit);
        for ring in passage.inbound {
            self.rings[ring].reader = actor;
        }
        for ring in passage.outbound.into_iter().flatten() {
            self.rings[ring].writer = actor;
        }
        self.woken.push(actor);
        Ok((ring(passage.inbound[0]), pumps.saturating_add(1)))
    }
}
