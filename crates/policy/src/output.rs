//! What the policy wants done, and what it has to say.

use crosslane_fabric::circuit::Death;
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, Epoch, HostId, PortId, TransitId};
use std::time::Duration;

/// What shall be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send to the neighbour at `port`.
    Send {
        /// Our port.
        port: PortId,
        /// The message.
        message: Control,
    },
    /// Take the cable down: its neighbour shuts down, or broke the protocol.
    BreakOff {
        /// Our port.
        port: PortId,
        /// Which of the two.
        death: Death,
        /// For people.
        why: String,
    },
    /// The first segments of an end that a program asked for are complete: the program gets them.
    Granted {
        /// The end.
        circuit: CircuitId,
    },
    /// The circuit that a program asked for will not be; the end is gone next.
    Refused {
        /// The end.
        circuit: CircuitId,
        /// Why.
        why: Refusal,
    },
    /// The neighbour made a circuit that cannot be used: the end is broken off, and its program told why.
    Unusable {
        /// The end.
        circuit: CircuitId,
        /// Why.
        why: Plain,
    },
    /// The end's circuit is lost; its programs stop until it has another.
    Moving {
        /// The end.
        circuit: CircuitId,
    },
    /// The end goes on over its newest circuit: its programs get those segments. If its program is gone,
    /// [`crosslane_fabric::Circuits::finish`] follows.
    GoesOn {
        /// The end.
        circuit: CircuitId,
        /// Units of the stream that have arrived at the far end.
        arrived: u64,
    },
    /// The programs that hold the end must hear that it is dead.
    Died {
        /// The end.
        circuit: CircuitId,
        /// Why.
        death: Death,
    },
    /// The far end was closed or is lost while ours is still held.
    FarClosed {
        /// The end.
        circuit: CircuitId,
    },
    /// Nobody holds the end any more, since some time ago if `late`: it is closed here next.
    NobodyHolds {
        /// The end.
        circuit: CircuitId,
        /// Nobody has said so in that time.
        late: bool,
    },
    /// The accepting side asks whether the socket of this end became the connection:
    /// [`crosslane_fabric::Circuits::tell_proof`] follows.
    Prove {
        /// The end.
        circuit: CircuitId,
    },
    /// The connecting side's daemon says whether the socket of its end is the connection.
    Proven {
        /// Our end.
        circuit: CircuitId,
        /// Whether it is.
        is_so: bool,
    },
    /// The end is gone.
    Free {
        /// The end.
        circuit: CircuitId,
    },
    /// A channel is gone: nobody writes into its memory any more.
    Freed {
        /// Which.
        channel: ChannelId,
        /// Its port.
        port: PortId,
        /// The cable's epoch when it was made.
        epoch: Epoch,
    },
    /// One side of a circuit in transit closed in order: what it wrote is passed on, then
    /// [`crosslane_fabric::Circuits::drained`] follows.
    Drain {
        /// The circuit.
        transit: TransitId,
        /// Which of its two channels.
        side: usize,
    },
    /// A circuit in transit is over; nothing more is passed on.
    Stop {
        /// The circuit.
        transit: TransitId,
    },
    /// Nothing is to be done: this is for people and counters.
    Notice(Notice),
}

/// What people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A cable flaps: it is used only when it has stayed up for so long.
    Held {
        /// Our port.
        port: PortId,
        /// How long.
        hold: Duration,
    },
    /// The cable is used from now on.
    Used {
        /// Our port.
        port: PortId,
    },
    /// The neighbour does not answer; streams through it take other ways.
    Silent {
        /// Our port.
        port: PortId,
        /// Who is there.
        peer: HostId,
    },
    /// It answers again.
    Answers {
        /// Our port.
        port: PortId,
        /// Who is there.
        peer: HostId,
    },
    /// Ways have changed: these hosts can be reached.
    InReach {
        /// Their ids.
        hosts: Vec<HostId>,
        /// Whether another host has our id.
        duplicate_id: bool,
    },
    /// What the neighbour said contradicts what was before, or cannot be: it was left aside.
    Contradiction {
        /// Our port.
        port: PortId,
        /// What.
        why: String,
    },
}
