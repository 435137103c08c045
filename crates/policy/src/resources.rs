//! Questions that a decision must have answered at once, by the owner of memory, quotas and programs.

use crate::answer::Asked;
use crosslane_fabric::circuit::{End, Path};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, TransitId};
use std::net::IpAddr;

/// A ring in a host's inbound memory, as neighbours describe it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The segment that contains it.
    pub segment: SegmentRange,
    /// The key of its marks.
    pub key: u64,
}

/// The purpose of a requested circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new stream.
    New,
    /// A stream that lost its circuit: it may use the memory that is reserved for such streams.
    Move,
}

/// How long a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As long as rings of new streams are now, as far as there is room.
    Ample,
    /// As short as rings in a crowded window.
    Short,
    /// As long as rings of streams that move, as far as there is room; shorter than that of a segment that was refused.
    Moved {
        /// Length of the refused segment, bytes.
        refused: Option<u64>,
    },
}

/// Memory for a circuit in transit, made before the next host is asked.
#[derive(Debug)]
pub struct Prepared<T> {
    /// The caller's own record of it.
    pub made: T,
    /// The ring in this host's memory into which the next host writes.
    pub behind: Ring,
    /// Hosts up to and including this one that pump.
    pub pumps: u8,
}

/// Memory, quotas, listeners and programs of a host. Each call answers at once, and none calls back into the policy.
///
/// The policy ends each `attempt`, `admit` and `prepare_transit` by one of two calls: the caller keeps the resource for a
/// channel or an end (`keep_attempt`, `keep_answer`, `keep_transit`), or frees it (`drop_attempt`, `drop_answer`). The
/// memory of a channel may be freed at [`crate::Output::Freed`].
pub trait Resources {
    /// The account that is charged for an end.
    type Payer: Copy;
    /// Resources for an end that a program requests, besides its first circuit.
    type End;
    /// Memory for a circuit for which a neighbour is about to be asked.
    type Attempt;
    /// An end, and its memory, for a circuit that a neighbour requests.
    type Answer;
    /// Memory for a circuit that passes through.
    type Transit;

    /// The host that has this fabric address.
    fn host_of(&self, address: IpAddr) -> Option<HostId>;

    /// A random number that cannot be guessed.
    fn random(&mut self) -> u64;

    /// Ends of this host that move bytes now by the cable at `port`; 0 if there are too many to look at.
    fn busy(&mut self, port: PortId) -> usize;

    /// The account that is charged for an end, if it may have one circuit more.
    fn payer(&mut self, circuit: CircuitId) -> Option<Self::Payer>;

    /// Allocates memory for the first channel of a path.
    ///
    /// # Errors
    /// There is none, or the account may not have it.
    fn attempt(
        &mut self,
        payer: Self::Payer,
        path: Path,
        purpose: Purpose,
        size: Size,
    ) -> Result<(Self::Attempt, Ring), Plain>;

    /// An end exists from now on.
    fn begin(&mut self, circuit: CircuitId, end: Self::End);

    /// The attempt belongs to this channel, of the end's circuit of this generation.
    fn keep_attempt(
        &mut self,
        circuit: CircuitId,
        channel: ChannelId,
        generation: u32,
        attempt: Self::Attempt,
    );

    /// The attempt is given up.
    fn drop_attempt(&mut self, port: PortId, attempt: Self::Attempt);

    /// The end's attempt failed; its memory is freed with its channel.
    fn forget_attempt(&mut self, circuit: CircuitId);

    /// The neighbour at `port` made the circuit of the end's attempt: its ring is as long as this host's, and inside the
    /// window. `arrived`: stream offsets that have arrived here and at the far end.
    ///
    /// # Errors
    /// The ring does not exist, or cannot be used.
    fn complete(
        &mut self,
        of: (CircuitId, &End),
        port: PortId,
        ring: Ring,
        arrived: (u64, u64),
    ) -> Result<(), Plain>;

    /// Stream offset that has arrived in the newest segments of an end whose programs have stopped; `None`: no program reads any more.
    fn arrived(&mut self, circuit: CircuitId) -> Option<u64>;

    /// As [`Self::arrived`], after stopping the end's programs; `end` is the end's present state.
    fn stop_and_count(&mut self, circuit: CircuitId, end: &End) -> Option<u64>;

    /// Whether a process holds the socket of an end; `end` is its present state. `None`: unknown.
    fn is_held(&self, circuit: CircuitId, end: &End) -> Option<bool>;

    /// Whether all sessions that hold the end have lost their connection.
    fn is_lost(&self, circuit: CircuitId) -> bool;

    /// Whether the processes of all sessions that hold the end have ended.
    fn is_orphaned(&self, circuit: CircuitId) -> bool;

    /// Finds the listening program for a circuit that the neighbour at `port` requests, and allocates memory.
    ///
    /// # Errors
    /// No program listens, or there is no memory, or the neighbour may not have it.
    fn admit(&mut self, port: PortId, asked: &Asked) -> Result<(Self::Answer, Ring), Refusal>;

    /// The answer belongs to this channel, of the new end `circuit`.
    fn keep_answer(&mut self, circuit: CircuitId, channel: ChannelId, answer: Self::Answer);

    /// The answer is given up.
    fn drop_answer(&mut self, port: PortId, answer: Self::Answer);

    /// Allocates memory for the channel over which an existing end goes on; `arrived` is the stream offset that has arrived here.
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

    /// Allocates memory for a circuit from the neighbour at the first port to the neighbour at the second.
    ///
    /// # Errors
    /// There is none, or the neighbour may not have it.
    fn prepare_transit(
        &mut self,
        ports: [PortId; 2],
        asked: &Asked,
    ) -> Result<Prepared<Self::Transit>, Refusal>;

    /// The memory belongs to this circuit, and to its channels to the host before and to the next host.
    fn keep_transit(
        &mut self,
        transit: TransitId,
        ports: [PortId; 2],
        channels: [ChannelId; 2],
        made: Self::Transit,
    );

    /// The next host has made its half, behind which `pumps` hosts pump: forward bytes from now on. Returns this host's
    /// ring for the host before, and how many hosts pump from here on.
    ///
    /// # Errors
    /// The ring does not exist, or cannot be used.
    fn begin_transit(
        &mut self,
        transit: TransitId,
        before: ChannelId,
        behind: Ring,
        pumps: u8,
    ) -> Result<(Ring, u8), Plain>;
}
