//! Stores on their way to a segment: a byte queue in a sealed memfd between those who store, any threads and processes of one
//! program and its daemon, and the one thread (the *lander*) that makes them visible later.
//!
//! ```text
//!   0x0000  TAIL    u64  end of the last entry: the writers, with LOCK held
//!   0x0008  FENCED  u64  end of the last fence: the same
//!   0x0010  LOCK         see `lock`
//!   0x0040  ASLEEP  u32  1: the lander sleeps, or is about to: whoever stores wakes it
//!   0x0044  WAKE    u32  futex of the lander
//!   0x0080  FREED   u64  end of the last entry whose room is free again: the lander
//!   0x0088  WANTED  u32  1: somebody waits for room; the lander makes it 0 and wakes them
//!   0x008c  ROOM    u32  futex of those
//!   0x0090  DEAD    u32  1: nothing lands any more
//!   0x1000  entries: offset u64 | length u32, kind u32 | time of the store, ns u64 | bytes, to a multiple of 8
//! ```
//! Positions count bytes since the beginning; an entry lies at its position modulo `DATA`, and may go round the end. A writer
//! that is killed leaves at most bytes behind TAIL, which nobody reads. The lander believes nothing that is written here: it
//! keeps its own positions, reads each head once, and checks it. So do the writers, among which may be the daemon.

mod reader;
mod sleep;
#[cfg(test)]
mod tests;
mod writer;

/// The time that stores are stamped with, ns.
pub use crate::clock::now_ns as now;
pub use reader::{Entry, Garbage, Reader, What};
pub use sleep::{Waker, sleep, sleep_exactly};
pub(crate) use writer::Writer;

use crate::mapping::{MapError, new_segment};
use crate::segment::QUEUE_LEN;
use std::os::fd::OwnedFd;

/// Bytes of words before the entries.
const WORDS: usize = 4096;
/// Bytes of all entries that are under way.
const DATA: usize = 256 << 10;
/// Bytes of the memfd.
pub const LEN: u64 = QUEUE_LEN;
const _: () = assert!(LEN == (WORDS + DATA) as u64);
/// Bytes of an entry beside those that are stored.
const HEAD: usize = 24;
/// Most bytes of one entry: larger stores are several.
pub(crate) const PIECE: usize = 2048;

const TAIL: usize = 0x00;
const FENCED: usize = 0x08;
const LOCK: usize = 0x10;
const ASLEEP: usize = 0x40;
const WAKE: usize = 0x44;
const FREED: usize = 0x80;
const WANTED: usize = 0x88;
const ROOM: usize = 0x8c;
const DEAD: usize = 0x90;

/// Kind of an entry: bytes.
const STORE: u32 = 1;
/// Kind of an entry: nothing behind it lands before what lies before it.
const FENCE: u32 = 2;

/// Fresh memory for an empty queue.
///
/// # Errors
/// See [`MapError`].
pub fn create() -> Result<OwnedFd, MapError> {
    new_segment("crosslane-queue", LEN)
}

/// Where the byte at `position` lies in the memfd.
fn place(position: u64) -> usize {
    WORDS + usize::try_from(position % DATA as u64).unwrap_or(0)
}

/// Bytes of an entry that stores `len`.
const fn entry_len(len: usize) -> usize {
    HEAD + len.next_multiple_of(8)
}
