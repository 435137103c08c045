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
    /// Bytes of the stream of the record here that were taken, or passed while it was open.
    pub(super) taken: u64,
    /// Bytes of the stream come before the record here that are not in the ring.
    pub(super) gap: bool,
    /// Bytes of `units` that do not count if the source has taken them back by the verdict `doubt`.
    pub(super) pending: u64,
    pub(super) doubt: u64,
    /// What would say that all was written that is offered here; 0 if nothing is.
    pub(super) apart: u64,
    pub(super) generation: u32,
}

impl Cursor {
    /// At the start of a fresh ring, behind so many `units` of the stream.
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

    /// The same place in the stream's ring of this number.
    pub fn of_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// A place that another process stored, if it can be one in a ring of `ring_max` bytes with this key.
    pub fn checked(self, ring_max: u64, key: u64) -> Option<Self> {
        let cap_ok = self.cap.is_power_of_two() && self.cap <= ring_max && self.cap >= RING_MIN.min(ring_max);
        let place_ok = self.offset < self.cap && self.offset.is_multiple_of(LINE);
        (cap_ok && place_ok && self.position < u64::MAX / 2).then_some(Self { ring_max, key, ..self })
    }

    /// Units of the stream up to the end of what has arrived here: walks over the records that lie in the ring, at most
    /// once round. A record that cannot be ends it, and so does what is announced, unless all that was announced so far is
    /// taken back. What was written into offered memory has arrived too.
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
        // The last look: what lies behind it in the ring was stored after it.
        self.units().saturating_add(self.landed(ring))
    }

    /// Bytes that were written into what is offered.
    fn landed(&self, ring: &impl Load) -> u64 {
        let sequence = sequence_of(self.apart);
        let most = bytes_of(self.apart, sequence).unwrap_or(0);
        let said = bytes_of(ring.load_u64(WR_DONE), sequence).unwrap_or(0);
        if sequence != 0 && said <= most { said.into() } else { 0 }
    }

    /// Units of the stream from its start to here, with what was taken of the record here.
    pub fn units(&self) -> u64 {
        self.units.saturating_add(self.taken)
    }

    /// Bytes of the stream of the record here that were taken, or passed.
    pub fn taken(&self) -> usize {
        usize::try_from(self.taken).unwrap_or(usize::MAX)
    }

    /// Moves over so many bytes of the record here, fewer than are left of it.
    pub fn take(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count as u64);
    }

    /// What of the record here, which [`Self::look`] returned, lies before unit `limit` of the stream, if it begins there:
    /// one that was open when units were counted has become longer since. Any other lies on one side of the limit.
    pub fn clip(&self, header: Header, limit: u64) -> Option<Header> {
        let before = limit.checked_sub(self.units)?;
        if units(header.kind, header.len) <= before {
            return Some(header);
        }
        let len = u32::try_from(before).unwrap_or(u32::MAX);
        (header.was_open() && before > 0).then_some(Header { len, flags: FLAG_GATHERED, ..header })
    }

    /// The same place, as if nothing came before it that is not in the ring.
    pub fn past_gap(self) -> Self {
        Self { gap: false, ..self }
    }

    /// Whether a record lies here, or behind others, that is more than an announcement; at most once round.
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

    /// Number of the ring that this is a place in.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Bytes of ring from the start to here.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The stamp of the record here; 0 if it has none or has not arrived. It may be a lie.
    pub fn stamp(&self, ring: &impl Load) -> u32 {
        match place(ring.len(), self.offset, LINE) {
            Ok(at) if ring.load_u64(at) == mark(self.key, self.position) => stamp(ring.load_u64(at + 8)),
            _ => 0,
        }
    }

    /// The record here, checked, if it has arrived and there is more of it than was taken, and nothing comes before it
    /// that is not in the ring.
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

    /// The word of the record here, whose mark was seen.
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

    /// Where it lies in the segment.
    #[inline]
    fn place(&self, ring: &impl Load) -> Result<usize, Violation> {
        place(ring.len(), self.offset, LINE)
    }

    /// Bytes of ring in use at this place.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Copies bytes of the stream out of the record here, which [`Self::look`] returned, from byte `skip` on, to memory of the
    /// program's, which may not be there.
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

    /// Moves behind the record here, which [`Self::look`] returned, or to the end of what it has so far if it is open. What
    /// it announces comes before the next one.
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
