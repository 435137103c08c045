//! Actions that the policy asks its caller for, and its notices.

use crosslane_fabric::circuit::Death;
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, Epoch, HostId, PortId, TransitId};
use std::time::Duration;

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send to the neighbour at `port`.
    Send {
        /// This host's port.
        port: PortId,
        /// The message.
        message: Control,
    },
    /// Take the cable down: its neighbour shuts down, or broke the protocol.
    BreakOff {
        /// This host's port.
        port: PortId,
        /// Which of the two.
        death: Death,
        /// The reason, for display.
        why: String,
    },
    /// The first segments of an end that a program requested are complete: give them to the program.
    Granted {
        /// The end.
        circuit: CircuitId,
    },
    /// The circuit that a program requested cannot be made; the end is removed next.
    Refused {
        /// The end.
        circuit: CircuitId,
        /// The reason.
        why: Refusal,
    },
    /// The neighbour made a circuit that cannot be used: abort the end and tell its program the reason.
    Unusable {
        /// The end.
        circuit: CircuitId,
        /// The reason.
        why: Plain,
    },
    /// The end's circuit is lost; its programs must stop until it has another.
    Moving {
        /// The end.
        circuit: CircuitId,
    },
    /// The end goes on over its newest circuit: give its programs those segments. If its program has ended, the caller
    /// calls [`crosslane_fabric::Circuits::finish`].
    GoesOn {
        /// The end.
        circuit: CircuitId,
        /// Stream offset that has arrived at the far end.
        arrived: u64,
    },
    /// The end is dead: tell the programs that hold it, and give them all segments that the end has. What arrived in those of a
    /// circuit that never went on counts, since the far side may have heard that it landed.
    Died {
        /// The end.
        circuit: CircuitId,
        /// The reason.
        death: Death,
    },
    /// The far end was closed or is lost while this one is still open.
    FarClosed {
        /// The end.
        circuit: CircuitId,
    },
    /// No process holds the end any more, for some time already if `late`: it is closed next.
    NobodyHolds {
        /// The end.
        circuit: CircuitId,
        /// Whether a whole interval has passed without a `Close`.
        late: bool,
    },
    /// The accepting side asks whether the connection is that of this end's socket: the caller calls
    /// [`crosslane_fabric::Circuits::tell_proof`].
    Prove {
        /// The end.
        circuit: CircuitId,
    },
    /// The connecting side's daemon answers whether the connection is that of its end's socket.
    Proven {
        /// This host's end.
        circuit: CircuitId,
        /// Whether it is.
        is_so: bool,
    },
    /// The end is removed.
    Free {
        /// The end.
        circuit: CircuitId,
    },
    /// A channel is removed: no host writes into its memory any more.
    Freed {
        /// The channel.
        channel: ChannelId,
        /// Its port.
        port: PortId,
        /// The cable's epoch when it was made.
        epoch: Epoch,
    },
    /// One side of a circuit in transit closed in order: forward all that it wrote, then call [`crosslane_fabric::Circuits::drained`].
    Drain {
        /// The circuit.
        transit: TransitId,
        /// Index of the side's channel.
        side: usize,
    },
    /// A circuit in transit is over; forward nothing more.
    Stop {
        /// The circuit.
        transit: TransitId,
    },
    /// No action: information for display and counters.
    Notice(Notice),
}

/// Information for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A cable flaps: it is used only when it has stayed up for this long.
    Held {
        /// This host's port.
        port: PortId,
        /// The required time.
        hold: Duration,
    },
    /// The cable is used from now on.
    Used {
        /// This host's port.
        port: PortId,
    },
    /// The neighbour does not answer; streams through it take other paths.
    Silent {
        /// This host's port.
        port: PortId,
        /// The neighbour.
        peer: HostId,
    },
    /// The neighbour answers again.
    Answers {
        /// This host's port.
        port: PortId,
        /// The neighbour.
        peer: HostId,
    },
    /// Paths have changed: these hosts are in reach now.
    InReach {
        /// Their ids.
        hosts: Vec<HostId>,
        /// Whether another host has this host's id.
        duplicate_id: bool,
    },
    /// A neighbour's message contradicts the present state, or is impossible: it was ignored.
    Contradiction {
        /// This host's port.
        port: PortId,
        /// The contradiction.
        why: String,
    },
}
