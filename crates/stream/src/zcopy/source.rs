//! The source of Read Zcopy: its open announcements, and how it cancels them.

use super::{Action, Announced, InvalidReference, PIPELINE, Word};
use crosslane_wire::zcopy::{bytes_of, next_sequence, sequence_of, word};

/// The announcements of a source that the sink has not fetched in full, oldest first: as many as the mode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Open {
    first: u32,
    count: usize,
    lens: [u32; PIPELINE],
}

/// How far the sink has fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of announcements that the sink has fetched in full.
    pub ended: usize,
    /// Bytes that the sink has fetched of the next announcement.
    pub fetched: u32,
}

impl Open {
    /// Announcements numbered from `first` on, of `lens` bytes each; at most [`PIPELINE`].
    pub fn new(first: u32, lens: &[u32]) -> Self {
        let mut open = Self { first, count: lens.len().min(PIPELINE), lens: [0; PIPELINE] };
        open.lens[..open.count].copy_from_slice(&lens[..open.count]);
        open
    }

    /// Number of open announcements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The `index`-th open announcement.
    pub fn at(&self, index: usize) -> Announced {
        let sequence = (0..index).fold(self.first, |sequence, _| next_sequence(sequence));
        Announced { sequence, len: self.lens.get(index).copied().unwrap_or(0) }
    }

    /// The newest open announcement, if there is any.
    pub fn last(&self) -> Option<Announced> {
        self.count.checked_sub(1).map(|index| self.at(index))
    }

    /// These announcements without the first `ended` ones, and with one more of `len` bytes, number `next`, unless `len` is 0.
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

    /// Announced bytes that the sink has not fetched, given its `progress`.
    pub fn missing(&self, progress: Progress) -> u64 {
        let all: u64 =
            self.lens[progress.ended.min(self.count)..self.count].iter().map(|&len| u64::from(len)).sum();
        all.saturating_sub(progress.fetched.into())
    }

    /// The progress at which the last `missing` announced bytes are not fetched.
    pub fn without(&self, missing: u64) -> Progress {
        let all = self.missing(Progress { ended: 0, fetched: 0 });
        let (mut left, mut ended) = (all.saturating_sub(missing), 0);
        while ended < self.count && left >= u64::from(self.lens[ended]) {
            left -= u64::from(self.lens[ended]);
            ended += 1;
        }
        Progress { ended, fetched: u32::try_from(left).unwrap_or(0) }
    }

    /// Index of the announcement with number `sequence`.
    pub fn find(&self, sequence: u32) -> Option<usize> {
        (0..self.count).find(|&index| self.at(index).sequence == sequence)
    }

    /// The sink's progress by its word `rd_done`; at the last look the sink had fetched `before` bytes of the first announcement.
    ///
    /// # Errors
    /// The word has more bytes than were announced, or fewer than before.
    pub fn progress(&self, rd_done: u64, before: u32) -> Result<Progress, InvalidReference> {
        // The word may still name an announcement that is fetched in full.
        let Some(index) = self.find(sequence_of(rd_done)) else {
            return Ok(Progress { ended: 0, fetched: before });
        };
        let Announced { sequence, len: most } = self.at(index);
        let least = if index == 0 { before } else { 0 };
        let got = bytes_of(rd_done, sequence).unwrap_or(least);
        if got < least || got > most {
            return Err(InvalidReference { sequence, got, least, most });
        }
        Ok(if got == most {
            Progress { ended: index + 1, fetched: 0 }
        } else {
            Progress { ended: index, fetched: got }
        })
    }
}

/// Whether the source's `SRC_OFF` word cancels announcement `sequence`.
pub fn is_off(src_off: u64, sequence: u32) -> bool {
    let off = sequence_of(src_off);
    off != 0 && (off.wrapping_sub(sequence) as usize) <= PIPELINE
}

/// The source cancels all its announcements (SrcAvailCancel), and never waits. The result is the sink's progress that counts.
#[derive(Clone, Copy, Debug)]
pub struct Cancel {
    what: Open,
    before: u32,
    at: u8,
    progress: Progress,
}

impl Cancel {
    /// Cancels `what`, at least one announcement; at the last look the sink had fetched `before` bytes of the first one.
    pub fn new(what: Open, before: u32) -> Self {
        Self { what, before, at: 0, progress: Progress { ended: 0, fetched: 0 } }
    }

    /// The next action; `loaded` is the value of the last load.
    ///
    /// # Errors
    /// The sink's word has more bytes than were announced, or fewer than before.
    pub fn step(&mut self, loaded: u64) -> Result<Action<Progress>, InvalidReference> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zcopy_progress_is_checked_against_what_was_announced() {
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
    }

    #[test]
    fn zcopy_open_announcements_are_counted_from_both_ends() {
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
    fn zcopy_cancel_covers_all_open_announcements_and_no_later_one() {
        let off = word(9, 0);
        assert!(is_off(off, 9) && is_off(off, 5) && !is_off(off, 10) && !is_off(0, 0));
    }
}
