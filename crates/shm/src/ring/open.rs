//! Open records: small sends that find the receiver awake and surely behind are appended to the last record, instead of a
//! line each.
//!
//! The sender stores the bytes, then the record's word with the new length. Whatever comes next closes it first: the word
//! once more, with another flag. A receiver that has taken all of an open record looks at its word again: there is more of
//! it, or it is closed and the next record follows, or it waits as for a record. So that the receiver is behind is a guess
//! that only says whether appending pays.

use super::producer::NO_STAMP;
use super::unfinished::Begin;
use super::{Consumer, Credits, Producer, Violation, place};
use crate::account::{self, Function};
use crate::{Load, Store};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_wire::record::{HEADER, Header, Kind, LONGEST_OPEN, closed, is_open, length, span};
use crosslane_wire::segment::LINE;

/// Longest send that is gathered, bytes: from there on a line more or less makes no difference.
pub(super) const GATHERED: u64 = 128;
/// A receiver withholds less than a quarter of a ring of credit. If this much more is out, it is behind, bytes.
const BEHIND: u64 = 32 * LINE;

impl Producer {
    /// Whether the receiver is surely behind, by the credit that was looked at last.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.position().wrapping_sub(self.credit.load(Relaxed)) >= self.cap() / 4 + BEHIND
    }

    /// Whether a small send to a receiver that seemed behind is appended, or left open for the next one.
    pub(super) fn may_gather(&self, credits: &impl Credits) -> Result<bool, Violation> {
        self.reload_credit(credits)?;
        Ok(self.is_behind() && self.stamping.load(Relaxed) == NO_STAMP && credits.gathers())
    }

    /// Appends `len` bytes to the last record, if that is open and there is room; else nothing: `Ok(false)`. `fill` stores them
    /// at an offset of the segment, or fails: then nothing is appended.
    #[inline]
    pub(super) fn append<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        len: usize,
        fill: impl FnOnce(usize) -> Result<(), F>,
    ) -> Result<Result<bool, F>, Violation> {
        let (word, offset, count) = (self.open.load(Relaxed), self.offset.load(Relaxed), len as u64);
        let (before, after) = (length(word), length(word) + count);
        let more = span(after) - span(before);
        if word == 0 || after > LONGEST_OPEN || offset.saturating_add(more) >= self.cap() {
            return Ok(Ok(false));
        }
        let wanted = more + LINE;
        if more > 0 && self.room(credits, wanted)? < wanted {
            return Ok(Ok(false));
        }
        let begin = self.begin_of_open(word);
        let start = place(ring.len(), begin.offset, span(after))?;
        let span_of_copy = account::is_on().then(|| account::sending(Function::CopyIn));
        if let Err(failed) = fill(start + usize::try_from(HEADER + before).unwrap_or(0)) {
            return Ok(Err(failed));
        }
        drop(span_of_copy);
        let word = word.wrapping_add(count);
        self.note.take(begin, word);
        ring.store_fence();
        ring.store_u64(start + 8, word);
        self.pass(Header::from_word(word, span(after))?, begin);
        self.open.store(word, Relaxed);
        self.note.take_back();
        Ok(Ok(true))
    }

    /// Where the open record begins, whose word is `word`.
    fn begin_of_open(&self, word: u64) -> Begin {
        let taken = span(length(word));
        Begin {
            position: self.position().wrapping_sub(taken),
            offset: self.offset.load(Relaxed).wrapping_sub(taken),
            units: self.units().wrapping_sub(length(word)),
            cap: self.cap(),
        }
    }

    /// Nothing more is appended to the last record: before the next one, and before bytes that go by another way than the
    /// ring.
    #[inline]
    pub fn close(&self, ring: &impl Store) -> Result<(), Violation> {
        match self.open.load(Relaxed) {
            0 => Ok(()),
            word => self.close_open(ring, word),
        }
    }

    #[cold]
    fn close_open(&self, ring: &impl Store, word: u64) -> Result<(), Violation> {
        let begin = self.begin_of_open(word);
        let start = place(ring.len(), begin.offset, span(length(word)))?;
        self.note.take(begin, closed(word));
        ring.store_u64(start + 8, closed(word));
        self.open.store(0, Relaxed);
        self.note.take_back();
        Ok(())
    }
}

impl Consumer {
    /// Whether the record at the front was open when it was looked at last.
    #[inline]
    pub fn is_open(&self) -> bool {
        is_open(self.word.load(Relaxed))
    }

    /// Whether the open record at the front, whose word was `word`, has more than was taken, or is closed.
    #[inline]
    pub(super) fn has_more(&self, ring: &impl Load, word: u64) -> bool {
        let Ok(at) = place(ring.len(), self.offset.load(Relaxed), LINE) else { return true };
        let now = ring.load_u64(at + 8);
        self.taken.load(Relaxed) < length(word) || length(now) != length(word) || !is_open(now)
    }

    /// Looks at the word of an open record again, all of which was taken, and consumes the record if it is closed.
    /// Whether anything changed that is to be believed.
    #[inline(never)]
    pub(super) fn look_again(
        &self,
        ring: &impl Load,
        believed: &impl Fn() -> bool,
    ) -> Result<bool, Violation> {
        let before = Header::from_word(self.word.load(Relaxed), u64::MAX)?;
        let cursor = self.cursor();
        let word = ring.load_u64(place(ring.len(), cursor.offset, LINE)? + 8);
        let header = before.reread(word, cursor.cap.saturating_sub(cursor.offset));
        let is_same = header.as_ref().is_ok_and(|header| header.len == before.len && header.is_open());
        // In a ring that is no longer read there may be anything here.
        if is_same || !believed() {
            return Ok(false);
        }
        let header = header?;
        self.check_credit(&cursor, header)?;
        self.word.store(header.to_word(), Relaxed);
        if !header.is_open() && self.taken.load(Relaxed) >= header.len.into() {
            self.consume()?;
        }
        Ok(true)
    }

    /// With the lock of receiving: of the front record, if it was open when the stream's units were counted, what lies
    /// behind unit `limit` does not count.
    pub fn clip(&self, limit: u64) -> Result<(), Violation> {
        let word = self.word.load(Relaxed);
        if word == 0 {
            return Ok(());
        }
        let header = Header::from_word(word, u64::MAX)?;
        if let Some(clipped) = self.cursor().clip(header, limit).filter(|clipped| clipped.kind == Kind::Data)
        {
            self.word.store(clipped.to_word(), Relaxed);
        }
        Ok(())
    }
}
