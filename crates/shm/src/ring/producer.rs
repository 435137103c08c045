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

/// Ring length, bytes, up to which a producer that finds the ring full doubles it without [`Producer::request_grow`].
/// Rings up to this length stay in the caches of both processors together with the programs' buffers. A longer ring costs
/// both sides cache misses, and pays only if the reader is late.
pub const EASY: u64 = 1 << 20;

/// Most bytes of the stream that an announcement record carries. With more, its header would take a cache line of its own.
pub const ANNOUNCED: usize = 968;

/// Values of [`Producer::demand`]: no push found the ring full; one did; the ring stayed full although the sender waited.
pub(super) const CONTENT: u32 = 0;
pub(super) const FULL: u32 = 1;
pub(super) const GROW_REQUESTED: u32 = 2;

/// Values of [`Producer::stamping`]: no stamp; the time at which the record is written. Any other value is itself the stamp.
pub(super) const NO_STAMP: u32 = 0;
const OWN_TIME: u32 = u32::MAX;

/// A free place for the payload of the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Byte of the segment at which the payload begins.
    pub at: usize,
    /// Length of the payload, bytes.
    pub len: usize,
}

/// The producing end's state.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Producer {
    pub(super) position: AtomicU64,
    pub(super) offset: AtomicU64,
    pub(super) cap: AtomicU64,
    /// Position up to which the peer has given credit, by the `CREDIT` word or piggybacked.
    pub(super) credit: AtomicU64,
    pub(super) ring_max: AtomicU64,
    pub(super) key: AtomicU64,
    /// Position behind the last `GROW` record that did not end at the ring's end: until the peer has given credit up to
    /// it, only the new half of the ring may be used.
    pub(super) barrier: AtomicU64,
    /// [`CONTENT`], [`FULL`] or [`GROW_REQUESTED`].
    pub(super) demand: AtomicU32,
    /// [`NO_STAMP`], [`OWN_TIME`], or the stamp that a pump passes on.
    pub(super) stamping: AtomicU32,
    /// Stream offset at `position`.
    pub(super) units: AtomicU64,
    /// The peer's `CREDIT` word when it was read last.
    pub(super) stored: AtomicU64,
    /// The header word of the last record if more may be appended to it, else 0. Such a record never ends at the ring's end.
    pub(super) open: AtomicU64,
    /// Number of records that carried credit since [`Self::reset`].
    pub(super) rides: AtomicU64,
    /// Which of the stream's rings this is: 0 for the first circuit, one more for each that the stream moved to.
    pub(super) generation: AtomicU32,
    pub(super) note: Note,
}

const _: () = assert!(size_of::<Producer>() == 192);

impl Producer {
    /// Begins the first ring of a stream: `cap` bytes long at first, `ring_max` at most (powers of two, checked by the caller),
    /// with mark key `key`. The peer's [`Consumer`](super::Consumer) must begin with the same values.
    pub fn reset(&self, cap: u64, ring_max: u64, key: u64) {
        self.rides.store(0, Relaxed);
        self.resume(0, cap, ring_max, key, 0);
    }

    /// As [`Self::reset`], for a stream that moved: ring number `generation`, whose first byte has stream offset `units`.
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

    /// Number of the ring that this end fills.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// From the next record on, stamps each record with the time at which it is written if `wanted`, else leaves the stamp 0.
    #[inline]
    pub fn stamp(&self, wanted: bool) {
        self.stamping.store(if wanted { OWN_TIME } else { NO_STAMP }, Relaxed);
    }

    /// From the next record on, stamps each record with `stamp`: a pump passes on the stamp of the record that it copies.
    #[inline]
    pub fn stamp_as(&self, stamp: u32) {
        self.stamping.store(stamp, Relaxed);
    }

    /// Position behind the last record, bytes.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Stream offset behind the last record.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed)
    }

    /// Number of records that carried credit since [`Self::reset`].
    pub fn rides(&self) -> u64 {
        self.rides.load(Relaxed)
    }

    /// Present length of the ring, bytes.
    pub fn cap(&self) -> u64 {
        self.cap.load(Relaxed)
    }

    /// Finds room for the next record, of as many of `left` bytes (at least one) as fit; `None` if there is no room. May double
    /// the ring. The caller stores the payload into the offered place and calls [`Self::commit`].
    #[inline(always)]
    pub fn offer(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        left: usize,
        cpu: u16,
    ) -> Result<Option<Offer>, Violation> {
        let wanted = span((left as u64).min(MAX_PAYLOAD)) + LINE;
        // Each round but the last doubles the ring.
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

    /// Publishes the record whose payload the caller has stored into `offer`, the last one that [`Self::offer`] returned.
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

    /// Pushes `bytes` as one record. `Ok(false)`: there is no room for all of it now, and nothing was pushed. Panics if
    /// `bytes` is longer than [`MAX_PACKET`].
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
            // No thread waits for room for a message, so no thread would request growth later.
            self.request_grow();
            return Ok(false);
        }
        if filler > 0 {
            self.put(ring, credits, (Kind::Filler, false), payload_of(filler), cpu, |_| {})?;
        }
        self.put(ring, credits, (Kind::Message, false), bytes.len() as u64, cpu, |at| ring.write(at, bytes))?;
        Ok(true)
    }

    /// Pushes one announcement (SrcAvail, SinkAvail): `descriptor`, then `bytes` of the stream, at most [`ANNOUNCED`].
    /// `Ok(false)`: there is no room for it now, and nothing was pushed.
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

    /// Adds `bytes` to the stream offset: they follow the pushed bytes, outside the ring.
    pub fn count(&self, bytes: u64) {
        self.units.store(self.units().saturating_add(bytes), Relaxed);
    }

    /// Takes back `bytes` of [`Self::count`]: the sender will push them through the ring.
    pub fn discount(&self, bytes: u64) {
        self.units.store(self.units().saturating_sub(bytes), Relaxed);
    }

    /// Pushes a record without payload, into the line that all other pushes leave free. `false` if that line is used as well.
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

    /// Writes a record that fits, with `fill` storing its payload at a byte of the segment. If it ends at the ring's end, the
    /// ring doubles or the next record begins at offset 0.
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

    /// As [`Self::put`] with a `fill` that may fail: then no record is written. With `gathers` the record stays open.
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

    /// Piggybacks credit on the record that is being written at byte `at` of the segment, if any is due.
    #[inline(always)]
    pub(super) fn carry_credit(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        header: &mut Header,
        (at, begin): (usize, Begin),
    ) {
        if credits.is_offered() {
            let after = begin.position.wrapping_add(header.span());
            self.load_credit(ring, credits, header, (at, after));
        }
    }

    /// Piggybacks credit on the record that is being written, if the record has a free word behind its payload. The record
    /// begins at byte `begin` of the segment and ends at position `after`.
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

    /// The header word `word` with its time stamp, if records are stamped.
    #[inline(always)]
    pub(super) fn stamp_word(&self, word: u64) -> u64 {
        match self.stamping.load(Relaxed) {
            NO_STAMP => word,
            OWN_TIME => stamped(word, clock::now()),
            stamp => stamped(word, stamp.into()),
        }
    }

    /// Closes an open record, stores payload, header word and mark, in that order (law 4), and moves the state behind them.
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
        self.carry_credit(ring, credits, &mut header, (at, begin));
        let word = self.stamp_word(header.to_word());
        // The note is stored before the stores to the ring, not between them: a receiver that polls the ring's cache line
        // would take the line away meanwhile.
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
    pub(super) fn begin(&self) -> Begin {
        Begin {
            position: self.position(),
            offset: self.offset.load(Relaxed),
            units: self.units(),
            cap: self.cap(),
        }
    }

    /// Doubles the ring behind a `GROW` record that ends at ring offset `end` and position `after`.
    pub(super) fn lengthen(&self, cap: u64, end: u64, after: u64) {
        self.cap.store(cap.wrapping_mul(2), Relaxed);
        if end != cap || self.credit.load(Relaxed) < self.barrier.load(Relaxed) {
            self.barrier.store(after, Relaxed);
        }
        self.demand.store(CONTENT, Relaxed);
    }
}
