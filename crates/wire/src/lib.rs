//! Every byte that crosses a cable or the control socket, as checked views. No I/O, no `unsafe`.
//!
//! Read in this order: [`id`] (the ids), [`scratchpad`] (how two ports set a cable up), [`mod@segment`] and [`record`]
//! (the layout of a channel in memory), [`memory`] (properties of segments and circuits), [`control`] (messages between
//! daemons), [`packet`] (IP packets on a cable), [`local`] (requests of programs to their daemon), [`access`] (one-sided
//! access between programs), [`buffer`] (memory that a program exports), [`zcopy`] (memory that streams announce),
//! [`stripe`] (streams over two circuits),
//! [`diag`] (requests to the kernel about TCP sockets). `docs/protocol.md` describes all this in prose.
//!
//! All bytes that are decoded here come from a peer that may lie: every decoder returns an error for a value that is out
//! of range, none panics, and none allocates more than in proportion to the length of its input.
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
pub mod stripe;
pub mod zcopy;

pub use codec::DecodeError;
pub use id::{
    BufferId, ChannelId, CircuitId, Epoch, HostId, PortId, Reach, SegmentRange, TransitId, Tuple, WaiterId,
};
pub use memory::{Caching, ChannelInfo, EndedBy, MemoryKind, SegmentInfo, Way};

/// Version of all layouts and messages in this crate. Each side refuses a peer of another version.
pub const PROTOCOL_VERSION: u32 = 18;
