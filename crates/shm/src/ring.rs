//! The byte ring of records: one [`Producer`] state, one [`Consumer`] state, over a [`Store`] and a [`Load`] view.
//!
//! The states are plain memory (atomics used with relaxed order, guarded by the caller's lock) so that they can live
//! in an arena that the processes of one program share. `crosslane_wire::slice` and `::record` have the layout.
//!
//! ```text
//!   position  counts all bytes of ring ever used, for marks and credits
//!   offset    where in the ring that is
//!   cap       bytes of the ring in use; doubles, up to ring_max, when a producer that found no room reaches its end,
//!             and when nothing more fits: then the ring goes on behind its present end at once (a *jump*)
//! ```

use crate::{Load, Store, clock};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
use crosslane_wire::DecodeError;
use crosslane_wire::record::{
    FLAG_GROW, HEADER, Header, Kind, MAX_MESSAGE, MAX_PAYLOAD, mark, stamp, stamped,
};
use crosslane_wire::slice::{CREDIT, LINE, RING};
use thiserror::Error;

/// What a peer did that it must not; the circuit is over.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Credit for bytes that were never sent, or less credit than before.
    #[error("peer gave back credit {got}, between {least} and {most} was possible")]
    Credit {
        /// What it stored.
        got: u64,
        /// Credit that it gave before.
        least: u64,
        /// What was sent.
        most: u64,
    },
    /// A record's word is out of range.
    #[error("peer wrote a bad record: {0}")]
    Record(#[from] DecodeError),
    /// A record lies where bytes may still be that were not consumed.
    #[error("peer sent {over} bytes more than it had credit for")]
    Overrun {
        /// Bytes of ring beyond the credit.
        over: u64,
    },
}

/// The producing end's state.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Producer {
    position: AtomicU64,
    offset: AtomicU64,
    cap: AtomicU64,
    credit: AtomicU64,
    ring_max: AtomicU64,
    key: AtomicU64,
    /// Position of the last jump: until the far side has consumed up to here, only the new half may be used.
    barrier: AtomicU64,
    starved: AtomicU32,
    stamping: AtomicU32,
}

impl Producer {
    /// Begins a new ring with mark key `key`, `cap` bytes of which are used at first, `ring_max` at most (powers of
    /// two, checked by the caller). Both ends must say the same.
    pub fn reset(&self, cap: u64, ring_max: u64, key: u64) {
        for (word, value) in [
            (&self.position, 0),
            (&self.offset, 0),
            (&self.cap, cap),
            (&self.credit, 0),
            (&self.ring_max, ring_max),
            (&self.key, key),
            (&self.barrier, 0),
        ] {
            word.store(value, Relaxed);
        }
        self.starved.store(0, Relaxed);
        self.stamping.store(0, Relaxed);
    }

    /// Whether records carry the time from here on.
    #[inline]
    pub fn stamp(&self, wanted: bool) {
        self.stamping.store(u32::from(wanted), Relaxed);
    }

    /// Bytes of ring ever used.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Bytes of the ring in use at present.
    pub fn cap(&self) -> u64 {
        self.cap.load(Relaxed)
    }

    /// Lets the ring become at most `ring_max` bytes long from here on; not more than [`Self::reset`] said.
    pub fn limit(&self, ring_max: u64) {
        self.ring_max.store(ring_max.max(self.cap()), Relaxed);
    }

    /// Whether the ring can still become longer.
    pub fn may_grow(&self) -> bool {
        self.cap() < self.ring_max.load(Relaxed)
    }

    /// Bytes of ring that were pushed and not yet consumed, as far as returned credits tell. Needs no lock.
    pub fn unconfirmed(&self, credits: &impl Load) -> Result<u64, Violation> {
        let got = self.look_at_credit(credits)?;
        self.credit.fetch_max(got, Relaxed);
        Ok(self.position().saturating_sub(got))
    }

    /// Bytes of ring that may be used, as far as that can be told while another thread is sending. Changes nothing;
    /// a lie of the peer's is left for the sender to find.
    #[inline]
    pub fn glance(&self, credits: &impl Load, wanted: u64) -> u64 {
        let (position, credit) = (self.position.load(Acquire), self.credit.load(Relaxed));
        let known = self.room_at(position, credit);
        if known >= wanted {
            return known;
        }
        self.room_at(position, credits.load_u64(CREDIT).max(credit))
    }

    /// Bytes of ring that may be used now. Looks at the peer's credit only if less than `wanted` is known of.
    pub fn room(&self, credits: &impl Load, wanted: u64) -> Result<u64, Violation> {
        let known = self.known_room();
        if known >= wanted {
            return Ok(known);
        }
        self.reload_credit(credits)?;
        Ok(self.known_room())
    }

    /// Pushes as much of `bytes` as there is room for, as records of `kind`, and returns how many bytes that was.
    /// A line is always kept back for [`Self::push_control`].
    pub fn push(
        &self,
        ring: &impl Store,
        credits: &impl Load,
        kind: Kind,
        bytes: &[u8],
        cpu: u16,
    ) -> Result<usize, Violation> {
        let mut done = 0;
        while done < bytes.len() {
            let left = bytes.len() - done;
            let wanted = span(left.min(usize::try_from(MAX_PAYLOAD).unwrap_or(usize::MAX))) + LINE;
            let whole = self.room(credits, wanted)?;
            let room = whole.saturating_sub(LINE);
            if room < LINE {
                self.starved.store(1, Relaxed);
                if whole < LINE || !self.may_grow() {
                    break;
                }
                self.jump(ring, cpu);
                continue;
            }
            if room + LINE < wanted {
                self.starved.store(1, Relaxed);
            }
            let take = self.fitting(room).min(left);
            self.put(ring, kind, take as u64, &bytes[done..done + take], cpu);
            done += take;
        }
        Ok(done)
    }

    /// Pushes one whole message as one record, or nothing if there is no room for it now: `Ok(false)`.
    /// A message longer than [`MAX_MESSAGE`] is the caller's mistake and panics.
    pub fn push_message(
        &self,
        ring: &impl Store,
        credits: &impl Load,
        bytes: &[u8],
        cpu: u16,
    ) -> Result<bool, Violation> {
        assert!(bytes.len() as u64 <= MAX_MESSAGE, "message does not fit a record");
        let to_end = self.cap() - self.offset.load(Relaxed);
        let filler = if to_end < span(bytes.len()) { to_end } else { 0 };
        let wanted = span(bytes.len()) + filler + LINE;
        if self.room(credits, wanted)? < wanted {
            self.starved.store(1, Relaxed);
            return Ok(false);
        }
        if filler > 0 {
            self.put(ring, Kind::Filler, filler - HEADER, &[], cpu);
        }
        self.put(ring, Kind::Message, bytes.len() as u64, bytes, cpu);
        Ok(true)
    }

    /// Pushes a record without payload, for which a line is always kept back. `false` if even that is gone.
    pub fn push_control(
        &self,
        ring: &impl Store,
        credits: &impl Load,
        kind: Kind,
        cpu: u16,
    ) -> Result<bool, Violation> {
        if self.room(credits, LINE)? < LINE {
            return Ok(false);
        }
        self.put(ring, kind, 0, &[], cpu);
        Ok(true)
    }

    #[inline]
    fn known_room(&self) -> u64 {
        self.room_at(self.position(), self.credit.load(Relaxed))
    }

    /// Room with so much sent and so much of it given back. Saturates where a thread without the lock sees a mixture.
    #[inline]
    fn room_at(&self, position: u64, credit: u64) -> u64 {
        let (cap, barrier) = (self.cap(), self.barrier.load(Relaxed));
        let room = cap.saturating_sub(position.saturating_sub(credit));
        if credit < barrier { room.min((barrier + cap / 2).saturating_sub(position)) } else { room }
    }

    fn reload_credit(&self, credits: &impl Load) -> Result<(), Violation> {
        let got = self.look_at_credit(credits)?;
        self.credit.store(got, Relaxed);
        Ok(())
    }

    /// In this order an honest peer's credit passes even while another thread sends.
    fn look_at_credit(&self, credits: &impl Load) -> Result<u64, Violation> {
        let least = self.credit.load(Relaxed);
        let got = credits.load_u64(CREDIT);
        let most = self.position();
        if got < least || got > most { Err(Violation::Credit { got, least, most }) } else { Ok(got) }
    }

    /// Payload of the longest record that fits `room` and the way to the ring's end.
    fn fitting(&self, room: u64) -> usize {
        let to_end = self.cap() - self.offset.load(Relaxed);
        usize::try_from(room.min(to_end).min(MAX_PAYLOAD + HEADER) - HEADER).unwrap_or(0)
    }

    /// Writes a record, growing or wrapping if it ends where the ring does.
    fn put(&self, ring: &impl Store, kind: Kind, len: u64, payload: &[u8], cpu: u16) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let header = Header { len, kind, flags: 0, cpu };
        let at_end = self.offset.load(Relaxed) + header.span() == self.cap();
        let grow = at_end && self.starved.load(Relaxed) != 0 && self.may_grow();
        self.write(ring, header, payload, grow);
    }

    /// Goes on behind the ring's present end, which must be below the limit, by the line that was kept back: a
    /// program that sends more than the ring holds to one that reads late is not held up before the limit.
    fn jump(&self, ring: &impl Store, cpu: u16) {
        self.write(ring, Header { len: 0, kind: Kind::Filler, flags: 0, cpu }, &[], true);
    }

    /// Stores payload, word, mark, in that order (law 4), and moves on.
    fn write(&self, ring: &impl Store, mut header: Header, payload: &[u8], grow: bool) {
        let (offset, cap, position) = (self.offset.load(Relaxed), self.cap(), self.position());
        let (end, after) = (offset + header.span(), position + header.span());
        let mut next = if end == cap { 0 } else { end };
        if grow {
            header.flags = FLAG_GROW;
            next = cap;
            self.cap.store(cap * 2, Relaxed);
            if end != cap || self.credit.load(Relaxed) < self.barrier.load(Relaxed) {
                self.barrier.store(after, Relaxed);
            }
            self.starved.store(0, Relaxed);
        }
        let at = address(offset);
        ring.write(at + 16, payload);
        let word = header.to_word();
        let wants_time = self.stamping.load(Relaxed) != 0;
        ring.store_u64(at + 8, if wants_time { stamped(word, clock::now()) } else { word });
        ring.store_fence();
        ring.store_u64(at, mark(self.key.load(Relaxed), position));
        self.position.store(after, Release);
        self.offset.store(next, Relaxed);
    }
}

/// A record that has arrived and is not yet consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it carries.
    pub kind: Kind,
    /// Payload not yet taken, bytes.
    pub left: usize,
    /// The processor that its writer ran on.
    pub cpu: u16,
}

/// The consuming end's state.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Consumer {
    position: AtomicU64,
    offset: AtomicU64,
    /// The mark that the next record will have; kept, since it is looked for far more often than found. 0 while the
    /// front moves: threads that look without the lock see by it that what they saw was a mixture.
    expected: AtomicU64,
    cap: AtomicU64,
    /// The current record's word as it was when checked, 0 if none: a peer may change its own copy at any time.
    word: AtomicU64,
    /// Payload of the current record that was taken.
    taken: AtomicU64,
    returned: AtomicU64,
    key: AtomicU64,
    ring_max: AtomicU64,
}

impl Consumer {
    /// Begins a new ring; see [`Producer::reset`].
    pub fn reset(&self, cap: u64, ring_max: u64, key: u64) {
        for (word, value) in [
            (&self.position, 0),
            (&self.offset, 0),
            (&self.cap, cap),
            (&self.word, 0),
            (&self.taken, 0),
            (&self.expected, mark(key, 0)),
            (&self.returned, 0),
            (&self.ring_max, ring_max),
            (&self.key, key),
        ] {
            word.store(value, Relaxed);
        }
    }

    /// Whether a record waits, without checking it: one load of the ring, for those who spin or scan, with or without
    /// the lock. It is never missed, though it may be seen when another thread is just taking it.
    #[inline]
    pub fn arrived(&self, ring: &impl Load) -> bool {
        let expected = self.expected.load(Acquire);
        expected == 0
            || self.word.load(Relaxed) != 0
            || ring.load_u64(address(self.offset.load(Acquire))) == expected
            || self.expected.load(Relaxed) != expected
    }

    /// The record at the front, if one has arrived.
    #[inline]
    pub fn head(&self, ring: &impl Load) -> Result<Option<Head>, Violation> {
        let mut word = self.word.load(Relaxed);
        if word == 0 {
            let expected = self.expected.load(Relaxed);
            if expected == 0 {
                return Err(DecodeError::Range("ring left in the middle of a change").into());
            }
            if ring.load_u64(address(self.offset.load(Relaxed))) != expected {
                return Ok(None);
            }
            let cursor = self.cursor();
            let header = cursor.check(ring)?;
            self.check_credit(&cursor, header)?;
            word = header.to_word();
            self.word.store(word, Relaxed);
        }
        let header = Header::from_word(word, u64::MAX)?;
        let taken = usize::try_from(self.taken.load(Relaxed)).unwrap_or(usize::MAX);
        Ok(Some(Head { kind: header.kind, left: header.len as usize - taken, cpu: header.cpu }))
    }

    /// Copies the next bytes of the front record's payload and returns how many; consumes the record with its last
    /// byte. The caller has seen it by [`Self::head`].
    #[inline]
    pub fn take(&self, ring: &impl Load, target: &mut [u8]) -> Result<usize, Violation> {
        let Some(head) = self.head(ring)? else { return Ok(0) };
        let count = head.left.min(target.len());
        let taken = self.taken.load(Relaxed);
        let from = address(self.offset.load(Relaxed) + HEADER + taken);
        ring.read(from, &mut target[..count]);
        if count == head.left {
            self.consume()?;
        } else {
            self.taken.store(taken + count as u64, Relaxed);
        }
        Ok(count)
    }

    /// Consumes the front record, whatever is left of it.
    pub fn consume(&self) -> Result<(), Violation> {
        let header = Header::from_word(self.word.load(Relaxed), u64::MAX)?;
        let mut cursor = self.cursor();
        cursor.pass(header);
        self.expected.store(0, Relaxed);
        fence(Release);
        self.position.store(cursor.position, Relaxed);
        self.offset.store(cursor.offset, Release);
        self.cap.store(cursor.cap, Relaxed);
        self.word.store(0, Relaxed);
        self.taken.store(0, Relaxed);
        self.expected.store(mark(cursor.key, cursor.position), Release);
        Ok(())
    }

    /// A peer that sends without credit could keep us busy for ever, and would overwrite what was not consumed.
    #[inline]
    fn check_credit(&self, cursor: &Cursor, header: Header) -> Result<(), Violation> {
        let used = cursor.position + header.span() - self.returned.load(Relaxed);
        match used.checked_sub(cursor.cap) {
            None | Some(0) => Ok(()),
            Some(over) => Err(Violation::Overrun { over }),
        }
    }

    /// Gives back credit if a quarter of the ring is due, or anything at all if `all`. Returns whether it did: then
    /// a peer that sleeps for room must be rung.
    #[inline]
    pub fn give_credit(&self, peer: &impl Store, all: bool) -> bool {
        let (position, returned) = (self.position.load(Relaxed), self.returned.load(Relaxed));
        let due = position - returned;
        if due == 0 || (!all && due < self.cap.load(Relaxed) / 4) {
            return false;
        }
        peer.store_u64(CREDIT, position);
        self.returned.store(position, Relaxed);
        true
    }

    /// Bytes of ring consumed since the start.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Like [`Self::cursor`], for threads without the lock. `None` if the front moves all the time.
    pub fn glance(&self) -> Option<Cursor> {
        for _ in 0..GLANCES {
            let expected = self.expected.load(Acquire);
            let cursor = self.cursor();
            fence(Acquire);
            if expected != 0 && self.expected.load(Relaxed) == expected {
                return Some(cursor);
            }
            core::hint::spin_loop();
        }
        None
    }

    /// A cursor at the front, to look further without consuming. The caller holds the lock.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            position: self.position.load(Relaxed),
            offset: self.offset.load(Relaxed),
            cap: self.cap.load(Relaxed),
            ring_max: self.ring_max.load(Relaxed),
            key: self.key.load(Relaxed),
        }
    }

    /// Payload bytes of the front record that were already taken.
    pub fn taken(&self) -> usize {
        usize::try_from(self.taken.load(Relaxed)).unwrap_or(usize::MAX)
    }
}

/// Looks at a front that moves, before a thread without the lock gives up.
const GLANCES: u32 = 32;

/// A place in the ring that moves over records without consuming them (`MSG_PEEK`, `FIONREAD`, edge detection).
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    position: u64,
    offset: u64,
    cap: u64,
    ring_max: u64,
    key: u64,
}

impl Cursor {
    /// Bytes of ring from the start to here.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The stamp of the record here; 0 if it has none or has not arrived. It may be a lie.
    pub fn stamp(&self, ring: &impl Load) -> u32 {
        if ring.load_u64(address(self.offset)) != mark(self.key, self.position) {
            return 0;
        }
        stamp(ring.load_u64(address(self.offset) + 8))
    }

    /// The record here, checked, if it has arrived.
    pub fn look(&self, ring: &impl Load) -> Result<Option<Header>, Violation> {
        if ring.load_u64(address(self.offset)) != mark(self.key, self.position) {
            return Ok(None);
        }
        self.check(ring).map(Some)
    }

    /// The word of the record here, whose mark was seen.
    fn check(&self, ring: &impl Load) -> Result<Header, Violation> {
        let word = ring.load_u64(address(self.offset) + 8);
        let header = Header::from_word(word, self.cap.saturating_sub(self.offset))?;
        let grows = header.flags & FLAG_GROW != 0;
        if grows && self.cap * 2 > self.ring_max {
            return Err(DecodeError::Range("ring growth").into());
        }
        Ok(header)
    }

    /// Bytes of ring in use at this place.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Copies payload of the record here, from its byte `skip` on.
    pub fn read(&self, ring: &impl Load, skip: usize, target: &mut [u8]) {
        ring.read(address(self.offset + HEADER) + skip, target);
    }

    /// Moves behind the record here, which [`Self::look`] returned.
    pub fn pass(&mut self, header: Header) {
        let end = self.offset + header.span();
        self.position += header.span();
        self.offset = if end < self.cap { end } else { 0 };
        if header.flags & FLAG_GROW != 0 {
            self.offset = self.cap;
            self.cap *= 2;
        }
    }
}

/// Bytes of ring that a record with `payload` bytes takes.
fn span(payload: usize) -> u64 {
    (payload as u64 + HEADER).next_multiple_of(LINE)
}

/// Where in the slice this offset of the ring lies.
#[inline]
fn address(offset: u64) -> usize {
    RING + usize::try_from(offset).unwrap_or(usize::MAX - RING)
}
