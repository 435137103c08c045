//! Open records: the sender appends a small send to its last record, in place of a record (a cache line) of its own, if the
//! receiver is awake and behind.
//!
//! To append, the sender stores the bytes, then the record's header word with the new length. Before it writes the next
//! record it closes the open one: it stores the header word with `FLAG_GATHERED` in place of `FLAG_OPEN`. A receiver that
//! has taken all of an open record reads the header word again. If the record has become longer, the receiver takes the
//! new bytes; if it is closed, the next record follows; else the receiver waits as it does for a record. The sender
//! guesses from the receiver's credit whether the receiver is behind: a wrong guess costs time only.

use super::producer::NO_STAMP;
use super::unfinished::Begin;
use super::{Consumer, Credits, Producer, Violation, place};
use crate::account::{self, Function};
use crate::{Load, Store};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_wire::record::{HEADER, Header, Kind, LONGEST_OPEN, closed, is_open, length, span};
use crosslane_wire::segment::LINE;

/// Longest send that is appended, bytes: for a longer send one cache line more makes no difference.
pub(super) const GATHERED: u64 = 128;
/// A receiver withholds credit for less than a quarter of the ring. A receiver that withholds this many bytes more is behind.
const BEHIND: u64 = 32 * LINE;

impl Producer {
    /// Whether the receiver is behind, by the credit that the sender read last.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.position().wrapping_sub(self.credit.load(Relaxed)) >= self.cap() / 4 + BEHIND
    }

    /// Whether to append a small send, or to leave its record open for the next one. Reads the credit anew.
    pub(super) fn may_gather(&self, credits: &impl Credits) -> Result<bool, Violation> {
        self.reload_credit(credits)?;
        Ok(self.is_behind() && self.stamping.load(Relaxed) == NO_STAMP && credits.gathers())
    }

    /// Appends `len` bytes to the last record; `fill` stores them at a byte of the segment. `Ok(false)`: that record is
    /// not open, or there is no room. In these cases, and if `fill` fails, nothing is appended.
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

    /// Where the open record with header word `word` begins.
    fn begin_of_open(&self, word: u64) -> Begin {
        let taken = span(length(word));
        Begin {
            position: self.position().wrapping_sub(taken),
            offset: self.offset.load(Relaxed).wrapping_sub(taken),
            units: self.units().wrapping_sub(length(word)),
            cap: self.cap(),
        }
    }

    /// Closes the last record if it is open. To be called before the next record, and before bytes of the stream that go
    /// outside the ring.
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
    /// Whether the front record was open when its header word was read last.
    #[inline]
    pub fn is_open(&self) -> bool {
        is_open(self.word.load(Relaxed))
    }

    /// Whether the open front record, whose header word was `word`, has bytes that were not taken, or was closed.
    #[inline]
    pub(super) fn has_more(&self, ring: &impl Load, word: u64) -> bool {
        let Ok(at) = place(ring.len(), self.offset.load(Relaxed), LINE) else { return true };
        let now = ring.load_u64(at + 8);
        self.taken.load(Relaxed) < length(word) || length(now) != length(word) || !is_open(now)
    }

    /// Reads the header word of the open front record again, whose bytes were all taken, and consumes the record if it
    /// was closed. Returns whether the word changed and `believed` returned `true`.
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
        // Once the stream has left this ring, the word may hold any value.
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

    /// Cuts an open front record off at stream offset `limit`, up to which the daemons have counted what arrived: the sender
    /// sends the rest again in the next ring. The caller has the lock of receiving.
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
