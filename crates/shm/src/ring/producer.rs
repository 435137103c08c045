//! The end that writes records.

use super::unfinished::{Begin, Note};
use super::{Credits, Violation, place};
use crate::{Store, clock};
use core::convert::Infallible;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use crosslane_wire::record::{
    FLAG_CREDIT, FLAG_GROW, FLAG_OPEN, Header, Kind, MAX_PACKET, MAX_PAYLOAD, payload_at, payload_of, span,
    stamped,
};
use crosslane_wire::segment::LINE;
use crosslane_wire::zcopy::DESCRIPTOR;

/// Length up to which a ring that was found full grows by itself, bytes. It and the buffers of both programs stay in
/// the caches of two processors; a longer ring costs both of them trips to farther memory, and is only worth it
/// when a reader does not come for its bytes in time: see [`Producer::request_grow`].
pub const EASY: u64 = 1 << 20;

/// Most bytes of the stream that an announcement carries: as many as keep it a record without a line for its header alone.
pub const ANNOUNCED: usize = 968;

/// How much a longer ring is wanted: not at all, because it was full, because it was full and stayed so.
pub(super) const CONTENT: u32 = 0;
pub(super) const FULL: u32 = 1;
pub(super) const GROW_REQUESTED: u32 = 2;

/// What records are stamped with: nothing, the time when they are written, else this stamp.
pub(super) const NO_STAMP: u32 = 0;
const OWN_TIME: u32 = u32::MAX;

/// A place for the payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where in the segment it begins.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// The producing end's state.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Producer {
    pub(super) position: AtomicU64,
    pub(super) offset: AtomicU64,
    pub(super) cap: AtomicU64,
    /// What came back by either way.
    pub(super) credit: AtomicU64,
    pub(super) ring_max: AtomicU64,
    pub(super) key: AtomicU64,
    /// Position of the last jump: until the far side has consumed up to here, only the new half may be used.
    pub(super) barrier: AtomicU64,
    /// [`CONTENT`], [`FULL`] or [`GROW_REQUESTED`].
    pub(super) demand: AtomicU32,
    /// [`NO_STAMP`], [`OWN_TIME`], or somebody else's stamp.
    pub(super) stamping: AtomicU32,
    /// Units of the stream up to `position`.
    pub(super) units: AtomicU64,
    /// The peer's credit word when it was looked at last.
    pub(super) stored: AtomicU64,
    /// The word of the last record if more may be appended to it, else 0. It does not end where the ring does.
    pub(super) open: AtomicU64,
    /// Records that took credit along since [`Self::reset`].
    pub(super) rides: AtomicU64,
    /// Which of the stream's rings this is.
    pub(super) generation: AtomicU32,
    pub(super) note: Note,
}

const _: () = assert!(size_of::<Producer>() == 192);

impl Producer {
    /// Begins a new ring with mark key `key`, `cap` bytes of which are used at first, `ring_max` at most (powers of
    /// two, checked by the caller). Both ends must say the same.
    pub fn reset(&self, cap: u64, ring_max: u64, key: u64) {
        self.rides.store(0, Relaxed);
        self.resume(0, cap, ring_max, key, 0);
    }

    /// As [`Self::reset`], for a stream that goes on in ring number `generation` after so many `units` were sent.
    pub fn resume(&self, generation: u32, cap: u64, ring_max: u64, key: u64, units: u64) {
        self.note.take_back();
        for (word, value) in [
            (&self.position, 0),
            (&self.offset, 0),
            (&self.cap, cap),
            (&self.credit, 0),
            (&self.stored, 0),
            (&self.open, 0),
            (&self.ring_max, ring_max),
            (&self.key, key),
            (&self.barrier, 0),
            (&self.units, units),
        ] {
            word.store(value, Relaxed);
        }
        self.demand.store(CONTENT, Relaxed);
        self.stamping.store(NO_STAMP, Relaxed);
        self.generation.store(generation, Release);
    }

    /// Number of the ring that is filled.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// Whether records carry the time from here on.
    #[inline]
    pub fn stamp(&self, wanted: bool) {
        self.stamping.store(if wanted { OWN_TIME } else { NO_STAMP }, Relaxed);
    }

    /// Records carry this stamp from here on, as a host between passes it on.
    #[inline]
    pub fn stamp_as(&self, stamp: u32) {
        self.stamping.store(stamp, Relaxed);
    }

    /// Bytes of ring ever used.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Units of the stream that were ever sent.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed)
    }

    /// Records that took credit along since [`Self::reset`].
    pub fn rides(&self) -> u64 {
        self.rides.load(Relaxed)
    }

    /// Bytes of the ring in use at present.
    pub fn cap(&self) -> u64 {
        self.cap.load(Relaxed)
    }

    /// Where the payload of the next record would lie, of `left` bytes, at least one, that are to be sent; `None` if there
    /// is no room. The ring may become longer by this. What was offered is taken by [`Self::commit`].
    #[inline]
    pub fn offer(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        left: usize,
        cpu: u16,
    ) -> Result<Option<Offer>, Violation> {
        let wanted = span((left as u64).min(MAX_PAYLOAD)) + LINE;
        // A ring doubles a few times at most.
        for _ in 0..u64::BITS {
            let whole = self.room(credits, wanted)?;
            let room = whole.saturating_sub(LINE);
            if room < LINE {
                self.was_full();
                if whole < LINE || !self.grows_now() {
                    return Ok(None);
                }
                self.jump(ring, credits, cpu)?;
                continue;
            }
            if room + LINE < wanted {
                self.was_full();
            }
            let len = self.fitting(room).min(left);
            if len == 0 {
                break;
            }
            let begin = payload_at(len as u64);
            let at = place(ring.len(), self.offset.load(Relaxed), begin + len as u64)?;
            return Ok(Some(Offer { at: at + usize::try_from(begin).unwrap_or(0), len }));
        }
        Err(Violation::state("room in the ring"))
    }

    /// Pushes the record of what [`Self::offer`] offered last, whose payload lies there already.
    pub fn commit(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        kind: Kind,
        offer: Offer,
        cpu: u16,
    ) -> Result<(), Violation> {
        self.put(ring, credits, (kind, false), offer.len as u64, cpu, |_| {})
    }

    /// Pushes one whole message as one record, or nothing if there is no room for it now: `Ok(false)`.
    /// A message longer than [`MAX_PACKET`] is the caller's mistake and panics.
    pub fn push_message(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        bytes: &[u8],
        cpu: u16,
    ) -> Result<bool, Violation> {
        assert!(bytes.len() as u64 <= MAX_PACKET, "message does not fit a record");
        let to_end = self.to_end();
        let whole = span(bytes.len() as u64);
        let filler = if to_end < whole { to_end } else { 0 };
        let wanted = whole + filler + LINE;
        if self.room(credits, wanted)? < wanted {
            // Nobody waits for room for a message, so nobody would press.
            self.request_grow();
            return Ok(false);
        }
        if filler > 0 {
            self.put(ring, credits, (Kind::Filler, false), payload_of(filler), cpu, |_| {})?;
        }
        self.put(ring, credits, (Kind::Message, false), bytes.len() as u64, cpu, |at| ring.write(at, bytes))?;
        Ok(true)
    }

    /// Pushes one whole record of a kind that has a descriptor in front of its bytes; at most [`ANNOUNCED`] of them.
    /// `Ok(false)`: there is no room for it now.
    pub fn push_announcement(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        kind: Kind,
        descriptor: &[u8; DESCRIPTOR as usize],
        bytes: &[u8],
        cpu: u16,
    ) -> Result<bool, Violation> {
        assert!(bytes.len() <= ANNOUNCED, "an announcement carries few bytes");
        let len = descriptor.len() + bytes.len();
        let to_end = self.to_end();
        let whole = span(len as u64);
        let filler = if to_end < whole { to_end } else { 0 };
        let wanted = whole + filler + LINE;
        if self.room(credits, wanted)? < wanted {
            return Ok(false);
        }
        if filler > 0 {
            self.put(ring, credits, (Kind::Filler, false), payload_of(filler), cpu, |_| {})?;
        }
        self.put(ring, credits, (kind, false), len as u64, cpu, |at| {
            ring.write(at, descriptor);
            ring.write(at + descriptor.len(), bytes);
        })?;
        Ok(true)
    }

    /// So many bytes behind what was pushed come by another way.
    pub fn count(&self, bytes: u64) {
        self.units.store(self.units().saturating_add(bytes), Relaxed);
    }

    /// So many of them do not.
    pub fn discount(&self, bytes: u64) {
        self.units.store(self.units().saturating_sub(bytes), Relaxed);
    }

    /// Pushes a record without payload, for which a line is always kept back. `false` if even that is gone.
    pub fn push_control(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        kind: Kind,
        cpu: u16,
    ) -> Result<bool, Violation> {
        if self.room(credits, LINE)? < LINE {
            return Ok(false);
        }
        self.put(ring, credits, (kind, false), 0, cpu, |_| {})?;
        Ok(true)
    }

    /// Writes a record, growing or wrapping if it ends where the ring does. `fill` stores the payload at an offset.
    #[inline]
    fn put(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        record: (Kind, bool),
        len: u64,
        cpu: u16,
        fill: impl FnOnce(usize),
    ) -> Result<(), Violation> {
        let Ok(()) = self.put_by(ring, credits, record, len, cpu, |at| {
            fill(at);
            Ok::<(), Infallible>(())
        })?;
        Ok(())
    }

    /// As [`Self::put`] with a `fill` that may fail: then nothing is written.
    #[inline]
    pub(super) fn put_by<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        (kind, gathers): (Kind, bool),
        len: u64,
        cpu: u16,
        fill: impl FnOnce(usize) -> Result<(), F>,
    ) -> Result<Result<(), F>, Violation> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut header = Header { len, kind, flags: 0, cpu };
        let at_end = self.to_end() == header.span();
        let grow = at_end && self.grows_now();
        if gathers && !at_end {
            header.flags = FLAG_OPEN;
        }
        self.write(ring, credits, header, grow, fill)
    }

    /// Doubles the ring in place, using the reserved line for the `GROW` record, so that a full ring below `ring_max` does
    /// not block its sender. The ring must be below `ring_max`.
    fn jump(&self, ring: &impl Store, credits: &impl Credits, cpu: u16) -> Result<(), Violation> {
        let header = Header { len: 0, kind: Kind::Filler, flags: 0, cpu };
        let Ok(()) = self.write(ring, credits, header, true, |_| Ok::<(), Infallible>(()))?;
        Ok(())
    }

    /// Stores credit into the record that is written next, at `begin` in the segment, if any is to ride and there is a place
    /// for it. The record ends at position `after`.
    #[cold]
    #[inline(never)]
    fn load_credit(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        header: &mut Header,
        (begin, after): (usize, u64),
    ) {
        if !header.is_open()
            && let Some(place) = header.credit_at()
            && let Some(credit) = credits.ride(self.generation(), after)
        {
            header.flags |= FLAG_CREDIT;
            ring.store_u64(begin + usize::try_from(place).unwrap_or(0), credit);
            self.rides.store(self.rides.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Stores payload, word, mark, in that order (law 4), and moves on.
    #[inline]
    fn write<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        mut header: Header,
        grow: bool,
        fill: impl FnOnce(usize) -> Result<(), F>,
    ) -> Result<Result<(), F>, Violation> {
        let begin = self.begin();
        let at = place(ring.len(), begin.offset, header.span())?;
        if grow {
            header.flags |= FLAG_GROW;
        }
        self.close(ring)?;
        if let Err(failed) = fill(at + usize::try_from(header.payload_at()).unwrap_or(0)) {
            return Ok(Err(failed));
        }
        if credits.is_offered() {
            let after = begin.position.wrapping_add(header.span());
            self.load_credit(ring, credits, &mut header, (at, after));
        }
        let word = header.to_word();
        let word = match self.stamping.load(Relaxed) {
            NO_STAMP => word,
            OWN_TIME => stamped(word, clock::now()),
            stamp => stamped(word, stamp.into()),
        };
        // Not between the stores to the ring: a receiver that looks at their line all the time would take it away in between.
        self.note.take(begin, word);
        self.show(ring, at, word, begin.position);
        self.pass(header, begin);
        if header.is_open() {
            self.open.store(word, Relaxed);
        }
        self.note.take_back();
        Ok(Ok(()))
    }

    /// Where the next record begins.
    #[inline(always)]
    fn begin(&self) -> Begin {
        Begin {
            position: self.position(),
            offset: self.offset.load(Relaxed),
            units: self.units(),
            cap: self.cap(),
        }
    }

    /// The ring is twice as long behind a record that ends at place `end` and position `after`.
    pub(super) fn lengthen(&self, cap: u64, end: u64, after: u64) {
        self.cap.store(cap.wrapping_mul(2), Relaxed);
        if end != cap || self.credit.load(Relaxed) < self.barrier.load(Relaxed) {
            self.barrier.store(after, Relaxed);
        }
        self.demand.store(CONTENT, Relaxed);
    }
}
