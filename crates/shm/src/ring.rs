//! The byte ring of records: one [`Producer`] state, one [`Consumer`] state, over a [`Store`](crate::Store) and a
//! [`Load`](crate::Load) view.
//!
//! The states are plain memory (atomics used with relaxed order, guarded by the caller's lock) so that they can live
//! in an arena that the processes of one program share. `crosslane_wire::segment` and `::record` have the layout.
//!
//! ```text
//!   position  bytes of ring used since the ring began; never wraps. Marks and credit are positions
//!   offset    bytes from the ring's start to the next record: where `position` lies
//!   cap       bytes of the ring in use, a power of two. The producer doubles it, up to ring_max, after it found no room:
//!             with the record that ends at the present end, or at once (a *jump*) when not even a line is free;
//!             from EASY bytes on only after `Producer::request_grow`
//!   units     stream offset: the program's bytes, and one for each control record, since the stream began. It goes on
//!             in the next ring when the stream moves to another circuit
//! ```

mod apart;
mod consumer;
mod copies;
mod credit;
mod cursor;
mod open;
mod producer;
mod push;
mod room;
mod source;
mod split;
mod take;
mod unfinished;

pub use consumer::{Consumer, Head};
pub use credit::{Credits, Duplex};
pub use cursor::Cursor;
pub use producer::{ANNOUNCED, EASY, Offer, Producer};
pub use source::{Gather, Source};

use crosslane_wire::DecodeError;
use crosslane_wire::segment::{LINE, RING};
use thiserror::Error;

/// What a peer did that the protocol forbids; this end aborts the stream.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The peer gave credit for bytes that this end never sent, or less credit than before.
    #[error("peer gave back credit {got}, between {least} and {most} was possible")]
    Credit {
        /// The position that the peer stored.
        got: u64,
        /// The highest position that it stored before.
        least: u64,
        /// The position up to which this end has sent.
        most: u64,
    },
    /// A record's word is out of range.
    #[error("peer wrote a bad record: {0}")]
    Record(#[from] DecodeError),
    /// The peer wrote a record over bytes that this end has not consumed.
    #[error("peer sent {over} bytes more than it had credit for")]
    Overrun {
        /// Bytes of ring beyond the credit.
        over: u64,
    },
    /// No ring can have this shared state: another process that holds the end has overwritten it, or was killed in the
    /// middle of a change.
    #[error("the end's shared state cannot be: {0}")]
    State(&'static str),
}

impl Violation {
    /// [`Self::State`], in a function of its own so that callers keep no registers for it.
    #[cold]
    #[inline(never)]
    pub fn state(what: &'static str) -> Self {
        Self::State(what)
    }
}

/// The byte of the segment (`segment` bytes long) at which the `len` bytes at ring offset `offset` begin. Fails unless the
/// offset is that of a line and all `len` bytes lie in the ring: other processes may have written the offset.
#[inline]
fn place(segment: usize, offset: u64, len: u64) -> Result<usize, Violation> {
    let ring = (segment as u64).saturating_sub(RING as u64);
    if offset.is_multiple_of(LINE) && len <= ring && offset <= ring - len {
        return Ok(RING + usize::try_from(offset).unwrap_or(0));
    }
    Err(Violation::state("a place in the ring"))
}
