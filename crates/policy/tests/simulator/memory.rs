//! Memory of hosts that neighbours write into: rings of numbered units in place of rings of bytes.
//!
//! What was stored lies there until it is read, whatever becomes of the cable, as in the memory of a software port.
//! Every segment is a ring of its own, and none is used for another one later.

use crate::world::World;
use crosslane_wire::segment::{RING_MIN, segment_len};
use crosslane_wire::{SegmentRange, TransitId};
use std::collections::VecDeque;

/// Units that a ring holds.
pub(crate) const RING: u64 = 8;
const SEGMENT: u64 = segment_len(RING_MIN);

/// A byte of a stream, so to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Which stream.
    pub(crate) stream: usize,
    /// Which of its two programs wrote it.
    pub(crate) side: usize,
    /// Its place in that direction of the stream.
    pub(crate) number: u64,
}

/// Who reads or writes a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// Nobody yet.
    Nobody,
    /// A program.
    Program(usize),
    /// A pump of a host in one of its lives.
    Pump(usize, u32, TransitId),
}

/// One segment.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The host and the port in whose inbound memory it lies.
    pub(crate) home: (usize, usize),
    units: VecDeque<Unit>,
    /// Units that were ever written.
    pub(crate) written: u64,
    /// What the reader's side tells the writer: so many of them have reached the far end.
    pub(crate) landed: u64,
    /// It was given back: a store into it would hit whoever has the memory now.
    pub(crate) freed: bool,
    /// Who reads.
    pub(crate) reader: Actor,
    /// Who writes.
    pub(crate) writer: Actor,
}

impl Ring {
    /// A fresh one in the inbound memory of a host's port.
    pub(crate) fn new(home: (usize, usize)) -> Self {
        Self {
            home,
            units: VecDeque::new(),
            written: 0,
            landed: 0,
            freed: false,
            reader: Actor::Nobody,
            writer: Actor::Nobody,
        }
    }

    /// Units that its reader has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.written - u64::try_from(self.units.len()).unwrap()
    }
}

/// Where a ring lies.
pub(crate) fn range_of(ring: usize) -> SegmentRange {
    SegmentRange { offset: u64::try_from(ring + 1).unwrap() * SEGMENT, len: SEGMENT }
}

/// The ring that lies there.
pub(crate) fn ring_at(range: SegmentRange) -> usize {
    usize::try_from(range.offset / SEGMENT).unwrap_or(usize::MAX).wrapping_sub(1)
}

impl World {
    /// Gives a ring back to the window that it was carved from.
    pub(crate) fn give_back(&mut self, host: usize, port: usize, ring: usize) {
        if !self.hosts[host].ports[port].window.remove(&ring) {
            self.fail(format!("host {host} gives ring {ring} back twice"));
        }
        self.rings[ring].freed = true;
    }

    /// Whether a unit can be written.
    pub(crate) fn has_room(&self, ring: usize) -> bool {
        u64::try_from(self.rings[ring].units.len()).unwrap() < RING
    }

    /// Writes a unit, which wakes the reader if it has found nothing.
    pub(crate) fn store(&mut self, ring: usize, unit: Unit) {
        if self.rings[ring].freed {
            let why = format!("{unit:?} is stored into ring {ring}, which was given back");
            self.fail_stream(unit.stream, why);
        }
        let there = &mut self.rings[ring];
        let reader = there.reader;
        let was_dry = there.units.is_empty();
        there.units.push_back(unit);
        there.written += 1;
        if was_dry {
            self.wake(reader);
        }
    }

    /// Reads a unit, if there is one, which wakes the writer if it has found no room.
    pub(crate) fn load(&mut self, ring: usize) -> Option<Unit> {
        let was_full = !self.has_room(ring);
        let unit = self.rings[ring].units.pop_front()?;
        // A pump tells its sender what was taken.
        if was_full || matches!(self.rings[ring].writer, Actor::Pump(..)) {
            self.wake(self.rings[ring].writer);
        }
        Some(unit)
    }

    /// Whether there is nothing to read.
    pub(crate) fn is_dry(&self, ring: usize) -> bool {
        self.rings[ring].units.is_empty()
    }

    /// Tells the writer what has landed.
    pub(crate) fn tell_landed(&mut self, ring: usize, landed: u64) {
        if self.rings[ring].landed != landed {
            self.rings[ring].landed = landed;
            self.wake(self.rings[ring].writer);
        }
    }
}
