//! Zero copy: one side announces memory, and the other side reads or writes it. Either side may cancel at any moment. The rules
//! are those of the Sockets Direct Protocol (InfiniBand Architecture Specification, annex A4). SDP messages that must overtake
//! unread bytes are words of the segment here, not records (`crosslane_wire::segment`, `crosslane_wire::buffer`).
//!
//! ```text
//!   Read Zcopy    source  SrcAvail record --------------------------> sink fetches, a piece at a time
//!                         <-- RdmaRdCompl (RD_DONE) --  or  <-- SendSm: the source must send by the ring
//!                         SrcAvailCancel (SRC_OFF), VERDICT --------> the sink drops bytes that it fetched late
//!   Write Zcopy   sink    SinkAvail record -------------------------> source claims, writes,
//!                         <-- RdmaWrCompl, behind the bytes --
//!                         SinkAvailCancel (SINK_OFF) ---------------> a source that has not claimed never writes
//!   Transaction   the SinkAvail record carries a request; the source writes the answer into the announced memory
//! ```
//!
//! **Cancelling is a race**, and neither side may wait long in it. Each race here is resolved as in Dekker's algorithm: both
//! sides store a word, fence, and load the word that the other one stores. The machines below make one access to shared
//! memory at a time, so that a test runs them in every order, store buffers included (`tests/orders.rs`); `crosslane_client`
//! runs them on segments. A source that cancels never waits: the sink only reads the source's memory, so bytes that it
//! fetches too late do not count and do no harm. A sink that cancels waits for a source that has claimed its memory.

mod fetch;
mod source;
mod write;

pub use fetch::{Confirm, Fetched};
pub use source::{Cancel, Open, Progress, is_off};
pub use write::{Claim, TakeBack, Written, landed};

use thiserror::Error;

/// SDP's flow control mode of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything goes through the ring (Bcopy).
    Buffered,
    /// The source may have one announcement open at a time; its record carries bytes as well.
    Combined,
    /// The source may have up to [`PIPELINE`] announcements open.
    Pipelined,
}

/// The two ends of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The sender.
    Source,
    /// The receiver.
    Sink,
}

/// Most announcements of a source that the sink has not fetched in full, in [`Mode::Pipelined`].
pub const PIPELINE: usize = 8;

impl Mode {
    /// How many announcements the source may have open at a time.
    pub fn announcements(self) -> usize {
        match self {
            Self::Buffered => 0,
            Self::Combined => 1,
            Self::Pipelined => PIPELINE,
        }
    }

    /// Whether `role` may change this mode into `next` (ModeChange): the source decides between Combined and Pipelined, the sink
    /// about Buffered.
    pub fn may_become(self, next: Self, role: Role) -> bool {
        match (self, next) {
            (Self::Combined, Self::Pipelined) | (Self::Pipelined, Self::Combined) => role == Role::Source,
            (Self::Combined, Self::Buffered) | (Self::Buffered, Self::Combined) => role == Role::Sink,
            _ => false,
        }
    }

    /// The mode to use if the source wants `wanted` and the sink's `MODE` word is `word`.
    pub fn under(word: u64, wanted: Self) -> Self {
        if word == 0 { wanted } else { Self::Buffered }
    }
}

/// A word of the peer names more bytes than were announced; this end aborts the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("peer says {got} bytes of announcement {sequence}, between {least} and {most} are possible")]
pub struct InvalidReference {
    /// Number of the announcement.
    pub sequence: u32,
    /// Bytes in the peer's word.
    pub got: u32,
    /// Bytes in the peer's last word for the same announcement.
    pub least: u32,
    /// Bytes that were announced.
    pub most: u32,
}

/// A word that one side stores into the other side's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// RdmaRdCompl: stored by the sink of a direction.
    RdDone,
    /// SendSm: stored by the sink.
    SendSm,
    /// SinkAvailCancel: stored by the sink.
    SinkOff,
    /// SrcAvailCancel: stored by the source.
    SrcOff,
    /// Stored by the source: how many bytes of a cancelled announcement count as fetched.
    Verdict,
    /// Stored by the source: it writes into the sink's memory now.
    WrClaim,
    /// RdmaWrCompl: stored by the source, behind the memory that it wrote.
    WrDone,
}

/// What the caller of a machine has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Store this word into the other side's memory, after all earlier stores.
    Store(Word, u64),
    /// Full fence: orders all earlier stores before all later loads.
    Fence,
    /// Load this word of this side's memory and pass it to the next call.
    Load(Word),
    /// As `Load`, but the word changes only once the other side acts, which it may never do: do not spin.
    Await(Word),
    /// The machine has ended, with this result.
    Done(T),
}

/// Announced memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Number of the announcement.
    pub sequence: u32,
    /// Length, bytes.
    pub len: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 3] = [Mode::Buffered, Mode::Combined, Mode::Pipelined];

    #[test]
    fn zcopy_mode_change_has_one_master() {
        for from in MODES {
            for to in MODES {
                let masters =
                    [Role::Source, Role::Sink].into_iter().filter(|&role| from.may_become(to, role));
                let expected = match (from, to) {
                    (from, to) if from == to => 0,
                    (Mode::Buffered, Mode::Pipelined) | (Mode::Pipelined, Mode::Buffered) => 0,
                    _ => 1,
                };
                assert_eq!(masters.count(), expected, "{from:?} to {to:?}");
            }
        }
        assert_eq!(MODES.map(Mode::announcements), [0, 1, PIPELINE]);
        assert_eq!(Mode::under(1, Mode::Pipelined), Mode::Buffered);
    }
}
