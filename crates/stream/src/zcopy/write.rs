//! Write Zcopy: the source claims and writes, the sink takes back.

use super::{Action, Announced, InvalidReference, Word};
use crosslane_wire::zcopy::{bytes_of, sequence_of, word};

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
            4 if !is_sink_off(loaded, self.sequence) => Action::Done(true),
            4 => Action::Store(Word::WrClaim, 0),
            _ => Action::Done(false),
        }
    }
}

/// Whether offer `sequence` was taken back by the sink's word, which speaks of the last one that was: all before that are
/// over too, since one is open at a time.
fn is_sink_off(sink_off: u64, sequence: u32) -> bool {
    let off = sequence_of(sink_off);
    off != 0 && off.wrapping_sub(sequence) < u32::MAX / 2
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
    pub fn step(&mut self, loaded: u64) -> Result<Action<Option<u32>>, InvalidReference> {
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
pub fn landed(what: Announced, wr_done: u64) -> Result<Option<u32>, InvalidReference> {
    match bytes_of(wr_done, what.sequence) {
        None | Some(0) => Ok(None),
        Some(got) if got > what.len => {
            Err(InvalidReference { sequence: what.sequence, got, least: 1, most: what.len })
        }
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_last_is_over_and_all_before_it() {
        for (off, sequence, over) in [
            (0, 7, false),
            (6, 7, false),
            (7, 7, true),
            (8, 7, true),
            (2, u32::MAX, true),
            (u32::MAX, 2, false),
        ] {
            assert_eq!(is_sink_off(word(off, 0), sequence), over, "{off} {sequence}");
        }
    }

    #[test]
    fn what_is_said_to_be_written_is_held_against_what_was_offered() {
        let what = Announced { sequence: 7, len: 100 };
        assert!(landed(what, word(7, 101)).is_err());
        assert_eq!((landed(what, word(7, 0)), landed(what, word(7, 3))), (Ok(None), Ok(Some(3))));
    }
}
