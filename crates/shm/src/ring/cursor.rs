//! Looking at records without consuming them.

use super::{Violation, place};
use crate::Load;
use crate::guarded::Fault;
use crosslane_wire::DecodeError;
use crosslane_wire::record::{FLAG_GATHERED, FLAG_GROW, Header, Kind, mark, stamp, units};
use crosslane_wire::segment::{LINE, RING_MIN, SRC_OFF, VERDICT, WR_DONE};
use crosslane_wire::zcopy::{bytes_of, sequence_of};

/// A place in the ring that moves over records without consuming them (`MSG_PEEK`, `FIONREAD`, edge detection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(super) position: u64,
    pub(super) offset: u64,
    pub(super) cap: u64,
    pub(super) ring_max: u64,
    pub(super) key: u64,
    pub(super) units: u64,
    /// Bytes of the stream that were taken of this record, or passed while the record was open.
    pub(super) taken: u64,
    /// Announced bytes, which are not in the ring, come before this record: the cursor cannot advance.
    pub(super) gap: bool,
    /// Bytes, included in `units`, that do not count if the source's `VERDICT` is `doubt`.
    pub(super) pending: u64,
    pub(super) doubt: u64,
    /// The largest `WR_DONE` that the far side may store for the memory offered at this place; 0 if none is offered.
    pub(super) apart: u64,
    pub(super) generation: u32,
}

impl Cursor {
    /// At the start of a fresh ring of at most `ring_max` bytes, whose first byte has stream offset `units`.
    pub fn fresh(ring_max: u64, key: u64, units: u64) -> Self {
        Self {
            position: 0,
            offset: 0,
            cap: RING_MIN.min(ring_max),
            ring_max,
            key,
            units,
            taken: 0,
            gap: false,
            pending: 0,
            doubt: 0,
            apart: 0,
            generation: 0,
        }
    }

    /// The same place, in ring number `generation` of the stream.
    pub fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// Checks a cursor that another process stored: `None` if no ring of at most `ring_max` bytes can have it. The result uses
    /// `ring_max` and `key` as given here.
    pub fn checked(self, ring_max: u64, key: u64) -> Option<Self> {
        let cap_ok = self.cap.is_power_of_two() && self.cap <= ring_max && self.cap >= RING_MIN.min(ring_max);
        let place_ok = self.offset < self.cap && self.offset.is_multiple_of(LINE);
        (cap_ok && place_ok && self.position < u64::MAX / 2).then_some(Self { ring_max, key, ..self })
    }

    /// Stream offset up to which the stream has arrived: walks over the records in the ring, at most once round, and
    /// stops at a malformed record and, unless the source took all announcements back, at an announcement. Counts the
    /// bytes that the far side wrote into offered memory.
    pub fn arrived(mut self, ring: &impl Load) -> u64 {
        let start = self.position;
        if self.pending > 0 && ring.load_u64(SRC_OFF) != 0 && ring.load_u64(VERDICT) == self.doubt {
            self.units = self.units.saturating_sub(self.pending);
        }
        self.taken = 0;
        while self.position.wrapping_sub(start) < self.cap {
            self.gap &= ring.load_u64(SRC_OFF) == 0;
            let Ok(Some(header)) = self.look(ring) else { break };
            self.pass(header);
        }
        // `WR_DONE` is loaded last: the records that follow those bytes were stored after it.
        self.units().saturating_add(self.landed(ring))
    }

    /// Bytes that the far side has written into offered memory, by its `WR_DONE`.
    fn landed(&self, ring: &impl Load) -> u64 {
        let sequence = sequence_of(self.apart);
        let most = bytes_of(self.apart, sequence).unwrap_or(0);
        let said = bytes_of(ring.load_u64(WR_DONE), sequence).unwrap_or(0);
        if sequence != 0 && said <= most { said.into() } else { 0 }
    }

    /// Stream offset of this place, with what was taken of the record here.
    pub fn units(&self) -> u64 {
        self.units.saturating_add(self.taken)
    }

    /// Bytes of the stream that were taken of the record here, or passed.
    pub fn taken(&self) -> usize {
        usize::try_from(self.taken).unwrap_or(usize::MAX)
    }

    /// Moves over `count` bytes of the record here, fewer than are left of it.
    pub fn take(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count as u64);
    }

    /// Cuts the record here (`header`, from [`Self::look`]) off at stream offset `limit`; `None` if nothing of the record
    /// lies before `limit`. Only a record that was open can lie on both sides: its sender appended to it after the
    /// daemons had counted the bytes that had arrived.
    pub fn clip(&self, header: Header, limit: u64) -> Option<Header> {
        let before = limit.checked_sub(self.units)?;
        if units(header.kind, header.len) <= before {
            return Some(header);
        }
        let len = u32::try_from(before).unwrap_or(u32::MAX);
        (header.was_open() && before > 0).then_some(Header { len, flags: FLAG_GATHERED, ..header })
    }

    /// The same place, as if the announced bytes before it had been received.
    pub fn past_gap(self) -> Self {
        Self { gap: false, ..self }
    }

    /// Whether the ring holds, here or farther on, a record that is neither filler nor an announcement without bytes of its
    /// own. Walks at most once round.
    pub fn has_more(self, ring: &impl Load) -> bool {
        let (start, mut at) = (self.position, self.past_gap());
        while at.position.wrapping_sub(start) < at.cap {
            match at.look(ring) {
                Ok(Some(header)) if header.kind == Kind::Filler => at.pass(header),
                Ok(Some(header)) if header.kind == Kind::SrcAvail && header.bytes() == 0 => at.pass(header),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
            at.gap = false;
        }
        false
    }

    /// Number of the ring that this place is in.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Position of this place, bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The time stamp of the record here, unchecked; 0 if it has none or has not arrived.
    pub fn stamp(&self, ring: &impl Load) -> u32 {
        match place(ring.len(), self.offset, LINE) {
            Ok(at) if ring.load_u64(at) == mark(self.key, self.position) => stamp(ring.load_u64(at + 8)),
            _ => 0,
        }
    }

    /// The next record, from here on, that has arrived and has bytes left (or never had any), checked. `None` if there is none,
    /// or if announced bytes come before it.
    pub fn look(&mut self, ring: &impl Load) -> Result<Option<Header>, Violation> {
        loop {
            if self.gap || ring.load_u64(self.place(ring)?) != mark(self.key, self.position) {
                return Ok(None);
            }
            let header = self.check(ring)?;
            if self.taken == 0 || u64::from(header.bytes()) > self.taken {
                return Ok(Some(header));
            }
            if header.is_open() {
                return Ok(None);
            }
            self.pass(header);
        }
    }

    /// Reads and checks the header word of the record here, whose mark the caller has seen.
    #[inline(always)]
    pub(super) fn check(&self, ring: &impl Load) -> Result<Header, Violation> {
        let word = ring.load_u64(self.place(ring)? + 8);
        let header = Header::from_word(word, self.cap.saturating_sub(self.offset))?;
        let grows = header.flags & FLAG_GROW != 0;
        if grows && self.cap > self.ring_max / 2 {
            return Err(DecodeError::range("ring growth").into());
        }
        Ok(header)
    }

    /// The byte of the segment at which this place lies.
    #[inline]
    fn place(&self, ring: &impl Load) -> Result<usize, Violation> {
        place(ring.len(), self.offset, LINE)
    }

    /// Bytes of ring in use at this place.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Copies bytes of the stream from the record here (`header`, from [`Self::look`]), from its byte `skip` on, into the
    /// program's memory `target`. An unmapped page of `target` is a [`Fault`], not a crash.
    pub fn read_guarded(
        &self,
        ring: &impl Load,
        header: Header,
        skip: usize,
        target: &mut [u8],
    ) -> Result<Result<(), Fault>, Violation> {
        let skipped = header.bytes_at() + skip as u64;
        let begin = place(ring.len(), self.offset, skipped + target.len() as u64)?;
        Ok(ring.read_guarded(begin + usize::try_from(skipped).unwrap_or(0), target))
    }

    /// Moves behind the record here (`header`, from [`Self::look`]); if it is open, to the end of what it has so far. After a
    /// SrcAvail a gap lies before the next record.
    pub fn pass(&mut self, header: Header) {
        self.taken = if header.is_open() { header.len.into() } else { 0 };
        if header.is_open() {
            return;
        }
        self.gap |= header.kind == Kind::SrcAvail;
        let end = self.offset.wrapping_add(header.span());
        self.position = self.position.wrapping_add(header.span());
        self.units = self.units.saturating_add(units(header.kind, header.len));
        self.offset = if end < self.cap { end } else { 0 };
        if header.flags & FLAG_GROW != 0 {
            self.offset = self.cap;
            self.cap = self.cap.saturating_mul(2);
        }
    }
}
