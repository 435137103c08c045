//! Zero copy: one side announces memory, the other reads or writes it by itself, and either may take its word back at any
//! moment. The rules are those of the Sockets Direct Protocol (InfiniBand Architecture Specification, annex A4); its
//! messages that must overtake unread bytes are words here (`crosslane_wire::segment`, `crosslane_wire::buffer`).
//!
//! ```text
//!   Read Zcopy    source  SrcAvail record --------------------------> sink fetches, a piece at a time
//!                         <-- RdmaRdCompl (RD_DONE) --  or  <-- SendSm: "by the ring, please"
//!                         SrcAvailCancel (SRC_OFF), VERDICT --------> what came too late is dropped
//!   Write Zcopy   sink    SinkAvail record -------------------------> source claims, writes,
//!                         <-- RdmaWrCompl, behind the bytes --
//!                         SinkAvailCancel (SINK_OFF) ---------------> unless claimed, it never writes
//!   Transaction   the SinkAvail record carries a request; the answer is written into the announced memory
//! ```
//!
//! **Taking back is a race**, and nobody may wait long in it. Each contest here is Dekker's: both sides store, fence, and
//! load what the other one stores. The machines below make one access to shared memory at a time, so that a test can run
//! them in every order, store buffers included (`tests/orders.rs`); `crosslane_client` runs them on segments.
//! A source that takes back never waits: its memory is only read, so a fetch that comes too late may go on, and is void.
//! A sink that takes back waits for a writer that has claimed its memory.

mod fetch;
mod source;
mod write;

pub use fetch::{Confirm, Fetched};
pub use source::{Cancel, Open, Progress, is_off};
pub use write::{Claim, TakeBack, Written, landed};

use thiserror::Error;

/// How a direction is flow controlled, as the specification has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the ring alone (Bcopy).
    Buffered,
    /// The source may have announced one piece of memory at a time; its record carries bytes as well.
    Combined,
    /// The source may have announced several.
    Pipelined,
}

/// The two sides of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that sends.
    Source,
    /// The one that receives.
    Sink,
}

/// Most announcements of a source that are not answered in [`Mode::Pipelined`].
pub const PIPELINE: usize = 8;

impl Mode {
    /// Announcements of the source that may be unanswered at a time.
    pub fn announcements(self) -> usize {
        match self {
            Self::Buffered => 0,
            Self::Combined => 1,
            Self::Pipelined => PIPELINE,
        }
    }

    /// Whether `role` may change this mode into `next` (ModeChange): how much is announced is the source's matter, whether
    /// anything is at all, the sink's.
    pub fn may_become(self, next: Self, role: Role) -> bool {
        match (self, next) {
            (Self::Combined, Self::Pipelined) | (Self::Pipelined, Self::Combined) => role == Role::Source,
            (Self::Combined, Self::Buffered) | (Self::Buffered, Self::Combined) => role == Role::Sink,
            _ => false,
        }
    }

    /// The mode that the sink's word asks for, while the source would have it `wanted`.
    pub fn under(word: u64, wanted: Self) -> Self {
        if word == 0 { wanted } else { Self::Buffered }
    }
}

/// A peer said what cannot be; the stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("peer says {got} bytes of announcement {sequence}, between {least} and {most} are possible")]
pub struct InvalidReference {
    /// Which.
    pub sequence: u32,
    /// What it said.
    pub got: u32,
    /// What it said before.
    pub least: u32,
    /// What was announced.
    pub most: u32,
}

/// A word that the two sides share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// RdmaRdCompl: written by the sink of a direction.
    RdDone,
    /// SendSm: by the sink.
    SendSm,
    /// SinkAvailCancel: by the sink.
    SinkOff,
    /// SrcAvailCancel: by the source.
    SrcOff,
    /// What counts of a cancelled announcement: by the source.
    Verdict,
    /// The source writes now.
    WrClaim,
    /// RdmaWrCompl: by the source, behind the memory that it wrote.
    WrDone,
}

/// What a machine wants done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Store this word into the other side's memory, after everything stored before.
    Store(Word, u64),
    /// Order everything stored before everything loaded after.
    Fence,
    /// Load this word of our own memory and give it to the next call.
    Load(Word),
    /// As `Load`, but the other side has to act first: there is no hurry, and no promise that it does.
    Await(Word),
    /// It is over.
    Done(T),
}

/// Announced memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Which.
    pub sequence: u32,
    /// Bytes.
    pub len: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 3] = [Mode::Buffered, Mode::Combined, Mode::Pipelined];

    #[test]
    fn each_change_of_mode_has_one_master() {
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
