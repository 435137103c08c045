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

use crosslane_wire::zcopy::{bytes_of, next_sequence, sequence_of, word};
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

/// Announced memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Which.
    pub sequence: u32,
    /// Bytes.
    pub len: u32,
}

/// The announcements of a source that are not fetched in full, the oldest first: as many as the mode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Open {
    first: u32,
    count: usize,
    lens: [u32; PIPELINE],
}

/// How far the sink has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Announcements that it has fetched in full.
    pub ended: usize,
    /// Bytes that it has fetched of the next one.
    pub fetched: u32,
}

impl Open {
    /// Of the announcements from number `first` on, with these lengths, bytes; [`PIPELINE`] at most.
    pub fn new(first: u32, lens: &[u32]) -> Self {
        let mut open = Self { first, count: lens.len().min(PIPELINE), lens: [0; PIPELINE] };
        open.lens[..open.count].copy_from_slice(&lens[..open.count]);
        open
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The `index`-th of them.
    pub fn at(&self, index: usize) -> Announced {
        let sequence = (0..index).fold(self.first, |sequence, _| next_sequence(sequence));
        Announced { sequence, len: self.lens.get(index).copied().unwrap_or(0) }
    }

    /// The newest, if there is any.
    pub fn last(&self) -> Option<Announced> {
        self.count.checked_sub(1).map(|index| self.at(index))
    }

    /// Without the first `ended`, and with another one of `len` bytes behind them if that is not 0.
    pub fn advanced(&self, ended: usize, len: u32, next: u32) -> Self {
        let mut open = Self::new(self.at(ended).sequence, &self.lens[ended.min(self.count)..self.count]);
        if open.count == 0 {
            open.first = next;
        }
        if len > 0 && open.count < PIPELINE {
            open.lens[open.count] = len;
            open.count += 1;
        }
        open
    }

    /// Bytes that were announced and are not fetched, as `progress` has it.
    pub fn missing(&self, progress: Progress) -> u64 {
        let all: u64 =
            self.lens[progress.ended.min(self.count)..self.count].iter().map(|&len| u64::from(len)).sum();
        all.saturating_sub(progress.fetched.into())
    }

    /// How far the sink has come if the last `missing` bytes that were announced do not count.
    pub fn without(&self, missing: u64) -> Progress {
        let all = self.missing(Progress { ended: 0, fetched: 0 });
        let (mut left, mut ended) = (all.saturating_sub(missing), 0);
        while ended < self.count && left >= u64::from(self.lens[ended]) {
            left -= u64::from(self.lens[ended]);
            ended += 1;
        }
        Progress { ended, fetched: u32::try_from(left).unwrap_or(0) }
    }

    /// Which of them has this number.
    pub fn find(&self, sequence: u32) -> Option<usize> {
        (0..self.count).find(|&index| self.at(index).sequence == sequence)
    }

    /// What the sink's word says; of the first one, it had fetched `before` bytes at the last look.
    ///
    /// # Errors
    /// It says what cannot be.
    pub fn progress(&self, rd_done: u64, before: u32) -> Result<Progress, Lie> {
        // A word about an announcement that is over says nothing new.
        let Some(index) = self.find(sequence_of(rd_done)) else {
            return Ok(Progress { ended: 0, fetched: before });
        };
        let Announced { sequence, len: most } = self.at(index);
        let least = if index == 0 { before } else { 0 };
        let got = bytes_of(rd_done, sequence).unwrap_or(least);
        if got < least || got > most {
            return Err(Lie { sequence, got, least, most });
        }
        Ok(if got == most {
            Progress { ended: index + 1, fetched: 0 }
        } else {
            Progress { ended: index, fetched: got }
        })
    }
}

/// Whether announcement `sequence` is among those that were taken back by the source's word.
pub fn is_off(src_off: u64, sequence: u32) -> bool {
    let off = sequence_of(src_off);
    off != 0 && (off.wrapping_sub(sequence) as usize) <= PIPELINE
}

/// The source takes all its announcements back (SrcAvailCancel). It never waits; the result is what counts as fetched.
#[derive(Clone, Copy, Debug)]
pub struct Cancel {
    what: Open,
    before: u32,
    at: u8,
    progress: Progress,
}

impl Cancel {
    /// Of the first of which `before` bytes were fetched at the last look. There is at least one.
    pub fn new(what: Open, before: u32) -> Self {
        Self { what, before, at: 0, progress: Progress { ended: 0, fetched: 0 } }
    }

    /// The next action; `loaded` is what the last one loaded.
    ///
    /// # Errors
    /// The sink says what cannot be.
    pub fn step(&mut self, loaded: u64) -> Result<Action<Progress>, Lie> {
        let Some(last) = self.what.last() else { return Ok(Action::Done(self.progress)) };
        self.at += 1;
        Ok(match self.at {
            1 => Action::Store(Word::SrcOff, word(last.sequence, 0)),
            2 => Action::Fence,
            3 => Action::Load(Word::RdDone),
            4 => {
                self.progress = self.what.progress(loaded, self.before)?;
                let Progress { ended, fetched } = self.progress;
                let verdict = if ended == self.what.count() {
                    word(last.sequence, last.len)
                } else {
                    word(self.what.at(ended).sequence, fetched)
                };
                Action::Store(Word::Verdict, verdict)
            }
            _ => Action::Done(self.progress),
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

    /// Of announcement `sequence`, which was taken back, `confirmed` bytes were confirmed, at least one: waits for the
    /// verdict. Where none were, none count, whatever the verdict is.
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
            4 if !is_off(loaded, self.sequence) => Action::Done(Fetched::Counts),
            4 | AWAITING => self.await_verdict(),
            _ => match bytes_of(loaded, self.sequence) {
                // The verdict is on a later one: this one was fetched in full.
                None if is_later(loaded, self.sequence) => Action::Done(Fetched::Counts),
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

/// Whether a verdict speaks of an announcement after `sequence`, among those that can be open with it.
fn is_later(verdict: u64, sequence: u32) -> bool {
    let distance = sequence_of(verdict).wrapping_sub(sequence) as usize;
    sequence_of(verdict) != 0 && (1..=PIPELINE).contains(&distance)
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
        let what = Open::new(u32::MAX, &[100, 50]);
        let of = |rd_done| what.progress(rd_done, 10).map(|progress| (progress.ended, progress.fetched));
        assert_eq!(
            (of(word(u32::MAX, 10)), of(word(u32::MAX, 100)), of(word(7, 900))),
            (Ok((0, 10)), Ok((1, 0)), Ok((0, 10)))
        );
        assert_eq!((of(word(1, 0)), of(word(1, 50))), (Ok((1, 0)), Ok((2, 0))));
        assert!(
            of(word(u32::MAX, 101)).is_err() && of(word(u32::MAX, 9)).is_err() && of(word(1, 51)).is_err()
        );
        let what = Announced { sequence: 7, len: 100 };
        assert!(landed(what, word(7, 101)).is_err());
        assert_eq!((landed(what, word(7, 0)), landed(what, word(7, 3))), (Ok(None), Ok(Some(3))));
    }

    #[test]
    fn what_is_open_is_counted_from_both_ends() {
        let open = Open::default().advanced(0, 10, u32::MAX).advanced(0, 20, 0).advanced(0, 30, 0);
        assert_eq!((open.count(), open.last()), (3, Some(Announced { sequence: 2, len: 30 })));
        for (ended, fetched, missing) in [(0, 0, 60), (0, 9, 51), (1, 0, 50), (2, 29, 1), (3, 0, 0)] {
            let progress = Progress { ended, fetched };
            assert_eq!((open.missing(progress), open.without(missing)), (missing, progress));
        }
        let rest = open.advanced(2, 0, 0);
        assert_eq!((rest.count(), rest.at(0)), (1, Announced { sequence: 2, len: 30 }));
        assert_eq!(rest.advanced(1, 5, 3).at(0), Announced { sequence: 3, len: 5 });
        let full = (0..2 * PIPELINE).fold(open, |open, _| open.advanced(0, 1, 0));
        assert_eq!(full.count(), PIPELINE);
    }

    #[test]
    fn what_is_taken_back_is_all_that_was_open_and_nothing_later() {
        let off = word(9, 0);
        assert!(is_off(off, 9) && is_off(off, 5) && !is_off(off, 10) && !is_off(0, 0));
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
