//! Messages between neighbouring daemons, on the control channel of a cable; daemons forward link states to their other neighbours.
//!
//! Messages are [`crate::codec`]-encoded, one to a [`crate::record::Kind::Message`] record.

use crate::{BufferId, ChannelId, HostId, Reach, SegmentRange, Tuple, WaiterId};
use serde::{Deserialize, Serialize};

/// Most links in one link-state record; a host has few ports.
pub const MAX_LINKS: usize = 16;

/// One host's record of its own links, numbered and flooded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// The host that made the record.
    pub origin: HostId,
    /// Random number of the origin's daemon process: two different ones at one time are two hosts with one id. Compared
    /// as serial numbers: of two incarnations the newer one is ahead of the other by less than half of the number space.
    pub incarnation: u64,
    /// Raised by the origin with each new record; the highest within the newest incarnation counts.
    pub sequence: u64,
    /// Hosts that the origin reaches over one cable each.
    pub neighbours: Vec<HostId>,
    /// Time since the origin made the record, s. Not signed: each host that forwards the record adds its own delay.
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
    /// No path to that host.
    NoRoute,
    /// The message was not understood or contradicts an earlier one.
    Protocol,
    /// The far side did not answer in time.
    Timeout,
    /// The far daemon does not know the stream that is to move (any more).
    Unknown,
    /// A user on one of the hosts, or a neighbour, has used up the quotas of that host.
    Quota,
}

/// How a channel is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Closing {
    /// In order: bytes that were written before still count.
    Done,
    /// Aborted: the stream is over.
    Abort,
    /// The circuit is lost or left, but not the stream: its ends may move to another circuit.
    Lost,
}

/// The part of an `Open` by which an existing stream moves to another circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// Generation of the new circuit: larger than all earlier ones of the stream, at most [`GENERATION_MAX`].
    pub generation: u32,
}

/// Highest generation: the status word has no room for a larger number ([`crate::local::status_word`]).
pub const GENERATION_MAX: u32 = u32::MAX >> 8;
/// In place of a stream offset: the program there reads no more, so all sent bytes count as arrived.
pub const ARRIVED_ALL: u64 = u64::MAX;
/// Most cables of a circuit.
pub const MAX_HOPS: u8 = 254;

/// A program's buffer that is passed to the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// Handle under which the port returns the memory, once.
    pub handle: u64,
    /// Length of the buffer, bytes; its memory has one page more: see [`crate::buffer`].
    pub len: u64,
    /// What the far end may do with it.
    pub reach: Reach,
}

/// A waker that is passed to the program that requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doorbell {
    /// Handle under which the port returns the waker's socket, once.
    pub handle: u64,
    /// The word that a wake must contain.
    pub word: u64,
}

/// A message between two neighbouring daemons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Link states that the receiver may not have yet.
    LinkStates(Vec<LinkState>),
    /// Requests a circuit for a connection; for a new connection sent before its SYN.
    Open {
        /// The sender's end of the channel; answers contain it.
        channel: ChannelId,
        /// The connection that will be a stream.
        tuple: Tuple,
        /// A secret of the stream's two ends, by which they find the stream again when it moves.
        stream: u64,
        /// Where the receiver may write: a segment in the sender's inbound memory.
        segment: SegmentRange,
        /// Mark key of the ring in `segment`.
        key: u64,
        /// Cables between the opener and the sender.
        passed: u8,
        /// Hosts between the opener and the owner of `segment` that pump: each has memory of its own.
        pumps: u8,
        /// Hosts behind the receiver on the path, the far end last; empty if the receiver is the far end.
        route: Vec<HostId>,
        /// `Some` if the circuit is for a stream that moves, `None` for a new stream.
        resume: Option<Resumption>,
        /// The secret of the stream of which this is the second circuit ([`crate::stripe`]); 0 if it is the first. The first one
        /// must be there, and not accepted yet. A second circuit moves as a stream of its own.
        twin_of: u64,
    },
    /// Answer to `Open`: the circuit exists.
    Opened {
        /// The channel that `Open` contained.
        channel: ChannelId,
        /// The answering host's end of the channel.
        peer: ChannelId,
        /// Where the opener may write: a segment in the answering host's inbound memory.
        segment: SegmentRange,
        /// Mark key of the ring in `segment`.
        key: u64,
        /// Stream offset that has arrived at the far end; 0 for a new stream.
        arrived: u64,
        /// Hosts that pump between the far end and the receiver, including the sender of this message.
        pumps: u8,
    },
    /// Stream offset that has arrived at the opener of a stream that moves, counted after the answering host's program
    /// has stopped. Forwarded to the far end.
    Arrived {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// The stream offset.
        units: u64,
    },
    /// Asks the connecting side: is the connection that a program here accepted that of the socket with which you
    /// announced it? Forwarded to the connecting side.
    Prove {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
    },
    /// Answer to `Prove`, or sent without it; forwarded to the accepting side. A circuit that is closed in order before
    /// it was accepted counts as proven.
    Proven {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// Whether it is.
        is_so: bool,
    },
    /// The circuit is refused.
    Refused {
        /// The channel that `Open` contained.
        channel: ChannelId,
        /// The reason.
        why: Refusal,
    },
    /// The sender's end of the channel is closed: it does not write any more, and its segment may be freed once both ends are closed.
    Closed {
        /// The *receiver's* end of the channel.
        channel: ChannelId,
        /// How it was closed.
        how: Closing,
    },
    /// Requests a waker of a waiter of the receiver's, for a program of the sender's: answered with `Waker` and, on a
    /// soft cable, a socket that no other process has.
    WantWaker {
        /// The *receiver's* end of a channel that the waiter sleeps on.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
    },
    /// Answer to `WantWaker`.
    Waker {
        /// The channel as in `WantWaker`: far ends behind different channels may have waiters of the same number.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
        /// The waker, or `None` if there is no such waiter.
        doorbell: Option<Doorbell>,
    },
    /// Asks the receiver to wake a waiter of its host (if a program cannot get its waker).
    Wake {
        /// The *receiver's* end of a channel that the waiter sleeps on.
        channel: ChannelId,
        /// The waiter.
        waiter: WaiterId,
    },
    /// Requests a buffer of the receiver's program: answered with `Buffer`.
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
        /// The buffer; `None` if it is not exported to that circuit.
        handed: Option<Handed>,
    },
    /// A probe on its way to `to`; hosts between forward it.
    Echo {
        /// The host that sent the probe.
        from: HostId,
        /// The host that must answer.
        to: HostId,
        /// Number of the probe at the host that sent it.
        token: u64,
        /// Hosts that may still forward it.
        ttl: u8,
        /// Clock of the answering host when it answered, ns; 0 on the way there.
        stamp: u64,
        /// Whether it is on its way back.
        reply: bool,
    },
    /// Keepalive request, and its answer.
    Alive {
        /// Whether it is the answer.
        reply: bool,
    },
    /// The sender shuts down in order.
    Goodbye,
}
