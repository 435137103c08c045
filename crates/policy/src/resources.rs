//! What a decision needs an answer to at once, from whoever has memory, quotas and programs.

use crate::answer::Asked;
use crosslane_fabric::circuit::{End, Path};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, TransitId};
use std::net::IpAddr;

/// A ring in somebody's inbound memory, as neighbours name it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The segment that it lies in.
    pub segment: SegmentRange,
    /// The key of its marks.
    pub key: u64,
}

/// What a circuit is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new stream.
    New,
    /// A stream that lost its circuit goes on: it may use what is kept free for that.
    Move,
}

/// How long a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As long as those of new streams now, as far as there is room.
    Ample,
    /// As short as those of crowded windows.
    Short,
    /// As long as those of streams that move, as far as there is room; shorter than one whose segment was refused.
    Moved {
        /// Bytes of that segment.
        refused: Option<u64>,
    },
}

/// What was made for a circuit in transit before the host behind is asked.
#[derive(Debug)]
pub struct Prepared<T> {
    /// What the caller keeps.
    pub made: T,
    /// Our memory that the host behind writes.
    pub behind: Ring,
    /// Hosts that have pumped so far, this one included if it does.
    pub pumps: u8,
}

/// Memory, quotas, listeners and programs of a host. Each call is answered at once, and none calls back.
///
/// What is taken by `attempt`, `admit` and `prepare_transit` is kept by the caller, under the name that follows:
/// `keep_attempt`, `keep_answer`, `keep_transit`; or given back: `drop_attempt`, `drop_answer`. The memory of a channel is
/// free when [`crate::Output::Freed`] says so.
pub trait Resources {
    /// Who pays for what an end takes.
    type Payer: Copy;
    /// What was taken for an end that a program asks for, beside its first circuit.
    type End;
    /// Memory for a circuit that a neighbour is about to be asked for.
    type Attempt;
    /// An end, and its memory, for a circuit that a neighbour asks for.
    type Answer;
    /// Memory for a circuit that passes through.
    type Transit;

    /// The host that has this fabric address.
    fn host_of(&self, address: IpAddr) -> Option<HostId>;

    /// A number that nobody can guess.
    fn random(&mut self) -> u64;

    /// Who pays for an end, if it may have one circuit more.
    fn payer(&mut self, circuit: CircuitId) -> Option<Self::Payer>;

    /// Memory for the first channel of a path.
    ///
    /// # Errors
    /// There is none, or the payer may not have it.
    fn attempt(
        &mut self,
        payer: Self::Payer,
        path: Path,
        purpose: Purpose,
        size: Size,
    ) -> Result<(Self::Attempt, Ring), Plain>;

    /// An end is there from now on.
    fn begin(&mut self, circuit: CircuitId, end: Self::End);

    /// The attempt is this channel's, of the end's circuit of this generation.
    fn keep_attempt(
        &mut self,
        circuit: CircuitId,
        channel: ChannelId,
        generation: u32,
        attempt: Self::Attempt,
    );

    /// The attempt is not made.
    fn drop_attempt(&mut self, port: PortId, attempt: Self::Attempt);

    /// The end's attempt came to nothing; its memory is freed with its channel.
    fn forget_attempt(&mut self, circuit: CircuitId);

    /// The neighbour at `port` made the circuit of the end's attempt: its ring is as long as ours, and in the window.
    /// `arrived`: units of the stream here and at the far end.
    ///
    /// # Errors
    /// The ring is not there, or cannot be used.
    fn complete(
        &mut self,
        of: (CircuitId, &End),
        port: PortId,
        ring: Ring,
        arrived: (u64, u64),
    ) -> Result<(), Plain>;

    /// Units of the stream that have arrived by the newest segments of an end whose programs have stopped; `None`: nobody
    /// reads any more.
    fn arrived(&mut self, circuit: CircuitId) -> Option<u64>;

    /// The same, after its programs were made to stop: the end is in this state now.
    fn stop_and_count(&mut self, circuit: CircuitId, end: &End) -> Option<u64>;

    /// Whether a process holds the socket of an end, which is in this state; `None`: that cannot be told.
    fn is_held(&self, circuit: CircuitId, end: &End) -> Option<bool>;

    /// Whether no session that holds the end has a connection.
    fn is_lost(&self, circuit: CircuitId) -> bool;

    /// Whether the processes of all sessions that hold the end have ended.
    fn is_orphaned(&self, circuit: CircuitId) -> bool;

    /// A program here for a circuit that the neighbour at `port` asks for, and memory.
    ///
    /// # Errors
    /// Nobody listens, or there is no memory, or the neighbour may not have it.
    fn admit(&mut self, port: PortId, asked: &Asked) -> Result<(Self::Answer, Ring), Refusal>;

    /// The answer is this channel's, of the new end `circuit`.
    fn keep_answer(&mut self, circuit: CircuitId, channel: ChannelId, answer: Self::Answer);

    /// The answer is not given.
    fn drop_answer(&mut self, port: PortId, answer: Self::Answer);

    /// Memory for the channel by which an end here goes on, of whose stream so many units have arrived here.
    ///
    /// # Errors
    /// There is none.
    fn answer_move(
        &mut self,
        of: (CircuitId, &End),
        channel: ChannelId,
        from: (PortId, &Asked),
        arrived: u64,
    ) -> Result<Ring, Refusal>;

    /// Memory for a circuit from the neighbour at the first port to the one at the second.
    ///
    /// # Errors
    /// There is none, or the neighbour may not have it.
    fn prepare_transit(
        &mut self,
        ports: [PortId; 2],
        asked: &Asked,
    ) -> Result<Prepared<Self::Transit>, Refusal>;

    /// It is that of this circuit, and of its channels before and behind.
    fn keep_transit(
        &mut self,
        transit: TransitId,
        ports: [PortId; 2],
        channels: [ChannelId; 2],
        made: Self::Transit,
    );

    /// The host behind has made its half, behind which so many hosts pump: bytes are passed on from now on. Our ring for the
    /// host before, by its channel, and how many hosts pump from here on.
    ///
    /// # Errors
    /// The ring is not there, or cannot be used.
    fn begin_transit(
        &mut self,
        transit: TransitId,
        before: ChannelId,
        behind: Ring,
        pumps: u8,
    ) -> Result<(Ring, u8), Plain>;
}
