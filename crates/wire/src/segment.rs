//! Layout of one segment: a page of words that the writer keeps for the reader, then the byte ring.
//!
//! ```text
//!            memory of R, written by W only, read by R only
//!   0x0000  STATE     u32   0 not attached yet, 1 W attached, 2 W gone, 3 W attached but receives no more
//!   0x0004  ORDER     u32   1: W waits for several streams; R must stamp the records of R -> W
//!   0x0040  CREDIT    u64   position up to which W has consumed the other ring (R -> W), bytes
//!   0x0048  WANT_DATA u64   W is about to sleep until R -> W has data: sequence << 32 | W's waiter; 0: W is awake
//!   0x0050  WANT_ROOM u64   W is about to sleep until its own ring W -> R has room; same form
//!   0x0058  ACKED     u64   if W is a pump: stream offset of R -> W up to which the far end's program has received
//!   0x0080  RD_DONE   u64   how many bytes of R's announcement W has fetched (RdmaRdCompl)   } answers of W as the
//!   0x0088  SEND_SM   u64   R must send the announced bytes through the ring (SendSm)        } sink of R -> W
//!   0x0090  SINK_OFF  u64   W cancels its offer: R must not write into it (SinkAvailCancel)  }
//!   0x0098  MODE      u64   1: R must not announce memory (ModeChange to Buffered)           }
//!   0x00c0  SRC_OFF   u64   W cancels its announcements up to this one (SrcAvailCancel)      } W as the source of
//!   0x00c8  VERDICT   u64   how many bytes of this announcement count as fetched             } W -> R
//!   0x00d0  WR_CLAIM  u64   W is writing into R's offer; 0: it is not (SinkCancelAck)        }
//!   0x00d8  RING_AT   u64   W sleeps until R has fetched this announcement, not the last one }
//!   0x0100  WR_DONE   u64   how many bytes W has written into R's offer: R's daemon reads it when the stream moves
//!   0x1000  ring of W -> R, `ring_max` bytes
//! ```
//! R's program reads how many bytes W has written into its offer (RdmaWrCompl) behind the buffer (`crate::buffer`), and
//! not in `WR_DONE`, which W stores first, in a cache line that no program polls.
//! The words from `RD_DONE` on, except `MODE`, have the form of `crate::zcopy`: announcement << 32 | bytes.
//! Every word has one writer, W, and lies in its reader's memory, R's (laws 1 and 2). `CREDIT`, the two `WANT` words and
//! `ACKED` share a cache line, since a sender reads them together.

/// Page size that segments are aligned to, bytes.
pub const PAGE: u64 = 4096;
/// Cache line, bytes; every record starts on one.
pub const LINE: u64 = 64;
/// Offset of the state word (u32).
pub const STATE: usize = 0x00;
/// Offset of the word that requests stamps (u32).
pub const ORDER: usize = 0x04;
/// Offset of the credit word (u64).
pub const CREDIT: usize = 0x40;
/// Offset of the word that requests a wake when data arrives (u64).
pub const WANT_DATA: usize = 0x48;
/// Offset of the word that requests a wake when credit arrives (u64).
pub const WANT_ROOM: usize = 0x50;
/// Offset of the word that a pump stores: stream offset up to which the far end's program has received (u64).
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
/// Offset of the number of bytes of a cancelled announcement that count as fetched (u64).
pub const VERDICT: usize = 0xc8;
/// Offset of the word that is not 0 while W writes into announced memory (u64).
pub const WR_CLAIM: usize = 0xd0;
/// Offset of the announcement after whose fetch R is to wake W (u64).
pub const RING_AT: usize = 0xd8;
/// Offset of the number of bytes that W has written into R's offer, for R's daemon (u64).
pub const WR_DONE: usize = 0x100;
/// Offset of the ring.
pub const RING: usize = 0x1000;
/// Smallest ring, bytes; every ring begins with this length.
pub const RING_MIN: u64 = 64 * 1024;
/// Largest ring, bytes.
pub const RING_MAX: u64 = 64 * 1024 * 1024;

/// State word: the writer has not attached yet.
pub const STATE_NONE: u32 = 0;
/// State word: the writer is attached.
pub const STATE_ATTACHED: u32 = 1;
/// State word: the writer is closed.
pub const STATE_GONE: u32 = 2;
/// State word: the writer has ended its own direction and receives no more (`shutdown` of both): a send to it fails as after a
/// reset.
pub const STATE_DEAF: u32 = 3;

/// Length of a retention ring's memory, bytes, a power of two: the most bytes that a stream over pumps may have sent
/// without an acknowledgement.
pub const RETENTION: u64 = 4 * 1024 * 1024;
/// Initial length of the part of a retention ring in use, bytes, a power of two. It fits a processor's own cache, where
/// the copy costs a quarter less than into 2 MB, and is more than pumps and the far program leave unacknowledged on
/// coherent memory: a quarter of a pump's ring and some tens of KB. Where stores take time to land it grows freely.
pub const RETENTION_MIN: u64 = 512 * 1024;

/// Length of a segment that holds a ring of `ring_max` bytes.
pub const fn segment_len(ring_max: u64) -> u64 {
    RING as u64 + ring_max
}

/// Whether `ring_max` is a power of two between [`RING_MIN`] and [`RING_MAX`].
pub const fn ring_max_ok(ring_max: u64) -> bool {
    ring_max.is_power_of_two() && ring_max >= RING_MIN && ring_max <= RING_MAX
}
