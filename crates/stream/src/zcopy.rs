//! Zero copy: one side announces memory, the other reads or writes it by itself, and either may take its word back at any
//! moment. The rules are those of the Sockets Direct Protocol (InfiniBand Architecture Specification, annex A4); its
//! messages that must overtake unread bytes are words here (`crosslane_wire::slice`).
//!
//! ```text
//!   Read Zcopy    source  SrcAvail record --------------------------> sink fetches, a piece at a time
//!                         <-- RdmaRdCompl (RD_DONE) --  or  <-- SendSm: "by the ring, please"
//!                         SrcAvailCancel (SRC_OFF), VERDICT --------> what came too late is dropped
//!   Write Zcopy   sink    SinkAvail record -------------------------> source claims, writes,
//!                         <-- RdmaWrCompl (WR_DONE) --
//!                         SinkAvailCancel (SINK_OFF) ---------------> unless claimed, it never writes
//!   Transaction   the SinkAvail record carries a request; the answer is written into the announced memory
//! ```
//!
//! **Taking back is a race**, and nobody may wait long in it. Each contest here is Dekker's: both sides store, fence, and
//! load what the other one stores. The machines below make one access to shared memory at a time, so that a test can run
//! them in every order, store buffers included (`tests/orders.rs`); `crosslane_client` runs them on slices.
//! A source that takes back never waits: its memory is only read, so a fetch that comes too late may go on, and is void.
//! A sink that takes back waits for a writer that has claimed its memory.

use crosslane_wire::zcopy::{bytes_of, sequence_of, word};
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
pub struct Lie {
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
    /// RdmaWrCompl: by the source.
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

/// An announcement of ours that is not answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Which.
    pub sequence: u32,
    /// Bytes.
    pub len: u32,
}

/// How far the sink of an announcement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that it has fetched.
    pub fetched: u32,
    /// It wants the rest by the ring.
    pub refused: bool,
}

impl Announced {
    /// What the sink's two words say; it had fetched `before` bytes at the last look.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn progress(self, rd_done: u64, send_sm: u64, before: u32) -> Result<Progress, Lie> {
        let fetched = self.fetched(rd_done, before)?;
        Ok(Progress { fetched, refused: sequence_of(send_sm) == self.sequence })
    }

    fn fetched(self, rd_done: u64, least: u32) -> Result<u32, Lie> {
        let Self { sequence, len: most } = self;
        let got = bytes_of(rd_done, sequence).unwrap_or(least);
        if got < least || got > most { Err(Lie { sequence, got, least, most }) } else { Ok(got) }
    }
}

/// The source takes an announcement back (SrcAvailCancel). It never waits; the result is how many bytes count as fetched.
#[derive(Clone, Copy, Debug)]
pub struct Cancel {
    what: Announced,
    before: u32,
    at: u8,
    fetched: u32,
}

impl Cancel {
    /// Of which `before` bytes were fetched at the last look.
    pub fn new(what: Announced, before: u32) -> Self {
        Self { what, before, at: 0, fetched: 0 }
    }

    /// The next action; `loaded` is what the last one loaded.
    ///
    /// # Errors
    /// The sink says what cannot be.
    pub fn step(&mut self, loaded: u64) -> Result<Action<u32>, Lie> {
        let sequence = self.what.sequence;
        self.at += 1;
        Ok(match self.at {
            1 => Action::Store(Word::SrcOff, word(sequence, 0)),
            2 => Action::Fence,
            3 => Action::Load(Word::RdDone),
            4 => {
                self.fetched = self.what.fetched(loaded, self.before)?;
                Action::Store(Word::Verdict, word(sequence, self.fetched))
            }
            _ => Action::Done(self.fetched),
        })
    }
}

/// What became of a piece that was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It counts.
    Counts,
    /// It counts, and is the last one: the rest comes by the ring.
    CountsAndEnds,
    /// It came too late: what was copied is not to be used, and all comes by the ring.
    Void,
}

/// The step of [`Confirm`] with which it begins that only waits for the verdict.
const AWAITING: u8 = 100;

/// The sink has fetched a piece and says so (RdmaRdCompl).
#[derive(Clone, Copy, Debug)]
pub struct Confirm {
    sequence: u32,
    before: u32,
    after: u32,
    at: u8,
}

impl Confirm {
    /// Of announcement `sequence`, `before` bytes were confirmed, and `after` bytes are fetched now.
    pub fn new(sequence: u32, before: u32, after: u32) -> Self {
        Self { sequence, before, after, at: 0 }
    }

    /// Of announcement `sequence`, which was taken back, `confirmed` bytes were confirmed: waits for the verdict.
    pub fn awaiting(sequence: u32, confirmed: u32) -> Self {
        Self { sequence, before: confirmed, after: confirmed, at: AWAITING - 1 }
    }

    /// The next action; `loaded` is what the last one loaded.
    ///
    /// # Errors
    /// The source's verdict cannot be.
    pub fn step(&mut self, loaded: u64) -> Result<Action<Fetched>, Lie> {
        self.at += 1;
        Ok(match self.at {
            1 => Action::Store(Word::RdDone, word(self.sequence, self.after)),
            2 => Action::Fence,
            3 => Action::Load(Word::SrcOff),
            4 if sequence_of(loaded) != self.sequence => Action::Done(Fetched::Counts),
            4 | AWAITING => self.await_verdict(),
            _ => match bytes_of(loaded, self.sequence) {
                None => self.await_verdict(),
                Some(bytes) if bytes == self.after => Action::Done(Fetched::CountsAndEnds),
                Some(bytes) if bytes == self.before => Action::Done(Fetched::Void),
                Some(got) => {
                    let Self { sequence, before: least, after: most, .. } = *self;
                    return Err(Lie { sequence, got, least, most });
                }
            },
        })
    }
}

impl Confirm {
    fn await_verdict(&mut self) -> Action<Fetched> {
        self.at = AWAITING;
        Action::Await(Word::Verdict)
    }
}

/// The source is about to write into what the sink announced: whether it may.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    sequence: u32,
    at: u8,
}

impl Claim {
    /// Of announcement `sequence`.
    pub fn new(sequence: u32) -> Self {
        Self { sequence, at: 0 }
    }

    /// The next action; `loaded` is what the last one loaded.
    pub fn step(&mut self, loaded: u64) -> Action<bool> {
        self.at += 1;
        match self.at {
            1 => Action::Store(Word::WrClaim, word(self.sequence, 0)),
            2 => Action::Fence,
            3 => Action::Load(Word::SinkOff),
            4 if sequence_of(loaded) != self.sequence => Action::Done(true),
            4 => Action::Store(Word::WrClaim, 0),
            _ => Action::Done(false),
        }
    }
}

/// The source has written what it claimed (RdmaWrCompl); with 0 bytes it gives the claim back (SinkCancelAck).
#[derive(Clone, Copy, Debug)]
pub struct Written {
    sequence: u32,
    bytes: u32,
    at: u8,
}

impl Written {
    /// `bytes` of announcement `sequence`.
    pub fn new(sequence: u32, bytes: u32) -> Self {
        Self { sequence, bytes, at: 0 }
    }

    /// The next action.
    pub fn step(&mut self) -> Action<()> {
        self.at += 1;
        match self.at {
            1 => Action::Store(Word::WrDone, word(self.sequence, self.bytes)),
            2 => Action::Store(Word::WrClaim, 0),
            _ => Action::Done(()),
        }
    }
}

/// The sink takes its memory back (SinkAvailCancel). Waits while the source writes; the result is what it has written, if
/// it did. After that it never writes.
#[derive(Clone, Copy, Debug)]
pub struct TakeBack {
    what: Announced,
    at: u8,
}

impl TakeBack {
    /// Of this announcement.
    pub fn new(what: Announced) -> Self {
        Self { what, at: 0 }
    }

    /// The next action; `loaded` is what the last one loaded.
    ///
    /// # Errors
    /// The source says what cannot be.
    pub fn step(&mut self, loaded: u64) -> Result<Action<Option<u32>>, Lie> {
        self.at += 1;
        Ok(match self.at {
            1 => Action::Store(Word::SinkOff, word(self.what.sequence, 0)),
            2 => Action::Fence,
            3 => Action::Load(Word::WrClaim),
            4 if sequence_of(loaded) == self.what.sequence => {
                self.at = 3;
                Action::Await(Word::WrClaim)
            }
            4 => Action::Load(Word::WrDone),
            _ => Action::Done(landed(self.what, loaded)?),
        })
    }
}

/// How many bytes the source has written into an announcement, if it has; `wr_done` is its word.
///
/// # Errors
/// More than was announced.
pub fn landed(what: Announced, wr_done: u64) -> Result<Option<u32>, Lie> {
    match bytes_of(wr_done, what.sequence) {
        None | Some(0) => Ok(None),
        Some(got) if got > what.len => Err(Lie { sequence: what.sequence, got, least: 1, most: what.len }),
        bytes => Ok(bytes),
    }
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

    #[test]
    fn what_a_sink_says_is_held_against_what_was_announced() {
        let what = Announced { sequence: 7, len: 100 };
        let of = |rd_done| what.progress(rd_done, word(6, 0), 10).map(|progress| progress.fetched);
        assert_eq!((of(word(7, 10)), of(word(7, 100)), of(word(6, 900))), (Ok(10), Ok(100), Ok(10)));
        assert!(of(word(7, 101)).is_err() && of(word(7, 9)).is_err());
        assert!(what.progress(0, word(7, 0), 0).is_ok_and(|progress| progress.refused));
        assert!(landed(what, word(7, 101)).is_err());
        assert_eq!((landed(what, word(7, 0)), landed(what, word(7, 3))), (Ok(None), Ok(Some(3))));
    }

    #[test]
    fn a_verdict_is_what_was_confirmed_before_or_now() {
        for (verdict, outcome) in [(10, Some(Fetched::Void)), (20, Some(Fetched::CountsAndEnds)), (15, None)]
        {
            let mut confirm = Confirm::new(7, 10, 20);
            for _ in 0..3 {
                assert!(confirm.step(0).is_ok());
            }
            assert_eq!(confirm.step(word(7, 0)), Ok(Action::Await(Word::Verdict)));
            for _ in 0..1000 {
                assert_eq!(confirm.step(word(6, 10)), Ok(Action::Await(Word::Verdict)));
            }
            let last = confirm.step(word(7, verdict));
            assert_eq!(last.ok(), outcome.map(Action::Done));
        }
    }
}
