//! Looking at records that lie unread, in the ring that is received by and in those after it.

use super::{End, Generation};
use crosslane_shm::Inbound;
use crosslane_shm::ring::{Cursor, Violation};
use crosslane_wire::record::Header;

/// A place that moves over unread records and consumes nothing.
pub(super) struct Walk<'a> {
    end: &'a End,
    at: &'a Generation,
    cursor: Cursor,
    /// Where in this ring the walk began: once round is enough.
    began: u64,
    /// Whether it passes what is announced and not fetched.
    through: bool,
}

impl End {
    /// From `cursor` on, which other processes may have written; `None` if it is in a ring that this process does not have,
    /// or nowhere in that ring.
    pub(super) fn walk(&self, cursor: Cursor) -> Option<Walk<'_>> {
        let at = self.generations.find(cursor.generation())?;
        let cursor = cursor.checked(at.segments.ring_max, at.segments.rx_key)?;
        Some(Walk { end: self, at, cursor, began: cursor.position(), through: false })
    }
}

impl<'a> Walk<'a> {
    /// Goes on behind what is announced and not fetched: for those who want to know what lies in the ring, and not what can
    /// be received next.
    pub(super) fn through(self) -> Self {
        Self { cursor: self.cursor.past_gap(), through: true, ..self }
    }

    /// Where it is.
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The memory of the record that [`Self::look`] returned.
    pub(super) fn inbound(&self) -> &'a Inbound {
        &self.at.segments.inbound
    }

    /// The record here, if it has arrived and counts. What lies behind the limit of an old ring came, or comes, again.
    pub(super) fn look(&mut self) -> Result<Option<Header>, Violation> {
        let limit = loop {
            match self.at.next() {
                Some(next) if self.cursor.units() >= next.limit => self.enter(next),
                next => break next.map(|next| next.limit),
            }
        };
        if self.cursor.position().saturating_sub(self.began) >= self.cursor.cap() {
            return Ok(None);
        }
        let Some(header) = self.cursor.look(self.inbound())? else { return Ok(None) };
        Ok(match limit {
            Some(limit) => self.cursor.clip(header, limit),
            None => self.end.counts(self.at).then_some(header),
        })
    }

    /// Goes on at the start of the next ring.
    fn enter(&mut self, next: &'a Generation) {
        let segments = &next.segments;
        let fresh = Cursor::fresh(segments.ring_max, segments.rx_key, next.limit);
        self.cursor = fresh.of_generation(next.number());
        (self.at, self.began) = (next, 0);
    }

    /// Moves over so many bytes of the record here, fewer than are left of it.
    pub(super) fn take(&mut self, count: usize) {
        self.cursor.take(count);
    }

    /// Moves behind the record here, or behind what it has so far if it is open.
    pub(super) fn pass(&mut self, header: Header) {
        self.cursor.pass(header);
        if self.through {
            self.cursor = self.cursor.past_gap();
        }
    }
}
