//! Hosts between: their memory on both sides, and the pump. The rules are those of `crosslane-node`: its module
//! `transit`, and the pumps.

use crate::dial::{ANSWER, Asked, stream_of};
use crate::memory::{Actor, range_of, ring_at};
use crate::world::{Event, World};
use crosslane_fabric::circuit::Path;
use crosslane_fabric::transit::{BEFORE, BEHIND};
use crosslane_wire::control::{Closing, Control, Refusal};
use crosslane_wire::{HostId, PortId, SegmentRange, TransitId};
use std::collections::BTreeSet;

/// A circuit through a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    /// Our memory that the hosts before and behind write into.
    inbound: [usize; 2],
    /// Theirs that we write into; that of the host behind once it has answered.
    outbound: [Option<usize>; 2],
    /// Whether they hold the ends.
    ends: [bool; 2],
    draining: [bool; 2],
    awake: bool,
}

impl World {
    /// A neighbour asks for a circuit through this host.
    pub(crate) fn pass_on(
        &mut self,
        host: usize,
        port: PortId,
        asked: &Asked,
        mut route: Vec<HostId>,
    ) -> Result<(), Refusal> {
        self.check_route(host, asked, &route);
        let here = &mut self.hosts[host];
        let epoch = here.port(port).up.ok_or(Refusal::Protocol)?;
        let before = Path { port, epoch, hops: asked.passed + 1, pumps: 0 };
        let next = route.remove(0);
        let onward = here.links.port_to(next).filter(|onward| *onward != port).ok_or(Refusal::NoRoute)?;
        let epoch = here.port(onward).up.ok_or(Refusal::NoRoute)?;
        let behind = Path { port: onward, epoch, hops: before.hops, pumps: 0 };
        let ring = self.carve(host, port.0.into()).ok_or(Refusal::NoMemory)?;
        let Some(ring_behind) = self.carve(host, onward.0.into()) else {
            self.give_back(host, port.0.into(), ring);
            return Err(Refusal::NoMemory);
        };
        let late = if asked.resume.is_some() { Closing::Lost } else { Closing::Abort };
        let deadline = self.now + ANSWER;
        let here = &mut self.hosts[host];
        let (transit, channels) = here.circuits.transit(before, asked.channel, behind, (deadline, late));
        here.memory.insert(channels[BEFORE], range_of(ring));
        here.memory.insert(channels[BEHIND], range_of(ring_behind));
        let passage = Passage {
            inbound: [ring, ring_behind],
            outbound: [Some(ring_at(asked.segment)), None],
            ends: [asked.passed == 0, route.is_empty()],
            draining: [false; 2],
            awake: false,
        };
        here.passages.insert(transit, passage);
        here.leaning = true;
        self.counts.transits += 1;
        let open = Control::Open {
            channel: channels[BEHIND],
            tuple: asked.tuple,
            stream: asked.stream,
            segment: range_of(ring_behind),
            key: 1,
            passed: before.hops,
            pumps: 0,
            route,
            resume: asked.resume,
        };
        self.send(host, onward, open);
        Ok(())
    }

    /// A circuit never passes a host twice.
    fn check_route(&mut self, host: usize, asked: &Asked, route: &[HostId]) {
        let client = HostId(u16::try_from(self.streams[stream_of(&asked.tuple)].hosts[0] + 1).unwrap());
        let mut seen = BTreeSet::from([client, self.hosts[host].id]);
        if !route.iter().all(|next| seen.insert(*next)) || asked.passed > 250 {
            self.fail(format!("circuit through host {host} goes in circles: {route:?}"));
        }
    }

    /// The far half of a circuit is there.
    pub(crate) fn passed(&mut self, host: usize, transit: TransitId, segment: SegmentRange, arrived: u64) {
        let here = &mut self.hosts[host];
        let Some(passage) = here.passages.get_mut(&transit) else { return };
        passage.outbound[BEHIND] = Some(ring_at(segment));
        let actor = Actor::Pump(host, here.life, transit);
        let (inbound, outbound) = (passage.inbound, passage.outbound);
        here.circuits.pass(transit, (range_of(inbound[BEFORE]), 1), arrived, 1);
        for ring in inbound {
            self.rings[ring].reader = actor;
        }
        for ring in outbound.into_iter().flatten() {
            self.rings[ring].writer = actor;
        }
        self.wake(actor);
    }

    /// One side closed in order.
    pub(crate) fn drain(&mut self, host: usize, transit: TransitId, side: usize) {
        let life = self.hosts[host].life;
        if let Some(passage) = self.hosts[host].passages.get_mut(&transit) {
            passage.draining[side] = true;
            self.wake_pump(host, life, transit);
        }
    }

    /// A circuit is over.
    pub(crate) fn stop_transit(&mut self, host: usize, transit: TransitId) {
        self.hosts[host].passages.remove(&transit);
    }

    /// The pump has something to do.
    pub(crate) fn wake_pump(&mut self, host: usize, life: u32, transit: TransitId) {
        if self.hosts[host].life != life {
            return;
        }
        if let Some(passage) = self.hosts[host].passages.get_mut(&transit)
            && !passage.awake
        {
            passage.awake = true;
            let pause = self.random.micros(5, 200);
            self.after(pause, Event::Pump(host, life, transit));
        }
    }

    /// Moves some units, tells what has landed; which sides have closed and are pumped dry.
    pub(crate) fn pump(&mut self, host: usize, transit: TransitId) -> [bool; 2] {
        let mut dry = [false; 2];
        let Some(passage) = self.hosts[host].passages.get_mut(&transit) else { return dry };
        passage.awake = false;
        let passage = *passage;
        let [Some(_), Some(_)] = passage.outbound else { return dry };
        for side in [BEFORE, BEHIND] {
            let (from, Some(to)) = (passage.inbound[side], passage.outbound[1 - side]) else { continue };
            for _ in 0..1 + self.random.below(6) {
                if !self.has_room(to) {
                    break;
                }
                let Some(unit) = self.load(from) else { break };
                self.store(to, unit);
            }
            let there = &self.rings[to];
            let landed = if passage.ends[1 - side] { there.written } else { there.landed };
            self.tell_landed(from, landed);
            if !self.is_dry(from) && self.has_room(to) {
                self.wake_pump(host, self.hosts[host].life, transit);
            }
            dry[side] = self.is_dry(from) && passage.draining[side];
        }
        dry
    }

    /// The daemon hears of its pump that sides are dry.
    pub(crate) fn drained(&mut self, host: usize, transit: TransitId, dry: [bool; 2]) {
        for side in [BEFORE, BEHIND].into_iter().filter(|side| dry[*side]) {
            self.hosts[host].circuits.drained(transit, side);
        }
    }
}
