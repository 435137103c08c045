//! Messages between neighbouring daemons, on the control channel of a cable; link states are flooded on to others.
//!
//! Messages are [`crate::codec`]-encoded, one to a [`crate::record::Kind::Message`] record.

use crate::{BufferId, ChannelId, HostId, Reach, SegmentRange, Tuple, WaiterId};
use serde::{Deserialize, Serialize};

/// Most links in one link-state record; a host has few ports.
pub const MAX_LINKS: usize = 16;

/// One host's view of its own links, flooded with a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Whose links these are.
    pub origin: HostId,
    /// Random number of the origin's daemon process: two of them at one time are two hosts with one id. Compared as serial numbers: of two,
    /// the newer one is ahead of the other by less than half of the number space.
    pub incarnation: u64,
    /// Raised by the origin at each change; the highest within the newest incarnation counts.
    pub sequence: u64,
    /// Hosts that the origin reaches over one cable each.
    pub neighbours: Vec<HostId>,
    /// Time since the origin made it, s. Not sealed: each host on the way adds its own.
    pub age: u16,
    /// The origin's signature, if it has a key.
    pub seal: Option<Seal>,
}

/// An Ed25519 signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seal(pub [u8; 32], pub [u8; 32]);

impl LinkState {
    /// The bytes that are signed: all but the age.
    pub fn sealed_bytes(&self) -> Vec<u8> {
        let mut bytes = b"crosslane link state 1:".to_vec();
        bytes.extend(self.origin.0.to_le_bytes());
        bytes.extend(self.incarnation.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        self.neighbours.iter().for_each(|host| bytes.extend(host.0.to_le_bytes()));
        bytes
    }
}

/// Why a daemon did not make a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// No accelerated program listens at that address.
    NoListener,
    /// No window memory left for another pair of segments.
    NoMemory,
    /// A rule on the far side says TCP.
    Rule,
    /// No way to that host.
    NoRoute,
    /// The message was not understood or contradicts an earlier one.
    Protocol,
    /// The far side did not answer in time.
    Timeout,
    /// The stream that shall go on is not known there (any more).
    Unknown,
    /// A user here or there, or a neighbour, has as much as the quotas of that host let him have.
    Quota,
}

/// How a channel is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Closing {
    /// In order: what was written still counts.
    Done,
    /// Broken off: the stream is over.
    Abort,
    /// The circuit is lost or left, not the stream: its ends may go on over another one.
    Lost,
}

/// Part of an `Open` by which an existing stream moves to another circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// Generation of the stream's circuit: larger than all before, at most [`GENERATION_MAX`].
    pub generation: u32,
}

/// Most circuits of one stream after its first: programs are told of no larger number ([`crate::local::status_word`]).
pub const GENERATION_MAX: u32 = u32::MAX >> 8;
/// In place of a stream offset: the program there reads no more, so that all that was sent counts as arrived.
pub const ARRIVED_ALL: u64 = u64::MAX;
/// Most cables of a circuit.
pub const MAX_HOPS: u8 = 254;

/// A buffer of a program's, on its way to the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// Handle under which the port gives out the memory, once.
    pub handle: u64,
    /// Bytes of the buffer; its memory has a page more: see [`crate::buffer`].
    pub len: u64,
    /// What may be done with it.
    pub reach: Reach,
}

/// A waker, on its way to whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doorbell {
    /// Handle under which the port gives out the waker's socket, once.
    pub handle: u64,
    /// What a wake says.
    pub word: u64,
}

/// A message between two neighbouring daemons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Link states that the receiver may not have.
    LinkStates(Vec<LinkState>),
    /// "Make a circuit for this connection": for a new one sent before the connection's SYN.
    Open {
        /// The sender's end of the channel; answers bear it.
        channel: ChannelId,
        /// The connection that will be a stream.
        tuple: Tuple,
        /// A secret of the stream's two ends, by which it is known again.
        stream: u64,
        /// Where the receiver may write: a segment of the sender's inbound memory.
        segment: SegmentRange,
        /// Mark key of the ring in `segment`.
        key: u64,
        /// Cables passed before this one.
        passed: u8,
        /// Hosts passed that pump: they have memory of their own between the sender of `segment` and the opener.
        pumps: u8,
        /// Hosts still to pass behind the receiver, the last one is the far end; empty if the receiver is.
        route: Vec<HostId>,
        /// `Some` if the circuit is for a stream that moves, `None` for a new stream.
        resume: Option<Resumption>,
    },
    /// Answer to `Open`: the circuit is made.
    Opened {
        /// The channel that `Open` bore.
        channel: ChannelId,
        /// The answerer's end of it.
        peer: ChannelId,
        /// Where the opener may write: a segment of the answerer's inbound memory.
        segment: SegmentRange,
        /// Mark key of the ring in `segment`.
        key: u64,
        /// Units of the stream that have arrived at the far end; 0 for a new one.
        arrived: u64,
        /// Hosts that pump between the far end and the receiver, the sender included.
        pumps: u8,
    },
    /// What of a stream that goes on has arrived at the opener, counted after the answerer's program has stopped. Passed
    /// on to the far end.
    Arrived {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// Units of the stream.
        units: u64,
    },
    /// "The connection was accepted here: did the socket that you announced become it?" Passed on to the connecting side.
    Prove {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
    },
    /// Answer to `Prove`, or said unasked; passed on to the accepting side. A circuit that is closed in order before it was
    /// accepted was proven.
    Proven {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// Whether it did.
        is_so: bool,
    },
    /// The circuit is refused.
    Refused {
        /// The channel that `Open` bore.
        channel: ChannelId,
        /// The reason.
        why: Refusal,
    },
    /// The sender's end of the channel is closed: it writes no more, and its segment may be freed once both are.
    Closed {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// How it ends.
        how: Closing,
    },
    /// "Let a program of mine wake this waiter of yours": answered with `Waker` and, on a soft cable, a socket that
    /// nobody else has.
    WantWaker {
        /// The *receiver's* end of a channel that the waiter sleeps on.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
    },
    /// Answer to `WantWaker`.
    Waker {
        /// The channel as `WantWaker` named it: far ends behind different channels may have waiters of one number.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
        /// The waker, or `None` if there is no such waiter.
        doorbell: Option<Doorbell>,
    },
    /// Wake a waiter of the receiver's (when a program cannot hold its doorbell).
    Wake {
        /// The *receiver's* end of a channel that the waiter sleeps on.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
    },
    /// "Give me this buffer of your program's": answered with `Buffer`.
    ImportBuffer {
        /// The *receiver's* end of a channel that ends at the buffer's owner.
        channel: ChannelId,
        /// The buffer's id.
        buffer: BufferId,
    },
    /// Answer to `ImportBuffer`.
    Buffer {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// The buffer's id.
        buffer: BufferId,
        /// The buffer, unless it is not open to that circuit.
        handed: Option<Handed>,
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
    /// "Are you there?", and the answer.
    Alive {
        /// Whether it is the answer.
        reply: bool,
    },
    /// The sender goes down in order.
    Goodbye,
}
