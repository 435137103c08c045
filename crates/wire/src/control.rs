//! What two neighbouring daemons tell each other through the control channel, and what they flood on.
//!
//! Messages are [`crate::codec`]-encoded, one to a [`crate::record::Kind::Message`] record.

use crate::{CircuitId, HostId, SliceRange, Tuple, WaiterId};
use serde::{Deserialize, Serialize};

/// Most links in one link-state record; a host has few ports.
pub const MAX_LINKS: usize = 16;

/// One host's view of its own links, flooded with a sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Whose links these are.
    pub origin: HostId,
    /// Random number of the origin's life: two lives at one time are two hosts of one id.
    pub incarnation: u64,
    /// Raised by the origin at each change; the highest within the newest incarnation counts.
    pub sequence: u64,
    /// Hosts that the origin reaches over one cable each.
    pub neighbours: Vec<HostId>,
}

/// Why a daemon did not make a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// No accelerated program listens at that address.
    NoListener,
    /// No window memory left for another pair of slices.
    NoMemory,
    /// A rule on the far side says TCP.
    Rule,
    /// No way to that host, or only one of more than one cable (transit is not built yet).
    NoRoute,
    /// The message was not understood or contradicts an earlier one.
    Protocol,
    /// The far side did not answer in time.
    Timeout,
}

/// A message between two neighbouring daemons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Link states that the receiver may not have.
    LinkStates(Vec<LinkState>),
    /// "Make a circuit for this connection": sent before the connection's SYN.
    Open {
        /// The sender's name for the circuit; answers bear it.
        circuit: CircuitId,
        /// The connection that will be a stream.
        tuple: Tuple,
        /// Where the answerer's program may write: a slice of the sender's inbound memory.
        slice: SliceRange,
        /// Mark key of the ring in `slice`.
        key: u64,
        /// Hosts still to pass behind the receiver; empty for a neighbour. A circuit is a chain of channels.
        route: Vec<HostId>,
    },
    /// The circuit is there.
    Opened {
        /// The name that `Open` bore.
        circuit: CircuitId,
        /// The answerer's name for it.
        peer: CircuitId,
        /// Where the opener's program may write: a slice of the answerer's inbound memory.
        slice: SliceRange,
        /// Mark key of the ring in `slice`.
        key: u64,
    },
    /// The circuit will not be.
    Refused {
        /// The name that `Open` bore.
        circuit: CircuitId,
        /// Why.
        why: Refusal,
    },
    /// The sender's end of the circuit is closed: it writes no more, and its slice may be freed once both are.
    Closed {
        /// The *receiver's* name for the circuit.
        circuit: CircuitId,
        /// Whether the end was broken off rather than closed in order.
        abort: bool,
    },
    /// "Let me ring this waiter of yours": answered with `Bell` and, on a soft cable, the descriptor.
    WantBell {
        /// The *receiver's* name of a circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The waiter.
        waiter: WaiterId,
    },
    /// Answer to `WantBell`.
    Bell {
        /// The waiter.
        waiter: WaiterId,
        /// Handle under which the port gives out the doorbell, or `None` if there is no such waiter.
        doorbell: Option<u64>,
    },
    /// Wake a waiter of the receiver's (when a program cannot hold its doorbell).
    Ring {
        /// The *receiver's* name of a circuit that the waiter sleeps on.
        circuit: CircuitId,
        /// The waiter.
        waiter: WaiterId,
    },
    /// A probe on its way to `to`; hosts between pass it on.
    Echo {
        /// Who asked.
        from: HostId,
        /// Who shall answer.
        to: HostId,
        /// The asker's number for it.
        token: u64,
        /// Hops left before it is dropped.
        ttl: u8,
        /// The answerer's clock when it answered, ns; 0 on the way there.
        stamp: u64,
        /// Whether it is on its way back.
        reply: bool,
    },
    /// The sender goes down in order.
    Goodbye,
}
