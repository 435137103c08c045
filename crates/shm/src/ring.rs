//! The byte ring of records: one [`Producer`] state, one [`Consumer`] state, over a [`Store`](crate::Store) and a
//! [`Load`](crate::Load) view.
//!
//! The states are plain memory (atomics used with relaxed order, guarded by the caller's lock) so that they can live
//! in an arena that the processes of one program share. `crosslane_wire::segment` and `::record` have the layout.
//!
//! ```text
//!   position  counts all bytes of ring ever used, for marks and credits
//!   offset    where in the ring that is
//!   cap       bytes of the ring in use; doubles, up to ring_max, when a producer that found no room reaches its end,
//!             and when nothing more fits: then the ring goes on behind its present end at once (a *jump*);
//!             from EASY on only if the producer was pressed
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
mod take;
mod unfinished;

pub use consumer::{Consumer, Head};
pub use credit::{Credits, Duplex};
pub use cursor::Cursor;
pub use producer::{ANNOUNCED, EASY, Offer, Producer};

use crosslane_wire::DecodeError;
use crosslane_wire::segment::{LINE, RING};
use thiserror::Error;

/// What a peer did that it must not; the circuit is over.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Credit for bytes that were never sent, or less credit than before.
    #[error("peer gave back credit {got}, between {least} and {most} was possible")]
    Credit {
        /// What it stored.
        got: u64,
        /// Credit that it gave before.
        least: u64,
        /// What was sent.
        most: u64,
    },
    /// A record's word is out of range.
    #[error("peer wrote a bad record: {0}")]
    Record(#[from] DecodeError),
    /// A record lies where bytes may still be that were not consumed.
    #[error("peer sent {over} bytes more than it had credit for")]
    Overrun {
        /// Bytes of ring beyond the credit.
        over: u64,
    },
    /// The state of this end of the ring, which other processes that hold the end may write, is none that a ring can have;
    /// or one of them was killed in the middle of a change.
    #[error("the end's shared state cannot be: {0}")]
    State(&'static str),
}

impl Violation {
    /// [`Self::State`], made out of the way: what it holds would be kept in registers wherever it might be needed.
    #[cold]
    #[inline(never)]
    pub fn state(what: &'static str) -> Self {
        Self::State(what)
    }
}

/// Where in a segment of `segment` bytes the `len` bytes at this offset of the ring lie. The offset may come from memory that other
/// processes write: it must be that of a line, and all of it must be in the ring.
#[inline]
fn place(segment: usize, offset: u64, len: u64) -> Result<usize, Violation> {
    let ring = (segment as u64).saturating_sub(RING as u64);
    if offset.is_multiple_of(LINE) && len <= ring && offset <= ring - len {
        return Ok(RING + usize::try_from(offset).unwrap_or(0));
    }
    Err(Violation::state("a place in the ring"))
}
