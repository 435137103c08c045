//! Write Zcopy: the source claims the sink's memory and writes; the sink may cancel.

use super::{Action, Announced, InvalidReference, Word};
use crosslane_wire::zcopy::{bytes_of, sequence_of, word};

/// Run by a source that is about to write into the sink's memory; the result says whether it may.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    sequence: u32,
    at: u8,
}

impl Claim {
    /// A claim of announcement `sequence`.
    pub fn new(sequence: u32) -> Self {
        Self { sequence, at: 0 }
    }

    /// The next action; `loaded` is the value of the last load.
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

/// Whether the sink's `SINK_OFF` word cancels offer `sequence`. The word names the last offer that the sink cancelled;
/// all earlier offers are over as well, since only one is open at a time.
fn is_sink_off(sink_off: u64, sequence: u32) -> bool {
    let off = sequence_of(sink_off);
    off != 0 && off.wrapping_sub(sequence) < u32::MAX / 2
}

/// Run by a source that has written into the memory that it claimed (RdmaWrCompl); with 0 bytes it drops the claim (SinkCancelAck).
#[derive(Clone, Copy, Debug)]
pub struct Written {
    sequence: u32,
    bytes: u32,
    at: u8,
}

impl Written {
    /// After writing `bytes` into announcement `sequence`.
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

/// The sink cancels its offer (SinkAvailCancel), and waits while the source writes. The result is how many bytes the
/// source has written, if it wrote. The source never writes there after that.
#[derive(Clone, Copy, Debug)]
pub struct TakeBack {
    what: Announced,
    at: u8,
}

impl TakeBack {
    /// Cancels this announcement.
    pub fn new(what: Announced) -> Self {
        Self { what, at: 0 }
    }

    /// The next action; `loaded` is the value of the last load.
    ///
    /// # Errors
    /// The source's word has more bytes than were announced.
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

/// How many bytes the source has written into announcement `what`, by its word `wr_done`; `None` if the word names another announcement.
///
/// # Errors
/// The word has more bytes than were announced.
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
    fn zcopy_cancelled_offer_is_over_and_all_before_it() {
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
    fn zcopy_written_bytes_are_checked_against_the_offer() {
        let what = Announced { sequence: 7, len: 100 };
        assert!(landed(what, word(7, 101)).is_err());
        assert_eq!((landed(what, word(7, 0)), landed(what, word(7, 3))), (Ok(None), Ok(Some(3))));
    }
}
