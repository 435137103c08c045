//! The end that reads records.

use super::credit::{NO_RING, tagged};
use super::{Cursor, Violation, place};
use crate::Load;
use crate::account::{self, Function};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
use crosslane_wire::DecodeError;
use crosslane_wire::record::{FLAG_CREDIT, FLAG_GROW, Header, Kind, is_open, length, mark, payload_at};
use crosslane_wire::segment::LINE;
use crosslane_wire::zcopy::DESCRIPTOR;

/// Attempts of [`Consumer::glance`] to read a consistent state while another thread consumes.
const GLANCES: u32 = 32;

/// A record that has arrived and is not yet consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The record's kind.
    pub kind: Kind,
    /// Bytes of the stream in it that were not taken yet.
    pub left: usize,
    /// Number of the processor that its writer ran on.
    pub cpu: u16,
}

/// The consuming end's state. The first cache line changes with every record; the next ones seldom do, and the sender of the
/// other direction reads them.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Consumer {
    pub(super) position: AtomicU64,
    pub(super) offset: AtomicU64,
    /// The mark of the next record, computed once since pollers compare it far more often than a record arrives. 0 while the
    /// holder of the lock changes the state: threads that read without the lock then discard what they read.
    pub(super) expected: AtomicU64,
    /// The receiver's copy of the front record's header word, made when the word was checked, since the peer may change
    /// the one in the ring at any time; 0 if no record was checked yet.
    pub(super) word: AtomicU64,
    /// Bytes of the stream that were taken of the front record.
    pub(super) taken: AtomicU64,
    /// Stream offset at `position`.
    pub(super) units: AtomicU64,
    /// [`Self::give_or_offer`] does nothing before this position.
    pub(super) due_at: AtomicU64,
    /// [`Self::given`] as of its last load: saves that load for most records.
    pub(super) seen_given: AtomicU64,
    pub(super) key: AtomicU64,
    pub(super) cap: AtomicU64,
    pub(super) ring_max: AtomicU64,
    /// Announced bytes of the stream that come before the front record and are not in the ring.
    pub(super) elsewhere: AtomicU64,
    /// [`tagged`] position up to which this end has given credit, by the `CREDIT` word or by piggybacking ([`super::credit`]).
    pub(super) given: AtomicU64,
    /// The highest credit that the peer piggybacked on records of this ring, for what this end sends.
    pub(super) ridden: AtomicU64,
    /// Position in the ring that this end fills, behind the record that carried the credit in `asked`.
    pub(super) rode_at: AtomicU64,
    /// Position, in lines, up to which the peer surely knows this end's credit.
    pub(super) sure: AtomicU32,
    /// How often credit was stored into the `CREDIT` word since [`Self::reset`].
    pub(super) credits: AtomicU32,
    /// Not 0: the sender of the other direction is to piggyback credit on its next record.
    pub(super) offered: AtomicU32,
    /// Which of the stream's rings this is: 0 for the first circuit, one more for each that the stream moved to.
    pub(super) generation: AtomicU32,
    /// Bytes that the front record announces: in the stream they follow the record, and they are not in the ring.
    pub(super) announced: AtomicU64,
    /// The [`tagged`] credit that this end piggybacked last with a request for acknowledgement; 0 once the peer has acknowledged it.
    pub(super) asked: AtomicU64,
    /// The position, in lines, of the last piggybacked credit that requested an acknowledgement.
    pub(super) asked_last: AtomicU32,
    /// `ridden` at the time of the last acknowledgement that this end asked its sender for.
    pub(super) answered: AtomicU64,
    /// Fetched bytes, included in `units`, that the source may still take back; 0 if it cannot.
    pub(super) pending: AtomicU64,
    /// The value of the source's `VERDICT` that takes `pending` back.
    pub(super) doubt: AtomicU64,
    /// The largest `WR_DONE` that the far side may store for the offered memory; 0 if none is offered.
    pub(super) apart: AtomicU64,
}

impl Consumer {
    /// Begins the first ring of a stream; the parameters are those of [`Producer::reset`](super::Producer::reset).
    pub fn reset(&self, cap: u64, ring_max: u64, key: u64) {
        self.credits.store(0, Relaxed);
        self.resume(0, cap, ring_max, key, 0);
    }

    /// As [`Self::reset`], for a stream that moved: ring number `generation`, whose first byte has stream offset `units`.
    pub fn resume(&self, generation: u32, cap: u64, ring_max: u64, key: u64, units: u64) {
        self.expected.store(0, Relaxed);
        // Disables piggybacked credit until the new ring is published: the sender may use the new one already.
        self.given.store(tagged(NO_RING, 0), Relaxed);
        fence(Release);
        for (word, value) in [
            (&self.position, 0),
            (&self.offset, 0),
            (&self.cap, cap),
            (&self.word, 0),
            (&self.taken, 0),
            (&self.due_at, 0),
            (&self.seen_given, 0),
            (&self.ridden, 0),
            (&self.asked, 0),
            (&self.answered, 0),
            (&self.ring_max, ring_max),
            (&self.key, key),
            (&self.units, units),
            (&self.elsewhere, 0),
            (&self.announced, 0),
            (&self.pending, 0),
            (&self.doubt, 0),
            (&self.apart, 0),
        ] {
            word.store(value, Relaxed);
        }
        self.sure.store(0, Relaxed);
        self.asked_last.store(0, Relaxed);
        self.offered.store(0, Relaxed);
        self.given.store(tagged(generation, 0), Release);
        self.generation.store(generation, Release);
        self.expected.store(mark(key, 0), Release);
    }

    /// Number of the ring from which this end receives.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// Whether a record has arrived at the front, by one load of the ring and without checking the record. For pollers, with
    /// or without the lock. Never `false` when a record is there; may be `true` without one while another thread consumes,
    /// or if the shared state is corrupt: the caller then takes the lock and finds out.
    #[inline]
    pub fn arrived(&self, ring: &impl Load) -> bool {
        let expected = self.expected.load(Acquire);
        if expected == 0 {
            return true;
        }
        let (word, offset) = (self.word.load(Relaxed), self.offset.load(Acquire));
        let Ok(at) = place(ring.len(), offset, LINE) else { return true };
        let there = match word {
            0 => ring.load_u64(at) == expected,
            word if is_open(word) => self.has_more(ring, word),
            _ => true,
        };
        fence(Acquire);
        there || self.expected.load(Relaxed) != expected
    }

    /// The record at the front, if one has arrived.
    #[inline]
    pub fn head(&self, ring: &impl Load) -> Result<Option<Head>, Violation> {
        self.head_if(ring, || true)
    }

    /// As [`Self::head`], but treats a record as not arrived while `believed` returns `false`. `head_if` calls `believed`
    /// after it has seen the mark, so it never returns a record that was stored after a daemon declared the circuit dead.
    #[inline]
    pub fn head_if(&self, ring: &impl Load, believed: impl Fn() -> bool) -> Result<Option<Head>, Violation> {
        if account::is_on() {
            self.look_at::<true>(ring, believed)
        } else {
            self.look_at::<false>(ring, believed)
        }
    }

    #[inline]
    fn look_at<const COUNTED: bool>(
        &self,
        ring: &impl Load,
        believed: impl Fn() -> bool,
    ) -> Result<Option<Head>, Violation> {
        let mut word = self.word.load(Relaxed);
        if is_open(word) && self.taken.load(Relaxed) >= length(word) {
            if !self.look_again(ring, &believed)? {
                return Ok(None);
            }
            word = self.word.load(Relaxed);
        }
        let _span = (COUNTED && word == 0).then(|| account::receiving(Function::HeaderCheck));
        if word == 0 {
            let expected = self.expected.load(Relaxed);
            if expected == 0 {
                return Err(DecodeError::range("ring left in the middle of a change").into());
            }
            if ring.load_u64(self.place(ring)?) != expected {
                return Ok(None);
            }
        }
        if !believed() {
            return Ok(None);
        }
        if word == 0 {
            let cursor = self.cursor();
            let header = cursor.check(ring)?;
            self.check_credit(&cursor, header)?;
            if header.flags & FLAG_CREDIT != 0 {
                self.note_ride(ring, header)?;
            }
            word = header.to_word();
            self.word.store(word, Relaxed);
        }
        let header = Header::from_word(word, u64::MAX)?;
        let taken = usize::try_from(self.taken.load(Relaxed)).unwrap_or(usize::MAX);
        let left = (header.bytes() as usize).saturating_sub(taken);
        Ok(Some(Head { kind: header.kind, left, cpu: header.cpu }))
    }

    /// Whether the front record was checked before and has bytes left to take.
    #[inline]
    pub fn is_begun(&self) -> bool {
        let word = self.word.load(Relaxed);
        word != 0 && !(is_open(word) && self.taken.load(Relaxed) >= length(word))
    }

    /// The byte of the segment at which the front record begins.
    #[inline]
    fn place(&self, ring: &impl Load) -> Result<usize, Violation> {
        place(ring.len(), self.offset.load(Relaxed), LINE)
    }

    /// The byte of the segment at which the untaken payload of the front record begins; `head` is what [`Self::head`] returned
    /// for it. All `head.left` bytes from there lie in the segment.
    #[inline]
    pub fn front(&self, ring: &impl Load, head: Head) -> Result<usize, Violation> {
        let taken = self.taken.load(Relaxed);
        let prefix = u64::from(head.kind.prefix());
        let before = taken.saturating_add(prefix);
        let len = before.saturating_add(head.left as u64);
        let begin = payload_at(len);
        let at = place(ring.len(), self.offset.load(Relaxed), begin.saturating_add(len))?;
        Ok(at + usize::try_from(begin + before).unwrap_or(0))
    }

    /// The announcement's fields, which precede the stream's bytes in the front record; `head` is what [`Self::head`] returned
    /// for it.
    pub fn descriptor(&self, ring: &impl Load, head: Head) -> Result<[u8; DESCRIPTOR as usize], Violation> {
        let mut bytes = [0; DESCRIPTOR as usize];
        let len = (head.left as u64).saturating_add(self.taken.load(Relaxed));
        let begin = payload_at(len.saturating_add(u64::from(head.kind.prefix())));
        let at = place(ring.len(), self.offset.load(Relaxed), begin + u64::from(DESCRIPTOR))?;
        ring.read(at + usize::try_from(begin).unwrap_or(0), &mut bytes);
        Ok(bytes)
    }

    /// Marks `count` bytes (at most `head.left`) as taken, after the caller copied them from [`Self::front`]; consumes the record
    /// with its last byte.
    #[inline]
    pub fn skip(&self, head: Head, count: usize) -> Result<(), Violation> {
        if count == head.left {
            return self.consume();
        }
        self.taken.store(self.taken.load(Relaxed).wrapping_add(count as u64), Relaxed);
        Ok(())
    }

    /// Consumes the front record with all payload that is left in it. An open record stays at the front, with everything
    /// that it has so far marked as taken.
    pub fn consume(&self) -> Result<(), Violation> {
        if account::is_on() { self.pass_front::<true>() } else { self.pass_front::<false>() }
    }

    fn pass_front<const COUNTED: bool>(&self) -> Result<(), Violation> {
        let _span = COUNTED.then(|| account::receiving(Function::Free));
        let header = Header::from_word(self.word.load(Relaxed), u64::MAX)?;
        if header.is_open() {
            self.taken.store(header.len.into(), Relaxed);
            return Ok(());
        }
        let mut cursor = self.cursor();
        cursor.pass(header);
        self.expected.store(0, Relaxed);
        fence(Release);
        self.position.store(cursor.position, Relaxed);
        self.offset.store(cursor.offset, Release);
        if header.flags & FLAG_GROW != 0 {
            self.cap.store(cursor.cap, Relaxed);
        }
        self.units.store(cursor.units, Relaxed);
        self.word.store(0, Relaxed);
        self.taken.store(0, Relaxed);
        if header.kind == Kind::SrcAvail {
            self.elsewhere.store(self.announced.swap(0, Relaxed), Relaxed);
        }
        self.expected.store(mark(cursor.key, cursor.position), Release);
        Ok(())
    }

    /// Fails if the record ends beyond the credit that this end gave: its writer overwrote bytes that were not consumed.
    #[inline]
    pub(super) fn check_credit(&self, cursor: &Cursor, header: Header) -> Result<(), Violation> {
        let end = cursor.position.wrapping_add(header.span());
        if end.wrapping_sub(self.seen_given.load(Relaxed)) <= cursor.cap {
            return Ok(());
        }
        self.check_given(end, cursor.cap)
    }

    #[inline(never)]
    fn check_given(&self, end: u64, cap: u64) -> Result<(), Violation> {
        let given = self.given();
        self.seen_given.store(given, Relaxed);
        let Some(out) = end.checked_sub(given) else { return Err(Violation::state("credit that was given")) };
        match out.checked_sub(cap) {
            None | Some(0) => Ok(()),
            Some(over) => Err(Violation::Overrun { over }),
        }
    }

    /// Keeps the credit that is piggybacked on the front record for this end's sender. Here it is only checked that the
    /// credit never decreases; the sender checks that it is not more than was sent. Asks the sender for an
    /// acknowledgement if the credit grew by a [`Self::step`].
    #[cold]
    #[inline(never)]
    fn note_ride(&self, ring: &impl Load, header: Header) -> Result<(), Violation> {
        let at = header.credit_at().ok_or(DecodeError::range("record flags"))?;
        let begin = place(ring.len(), self.offset.load(Relaxed), header.span())?;
        let got = ring.load_u64(begin + usize::try_from(at).unwrap_or(0));
        let least = self.ridden.load(Relaxed);
        if got < least {
            return Err(Violation::Credit { got, least, most: u64::MAX });
        }
        self.ridden.store(got, Release);
        if got.saturating_sub(self.answered.load(Relaxed)) >= self.step() {
            self.answered.store(got, Relaxed);
            self.offer();
        }
        Ok(())
    }

    /// Position up to which the ring was consumed, bytes.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// How often credit was stored into the `CREDIT` word since [`Self::reset`].
    pub fn credits(&self) -> u64 {
        self.credits.load(Relaxed).into()
    }

    /// Stream offset of the next byte that the program receives.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed).wrapping_add(self.taken.load(Relaxed))
    }

    /// Like [`Self::cursor`], for threads without the lock. `None` if another thread consumed during each attempt.
    pub fn glance(&self) -> Option<Cursor> {
        for _ in 0..GLANCES {
            let expected = self.expected.load(Acquire);
            let cursor = self.cursor();
            fence(Acquire);
            let same = self.expected.load(Relaxed) == expected
                && self.units.load(Relaxed) == cursor.units
                && self.apart.load(Relaxed) == cursor.apart;
            if expected != 0 && same {
                return Some(cursor);
            }
            core::hint::spin_loop();
        }
        None
    }

    /// A cursor at the front, to read ahead without consuming. The caller holds the lock of receiving.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            position: self.position.load(Relaxed),
            offset: self.offset.load(Relaxed),
            cap: self.cap.load(Relaxed),
            ring_max: self.ring_max.load(Relaxed),
            key: self.key.load(Relaxed),
            units: self.units.load(Relaxed),
            taken: self.taken.load(Relaxed),
            gap: self.elsewhere.load(Relaxed) > 0,
            pending: self.pending.load(Relaxed),
            doubt: self.doubt.load(Relaxed),
            apart: self.apart.load(Relaxed),
            generation: self.generation.load(Relaxed),
        }
    }

    /// Bytes of the stream that were taken of the front record.
    pub fn taken(&self) -> usize {
        usize::try_from(self.taken.load(Relaxed)).unwrap_or(usize::MAX)
    }
}
