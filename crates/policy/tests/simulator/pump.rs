//! What passes through hosts between: their memory on both sides, and the pump.

use crate::world::{Event, World};
use crosslane_fabric::transit::{BEFORE, BEHIND};
use crosslane_wire::{PortId, TransitId};

/// A circuit through a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    /// Our memory that the hosts before and behind write into.
    pub(crate) inbound: [usize; 2],
    /// Theirs that we write into; that of the host behind once it has answered.
    pub(crate) outbound: [Option<usize>; 2],
    /// The port behind.
    pub(crate) onward: PortId,
    /// Whether they hold the ends.
    ends: [bool; 2],
    draining: [bool; 2],
    awake: bool,
}

impl Passage {
    /// One whose far half is not there yet. `is_end`: the host before holds the end.
    pub(crate) fn new(inbound: [usize; 2], before: usize, onward: PortId, is_end: bool) -> Self {
        Self {
            inbound,
            outbound: [Some(before), None],
            onward,
            ends: [is_end, false],
            draining: [false; 2],
            awake: false,
        }
    }

    /// The far half is there.
    pub(crate) fn begin(&mut self, outbound: usize, is_end: bool) {
        (self.outbound[BEHIND], self.ends[BEHIND]) = (Some(outbound), is_end);
    }
}

impl World {
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
            // Where a side has closed nobody reads: what would go there is dropped, as the daemon's pump does.
            let unheard = passage.draining[1 - side];
            for _ in 0..1 + self.random.below(6) {
                if !unheard && !self.has_room(to) {
                    break;
                }
                let Some(unit) = self.load(from) else { break };
                if !unheard {
                    self.store(to, unit);
                }
            }
            let there = &self.rings[to];
            // The last pump knows what the far program has taken; what only lies in its memory does not count (decision 10).
            let landed = if passage.ends[1 - side] { there.taken() } else { there.landed };
            self.tell_landed(from, landed);
            if !self.is_dry(from) && (unheard || self.has_room(to)) {
                self.wake_pump(host, self.hosts[host].life, transit);
            }
            dry[side] = self.is_dry(from) && passage.draining[side];
        }
        dry
    }

    /// The daemon hears of its pump that sides are dry.
    pub(crate) fn drained(&mut self, host: usize, transit: TransitId, dry: [bool; 2]) {
        for side in [BEFORE, BEHIND].into_iter().filter(|side| dry[*side]) {
            self.policies[host].circuits.drained(transit, side);
        }
    }
}
