//! What the state machine of circuits wants done.

use crate::end::{Death, End};
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::{ChannelId, CircuitId, Epoch, PortId, SegmentRange, TransitId};

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
    /// The end is in use from now on: what the neighbour said.
    Opened {
        /// The end.
        circuit: CircuitId,
        /// Where our program may write: the neighbour's memory.
        segment: SegmentRange,
        /// Mark key of the ring in it.
        key: u64,
    },
    /// The circuit that was asked for will not be: [`crate::Circuits::redial`] or [`crate::Circuits::give_up`] follows,
    /// or for an end that moves [`crate::Circuits::try_failed`].
    Failed {
        /// The end.
        circuit: CircuitId,
        /// The channel that was tried.
        channel: ChannelId,
        /// Why.
        why: Refusal,
    },
    /// The program that holds the end must be told.
    Died {
        /// The end.
        circuit: CircuitId,
        /// Why.
        death: Death,
    },
    /// The far end was closed while ours is still held: it may be that nobody holds it.
    CheckHolders {
        /// The end.
        circuit: CircuitId,
    },
    /// The end's circuit is lost; its program must stop until it has another.
    Moving {
        /// The end.
        circuit: CircuitId,
    },
    /// Try another circuit now: [`crate::Circuits::redial`] or [`crate::Circuits::no_way`] follows.
    Seek {
        /// The end.
        circuit: CircuitId,
    },
    /// The end goes on over another circuit: as [`Output::Opened`]. [`crate::Circuits::tell_arrived`] follows, and
    /// [`crate::Circuits::finish`] if it is closing.
    Resumed {
        /// The end.
        circuit: CircuitId,
        /// Where our program may write.
        segment: SegmentRange,
        /// Mark key of the ring in it.
        key: u64,
        /// Units of the stream that have arrived at the far end.
        arrived: u64,
    },
    /// So much had arrived at the side that sought another circuit: the stream goes on here too.
    Arrived {
        /// The end.
        circuit: CircuitId,
        /// Units of the stream.
        units: u64,
    },
    /// The accepting side asks whether the socket of this end became the connection:
    /// [`crate::Circuits::tell_proof`] follows.
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
        /// The end as it was last.
        end: Box<End>,
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
    /// The far half of a circuit in transit is there: [`crate::Circuits::pass`] follows.
    Passed {
        /// The circuit.
        transit: TransitId,
        /// Where we may write: memory of the host behind us.
        segment: SegmentRange,
        /// Mark key of the ring in it.
        key: u64,
        /// Units of the stream that have arrived at the far end.
        arrived: u64,
        /// Hosts behind us that pump.
        pumps: u8,
    },
    /// One side of a circuit in transit closed in order: what it wrote is passed on, then [`crate::Circuits::drained`]
    /// follows.
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
}
