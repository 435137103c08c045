//! Layout of one segment: a page of words that the writer keeps for the reader, then the byte ring.
//!
//! ```text
//!            memory of R, written by W only, read by R only
//!   0x0000  STATE     u32   0 nobody yet, 1 attached, 2 gone
//!   0x0004  ORDER     u32   1: W waits for several streams, and wants the records of R -> W stamped
//!   0x0040  CREDIT    u64   bytes of ring that W has consumed in the other direction (R -> W)
//!   0x0048  WANT_DATA u64   W is about to sleep until data of R -> W arrives: sequence << 32 | waiter, 0 = awake
//!   0x0050  WANT_ROOM u64   W is about to sleep until there is room in its own ring W -> R; same form
//!   0x0058  ACKED    u64   units of R -> W that the program at the stream's far end has taken, if W is between
//!   0x0080  RD_DONE   u64   W has fetched so much of what R announced last (RdmaRdCompl)       } answers of W as the
//!   0x0088  SEND_SM   u64   W wants what R announced sent by the ring (SendSm)                 } sink of R -> W
//!   0x0090  SINK_OFF  u64   R may not write into what W announced any more (SinkAvailCancel)   }
//!   0x0098  MODE      u64   1: W wants R -> W by the ring only (ModeChange to Buffered)        }
//!   0x00c0  SRC_OFF   u64   R may not fetch what W announced any more (SrcAvailCancel)         } W as the source of
//!   0x00c8  VERDICT   u64   and so much of it counts as fetched                                } W -> R
//!   0x00d0  WR_CLAIM  u64   W writes into what R announced now; 0: it does not (SinkCancelAck) }
//!   0x00d8  RING_AT   u64   W sleeps until R has fetched this one of several that W announced  }
//!   0x0100  WR_DONE   u64   W has written so much of what R announced: for R's daemon, which counts if the stream moves
//!   0x1000  ring of W -> R, `ring_max` bytes
//! ```
//! R's program learns how much W has written into what it announced (RdmaWrCompl) behind the written buffer:
//! `crate::buffer`. `WR_DONE` is stored before that, in a line that nobody looks at while the circuit lives.
//! The words from `RD_DONE` on are of `crate::zcopy`'s form: which announcement << 32 | bytes.
//! Every word has one writer, W, and lies with its reader, R (laws 1 and 2). `CREDIT`, the two
//! `WANT` words and `ACKED` share a cache line: the sender looks at all of them together.

/// Page size that segments are aligned to, bytes.
pub const PAGE: u64 = 4096;
/// Cache line, bytes; every record starts on one.
pub const LINE: u64 = 64;
/// Offset of the state word (u32).
pub const STATE: usize = 0x00;
/// Offset of the word that asks for stamps (u32).
pub const ORDER: usize = 0x04;
/// Offset of the credit word (u64).
pub const CREDIT: usize = 0x40;
/// Offset of the word that asks for a wake when data arrives (u64).
pub const WANT_DATA: usize = 0x48;
/// Offset of the word that asks for a wake when credits arrive (u64).
pub const WANT_ROOM: usize = 0x50;
/// Offset of the word that a host between keeps: units that have landed at the far end (u64).
pub const ACKED: usize = 0x58;
/// Offset of RdmaRdCompl (u64).
pub const RD_DONE: usize = 0x80;
/// Offset of SendSm (u64).
pub const SEND_SM: usize = 0x88;
/// Offset of SinkAvailCancel (u64).
pub const SINK_OFF: usize = 0x90;
/// Offset of the sink's ModeChange (u64).
pub const MODE: usize = 0x98;
/// Offset of SrcAvailCancel (u64).
pub const SRC_OFF: usize = 0xc0;
/// Offset of what counts of a cancelled announcement (u64).
pub const VERDICT: usize = 0xc8;
/// Offset of the word that is set while announced memory is written (u64).
pub const WR_CLAIM: usize = 0xd0;
/// Offset of the word that says at the end of which announcement a wake is asked for (u64).
pub const RING_AT: usize = 0xd8;
/// Offset of what W has written into what R announced, for R's daemon (u64).
pub const WR_DONE: usize = 0x100;
/// Offset of the ring.
pub const RING: usize = 0x1000;
/// Smallest ring, bytes; every ring starts with this much of itself in use.
pub const RING_MIN: u64 = 64 * 1024;
/// Largest ring, bytes.
pub const RING_MAX: u64 = 64 * 1024 * 1024;

/// State word: nobody has attached yet.
pub const STATE_NONE: u32 = 0;
/// State word: the writer is attached.
pub const STATE_ATTACHED: u32 = 1;
/// State word: the writer has left for good.
pub const STATE_GONE: u32 = 2;
/// State word: the writer has ended its own direction and receives no more (`shutdown` of both): what is sent to it is answered by
/// a reset.
pub const STATE_DEAF: u32 = 3;

/// Bytes of the memory of a retention ring: what a stream over more than one cable may have on its way at most. A power of
/// two.
pub const RETENTION: u64 = 4 * 1024 * 1024;
/// Bytes of it that are used at first, a power of two: so much stays in a processor's own cache, and the copy that goes
/// there costs a quarter less than into 2 MB. More than what hosts between and the far program withhold news of: a quarter of a
/// pump's ring and some tens of KB.
pub const RETENTION_MIN: u64 = 512 * 1024;

/// Length of a segment that holds a ring of `ring_max` bytes.
pub const fn segment_len(ring_max: u64) -> u64 {
    RING as u64 + ring_max
}

/// Whether `ring_max` is a power of two between [`RING_MIN`] and [`RING_MAX`].
pub const fn ring_max_ok(ring_max: u64) -> bool {
    ring_max.is_power_of_two() && ring_max >= RING_MIN && ring_max <= RING_MAX
}
