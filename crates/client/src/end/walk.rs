//! A walk over unread records, in the ring from which this end receives and in later ones.

use super::{CircuitEnd, Generation};
use crosslane_shm::Inbound;
use crosslane_shm::ring::{Cursor, Violation};
use crosslane_wire::record::Header;

/// A place that moves over unread records without consuming them.
pub(super) struct Walk<'a> {
    end: &'a CircuitEnd,
    at: &'a Generation,
    cursor: Cursor,
    /// Position in this ring at which the walk began: once round is enough.
    began: u64,
    /// Whether the walk passes announced bytes that were not fetched.
    through: bool,
}

impl CircuitEnd {
    /// Begins a walk at `cursor`, which other processes may have written; `None` if it is in a ring that this process
    /// does not have, or outside that ring.
    pub(super) fn walk(&self, cursor: Cursor) -> Option<Walk<'_>> {
        let at = self.generations.find(cursor.generation())?;
        let cursor = cursor.checked(at.segments.ring_max, at.segments.rx_key)?;
        Some(Walk { end: self, at, cursor, began: cursor.position(), through: false })
    }
}

impl<'a> Walk<'a> {
    /// The same walk, but passing announced bytes that were not fetched: for callers that look for records in the ring,
    /// and not for the bytes to be received next.
    pub(super) fn through(self) -> Self {
        Self { cursor: self.cursor.past_gap(), through: true, ..self }
    }

    /// The present place.
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The segment that contains the record which [`Self::look`] returned.
    pub(super) fn inbound(&self) -> &'a Inbound {
        &self.at.segments.inbound
    }

    /// The record here, if it has arrived and counts. Records behind the limit of an old ring come again in the next one.
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

    /// Moves over `count` bytes of the record here, fewer than are left of it.
    pub(super) fn take(&mut self, count: usize) {
        self.cursor.take(count);
    }

    /// Moves behind the record here; if it is open, behind the bytes that it has so far.
    pub(super) fn pass(&mut self, header: Header) {
        self.cursor.pass(header);
        if self.through {
            self.cursor = self.cursor.past_gap();
        }
    }
}
