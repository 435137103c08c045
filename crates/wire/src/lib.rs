//! Every byte that crosses a cable or the control socket, as checked views. No I/O, no `unsafe`.
//!
//! Read in this order: [`id`] (the words), [`scratchpad`] (how two ports find each other), [`mod@segment`] and
//! [`record`] (the layout of a channel in memory), [`memory`] (what ports give out, and what a circuit can do), [`control`] (what daemons tell each other through the
//! control channel), [`packet`] (how IP crosses), [`local`] (what programs ask of their daemon), [`access`]
//! (what programs ask of each other's memory), [`buffer`] (what one opens to others), [`zcopy`] (memory that streams
//! announce), [`diag`] (what the kernel is asked about TCP sockets). `docs/protocol.md` is the prose of all this.
//!
//! Whatever is decoded here comes from a peer that may lie: every decoder returns an error for a value that is
//! out of range, none panics, and none allocates more than in proportion to the length of its input.
#![forbid(unsafe_code)]

pub mod access;
pub mod buffer;
pub mod codec;
pub mod control;
pub mod diag;
pub mod id;
pub mod local;
mod mark;
pub mod memory;
pub mod packet;
pub mod record;
pub mod rule;
pub mod scratchpad;
pub mod segment;
pub mod zcopy;

pub use codec::DecodeError;
pub use id::{
    BufferId, ChannelId, CircuitId, Epoch, HostId, PortId, Reach, SegmentRange, TransitId, Tuple, WaiterId,
};
pub use memory::{Caching, ChannelInfo, EndedBy, MemoryKind, SegmentInfo, Way};

/// Version of all layouts and messages in this crate. Two sides that differ refuse each other, by name.
pub const PROTOCOL_VERSION: u32 = 17;
