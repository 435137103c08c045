//! Circuits whose segments this host hands on, from one neighbour to the other: where both cables are memory of this machine the
//! ends share it directly, and nobody here copies or sleeps for them (decision 33).
//!
//! ```text
//!   host before                     this host                     host behind
//!   Open{segment} ----------> carve_outbound, pass_inbound ------> Open{segment}
//!   Opened{segment} <-------- pass_inbound, carve_outbound <------ Opened{segment}
//!   WantWaker, Wake <-------- each to the other side      -------> WantWaker, Wake
//! ```
//! What stays here are a range of each window, as with a pump, and a mapping of both segments, to count what goes by.

use super::meter::Meter;
use crosslane_shm::{Inbound, Segment};
use crosslane_wire::control::Refusal;

/// Memory of the two ends, as far as it is known here.
#[derive(Debug)]
pub(crate) struct SharedSegments {
    before: Measured,
    pub(super) behind: Option<Measured>,
}

/// The segment that a neighbour gave, and what comes by in it.
#[derive(Debug)]
pub(crate) struct Measured {
    mapped: Inbound,
    meter: Meter,
}

impl Measured {
    /// Counts what comes by in a fresh `segment`, in a ring of at most `ring_max` bytes whose marks have this key.
    pub(crate) fn new(segment: &Segment, ring_max: u64, key: u64) -> Result<Self, Refusal> {
        let mapped = Inbound::map(segment).map_err(|_| Refusal::NoMemory)?;
        Ok(Self { mapped, meter: Meter::new(ring_max, key) })
    }
}

impl SharedSegments {
    /// That of the opener.
    pub(crate) fn new(before: Measured) -> Self {
        Self { before, behind: None }
    }

    /// Bytes of the stream that have come from the host before and from the one behind. What comes from one goes into the
    /// segment that the other gave.
    pub(super) fn traffic(&self) -> [u64; 2] {
        let (before, Some(behind)) = (&self.before, &self.behind) else { return [0; 2] };
        let from_before = behind.meter.look(&behind.mapped, &before.mapped);
        let from_behind = before.meter.look(&before.mapped, &behind.mapped);
        [from_before, from_behind]
    }
}
