//! What a daemon decides about its neighbours, circuits and streams. The protocol underneath is `crosslane-fabric`'s.
#![forbid(unsafe_code)]

use crosslane_fabric::circuit::Limits;
use crosslane_fabric::{Circuits, Links};
use crosslane_wire::HostId;

/// Everything that a host knows of the network and decides by.
#[derive(Debug)]
pub struct Policy {
    /// Who is where.
    pub links: Links,
    /// Ends of circuits, and circuits that pass through.
    pub circuits: Circuits,
}

impl Policy {
    /// A host without cables and circuits. `incarnation`: see [`Links::new`].
    pub fn new(me: HostId, incarnation: u64, limits: Limits) -> Self {
        Self { links: Links::new(me, incarnation), circuits: Circuits::new(limits) }
    }
}
