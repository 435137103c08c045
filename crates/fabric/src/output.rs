//! Actions that the state machine of circuits asks its caller for.

use crate::end::{Death, End};
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::{ChannelId, CircuitId, Epoch, PortId, SegmentRange, TransitId};

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
    /// The end is in use from now on: the neighbour's answer.
    Opened {
        /// The end.
        circuit: CircuitId,
        /// Where this host's program may write: a segment in the neighbour's memory.
        segment: SegmentRange,
        /// Mark key of the ring in it.
        key: u64,
    },
    /// The requested circuit was refused: the caller calls [`crate::Circuits::redial`] or [`crate::Circuits::give_up`],
    /// or for an end that moves [`crate::Circuits::try_failed`].
    Failed {
        /// The end.
        circuit: CircuitId,
        /// The channel that was tried.
        channel: ChannelId,
        /// The reason.
        why: Refusal,
    },
    /// The end is dead: tell the program that holds it.
    Died {
        /// The end.
        circuit: CircuitId,
        /// The reason.
        death: Death,
    },
    /// The far end was closed while this one is still open: perhaps no process holds it any more.
    CheckHolders {
        /// The end.
        circuit: CircuitId,
    },
    /// The end's circuit is lost; its program must stop until the end has another.
    Moving {
        /// The end.
        circuit: CircuitId,
    },
    /// Try another circuit now: the caller calls [`crate::Circuits::redial`] or [`crate::Circuits::no_way`].
    Seek {
        /// The end.
        circuit: CircuitId,
    },
    /// The end goes on over another circuit: as [`Output::Opened`]. The caller then calls
    /// [`crate::Circuits::tell_arrived`], and [`crate::Circuits::finish`] if the end is closing.
    Resumed {
        /// The end.
        circuit: CircuitId,
        /// Where this host's program may write.
        segment: SegmentRange,
        /// Mark key of the ring in it.
        key: u64,
        /// Stream offset that has arrived at the far end.
        arrived: u64,
    },
    /// The connecting side has reported how much had arrived there: the stream goes on at this end too.
    Arrived {
        /// The end.
        circuit: CircuitId,
        /// The stream offset.
        units: u64,
    },
    /// The accepting side asks whether the connection is that of this end's socket: the caller calls [`crate::Circuits::tell_proof`].
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
        /// The end's last state.
        end: Box<End>,
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
    /// The onward half of a circuit in transit exists: the caller calls [`crate::Circuits::pass`].
    Passed {
        /// The circuit.
        transit: TransitId,
        /// Where this host may write: a segment in the memory of the next host on the path.
        segment: SegmentRange,
        /// Mark key of the ring in it.
        key: u64,
        /// Stream offset that has arrived at the far end.
        arrived: u64,
        /// Hosts behind this one that pump.
        pumps: u8,
    },
    /// One side of a circuit in transit closed in order: the caller forwards all that it wrote, and then calls
    /// [`crate::Circuits::drained`].
    Drain {
        /// The circuit.
        transit: TransitId,
        /// Index of the side's channel.
        side: usize,
    },
    /// A circuit in transit is over; the caller forwards nothing more.
    Stop {
        /// The circuit.
        transit: TransitId,
    },
}
