//! The sink of Read Zcopy: whether a piece that it has fetched counts.

use super::{Action, InvalidReference, PIPELINE, Word, is_off};
use crosslane_wire::zcopy::{bytes_of, sequence_of, word};

/// Whether a fetched piece counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The piece counts.
    Counts,
    /// The piece counts, and the source has cancelled the rest, which comes through the ring.
    CountsAndEnds,
    /// The source cancelled first: the sink must not use the bytes that it copied; the source sends them through the ring.
    Void,
}

/// The first step of a [`Confirm`] that only waits for the source's verdict.
const AWAITING: u8 = 100;

/// The sink has fetched a piece, reports it (RdmaRdCompl) and finds out whether the source cancelled before.
#[derive(Clone, Copy, Debug)]
pub struct Confirm {
    sequence: u32,
    before: u32,
    after: u32,
    at: u8,
}

impl Confirm {
    /// The sink had reported `before` bytes of announcement `sequence`, and has now fetched `after` bytes.
    pub fn new(sequence: u32, before: u32, after: u32) -> Self {
        Self { sequence, before, after, at: 0 }
    }

    /// Waits for the verdict on announcement `sequence`, which the source cancelled after the sink had reported `confirmed`
    /// bytes, at least one. (If it has reported none, none count, whatever the verdict.)
    pub fn awaiting(sequence: u32, confirmed: u32) -> Self {
        Self { sequence, before: confirmed, after: confirmed, at: AWAITING - 1 }
    }

    /// The next action; `loaded` is the value of the last load.
    ///
    /// # Errors
    /// The source's verdict is on bytes that the sink has not fetched.
    pub fn step(&mut self, loaded: u64) -> Result<Action<Fetched>, InvalidReference> {
        self.at += 1;
        Ok(match self.at {
            1 => Action::Store(Word::RdDone, word(self.sequence, self.after)),
            2 => Action::Fence,
            3 => Action::Load(Word::SrcOff),
            4 if !is_off(loaded, self.sequence) => Action::Done(Fetched::Counts),
            4 | AWAITING => self.await_verdict(),
            _ => match bytes_of(loaded, self.sequence) {
                // The verdict is on a later announcement: the source counts this one as fetched in full.
                None if is_later(loaded, self.sequence) => Action::Done(Fetched::Counts),
                None => self.await_verdict(),
                Some(bytes) if bytes == self.after => Action::Done(Fetched::CountsAndEnds),
                Some(bytes) if bytes == self.before => Action::Done(Fetched::Void),
                Some(got) => {
                    let Self { sequence, before: least, after: most, .. } = *self;
                    return Err(InvalidReference { sequence, got, least, most });
                }
            },
        })
    }
}

/// Whether the verdict is on an announcement after `sequence` that can be open together with it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zcopy_verdict_is_what_was_confirmed_before_or_now() {
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
