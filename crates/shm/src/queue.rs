//! Posted stores on their way to a segment: a byte queue in a sealed memfd. The *writers*, any threads and processes of
//! one program and its daemon, append stores; one thread (the *lander*) makes them visible later.
//!
//! ```text
//!   0x0000  TAIL    u64  end of the last entry; stored by the writers, with LOCK held
//!   0x0008  FENCED  u64  end of the last fence; the same
//!   0x0010  LOCK         see `lock`
//!   0x0038  DEAD    u32  1: no more stores land; beside TAIL, so that a lander that looks at many queues reads one line of each
//!   0x003c  DEPTH   u32  most bytes of entries that may be under way; 0: as many as there is room for
//!   0x0040  ASLEEP  u32  not 0: the lander sleeps, or is about to: a writer that stores must wake it, and then clears this, if it is the
//!                        same number still (the lander takes another one for each sleep)
//!   0x0044  WAKE    u32  futex of the lander
//!   0x0080  FREED   u64  end of the last entry whose room is free again; stored by the lander
//!   0x0088  WANTED  u32  bytes of room that a writer waits for; when there are as many the lander makes it 0 and wakes the writers
//!   0x008c  ROOM    u32  futex of the writers that wait for room
//!   0x1000  entries: offset u64 | length u32, kind u32 | time of the store, ns u64 | bytes, to a multiple of 8
//! ```
//! Positions count bytes since the queue was made; an entry lies at its position modulo `DATA`, and may wrap round the end. A
//! writer that is killed leaves at most bytes behind TAIL, which no reader reads. The lander trusts nothing in the memfd: it keeps
//! its own positions, reads each head once, and checks it. Writers, of which the daemon may be one, check what they read too.

mod reader;
mod sleep;
#[cfg(test)]
mod tests;
mod writer;

/// The time stamp of stores, ns.
pub use crate::clock::now_ns as now;
pub use reader::{Entry, Garbage, Reader, What};
pub use sleep::{QUEUES_MAX, Waker, sleep, sleep_exactly};
pub(crate) use writer::Writer;

use crate::mapping::{MapError, Mapping, new_segment};
use crate::segment::QUEUE_LEN;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::OwnedFd;

/// Bytes of the words before the entries.
const WORDS: usize = 4096;
/// Most bytes of all entries that are under way.
const DATA: usize = 256 << 10;
/// Bytes of the memfd.
pub const LEN: u64 = QUEUE_LEN;
const _: () = assert!(LEN == (WORDS + DATA) as u64);
/// Bytes of an entry's head.
const HEAD: usize = 24;
/// Most bytes stored by one entry: a larger store becomes several entries.
pub(crate) const PIECE: usize = 2048;
/// Most bytes that a writer stores while it holds the lock once.
const LOCKED: usize = 16 * PIECE;

const TAIL: usize = 0x00;
const FENCED: usize = 0x08;
const LOCK: usize = 0x10;
const ASLEEP: usize = 0x40;
const WAKE: usize = 0x44;
const FREED: usize = 0x80;
const WANTED: usize = 0x88;
const ROOM: usize = 0x8c;
const DEAD: usize = 0x38;
const DEPTH: usize = 0x3c;

/// Kind of an entry: a store of bytes.
const STORE: u32 = 1;
/// Beside [`STORE`]: the writer had waited for room. It would have stored earlier if the lander had been on time.
const HELD_UP: u32 = 0x100;
/// Kind of an entry: a fence. No entry behind it lands before an entry in front of it.
const FENCE: u32 = 2;
/// Kind of an entry: a wake of the sleeper whose waker has the number that stands for the offset, behind all that was stored before.
const WAKING: u32 = 3;

/// Least that [`create_with`] may be told: a few entries.
pub const DEPTH_MIN: u32 = 16 << 10;

/// Makes the memory of an empty queue.
///
/// # Errors
/// See [`MapError`].
pub fn create() -> Result<OwnedFd, MapError> {
    new_segment("crosslane-queue", LEN)
}

/// As [`create`], of a queue in which at most `depth` bytes are under way: at least [`DEPTH_MIN`]. What is stored behind so much waits in
/// its writer, as a processor's stores do where a link has no credit.
///
/// # Errors
/// See [`MapError`].
pub fn create_with(depth: u32) -> Result<OwnedFd, MapError> {
    let queue = create()?;
    Mapping::new(&queue, LEN)?.word32(DEPTH).store(depth.max(DEPTH_MIN), Relaxed);
    Ok(queue)
}

/// The byte of the memfd at which `position` lies.
fn place(position: u64) -> usize {
    WORDS + usize::try_from(position % DATA as u64).unwrap_or(0)
}

/// Bytes of an entry that stores `len` bytes.
const fn entry_len(len: usize) -> usize {
    HEAD + len.next_multiple_of(8)
}
