//! How much room the producer has, from the credit that its peer gave, and when the producer doubles the ring.

use super::producer::{FULL, GROW_REQUESTED};
use super::{Credits, EASY, Producer, Violation};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_wire::record::{MAX_PAYLOAD, payload_of};

impl Producer {
    /// Limits the ring to `ring_max` bytes from now on, but not below its present length. `ring_max` is at most what
    /// [`Self::reset`] was given.
    pub fn limit(&self, ring_max: u64) {
        self.ring_max.store(ring_max.max(self.cap()), Relaxed);
    }

    /// Whether the ring is shorter than its limit.
    pub fn may_grow(&self) -> bool {
        self.cap() < self.ring_max.load(Relaxed)
    }

    /// Whether the last push found the ring full and only [`Self::request_grow`] would lengthen it: it has [`EASY`] bytes or
    /// more and is below its limit. The caller should wait shortly for the reader before it requests growth.
    pub fn can_grow(&self) -> bool {
        self.cap() >= EASY && self.may_grow() && self.demand.load(Relaxed) == FULL
    }

    /// Whether the last push found the ring full although the ring has `len` bytes or more; `len` is the ring length that
    /// its segment has room for.
    pub fn was_full_at(&self, len: u64) -> bool {
        self.cap() >= len && self.demand.load(Relaxed) == FULL
    }

    /// The sender has waited for the reader without success: the next push that finds the ring full doubles it. Needs no lock.
    pub fn request_grow(&self) {
        self.demand.store(GROW_REQUESTED, Relaxed);
    }

    pub(super) fn was_full(&self) {
        self.demand.fetch_max(FULL, Relaxed);
    }

    /// Whether the next record may double the ring: a push found it full (below [`EASY`] bytes), or growth was requested.
    pub(super) fn grows_now(&self) -> bool {
        let least = if self.cap() < EASY { FULL } else { GROW_REQUESTED };
        self.demand.load(Relaxed) >= least && self.may_grow()
    }

    /// Bytes of ring that were pushed and for which the peer has not given credit. Needs no lock.
    pub fn unconfirmed(&self, credits: &impl Credits) -> Result<u64, Violation> {
        let got = self.look_at_credit(credits)?;
        Ok(self.position().saturating_sub(self.credit.fetch_max(got, Relaxed).max(got)))
    }

    /// An estimate of [`Self::room`] without the lock, while another thread may be sending. Changes nothing and does not check
    /// the peer's credit: the next sender does.
    #[inline]
    pub fn glance(&self, credits: &impl Credits, wanted: u64) -> u64 {
        let (position, credit) = (self.position.load(Acquire), self.credit.load(Relaxed));
        let known = self.room_at(position, credit);
        if known >= wanted {
            return known;
        }
        self.room_at(position, credits.stored().max(credits.ridden(self.generation())).max(credit))
    }

    /// Bytes of ring that are free. Reads the peer's credit only if less than `wanted` bytes are known to be free.
    #[inline(always)]
    pub fn room(&self, credits: &impl Credits, wanted: u64) -> Result<u64, Violation> {
        let known = self.known_room();
        if known >= wanted {
            return Ok(known);
        }
        self.room_by_credit(credits)
    }

    #[inline(never)]
    fn room_by_credit(&self, credits: &impl Credits) -> Result<u64, Violation> {
        self.reload_credit(credits)?;
        Ok(self.known_room())
    }

    #[inline]
    pub(super) fn known_room(&self) -> u64 {
        self.room_at(self.position(), self.credit.load(Relaxed))
    }

    /// Free bytes of ring at `position` with this `credit`. Saturates: without the lock the two may be from different moments.
    #[inline]
    fn room_at(&self, position: u64, credit: u64) -> u64 {
        let (cap, barrier) = (self.cap(), self.barrier.load(Relaxed));
        let room = cap.saturating_sub(position.saturating_sub(credit));
        if credit < barrier {
            room.min(barrier.saturating_add(cap / 2).saturating_sub(position))
        } else {
            room
        }
    }

    pub(super) fn reload_credit(&self, credits: &impl Credits) -> Result<(), Violation> {
        let got = self.look_at_credit(credits)?;
        if got > self.credit.load(Relaxed) {
            self.credit.store(got, Relaxed);
        }
        Ok(())
    }

    /// The peer's credit, stored or piggybacked, whichever is higher, after a check. Reads the credit before this end's
    /// own position, so that an honest peer's credit passes the check while another thread sends.
    fn look_at_credit(&self, credits: &impl Credits) -> Result<u64, Violation> {
        let least = self.stored.load(Relaxed);
        let (stored, ridden) = (credits.stored(), credits.ridden(self.generation()));
        let (got, most) = (stored.max(ridden), self.position());
        if stored < least || got > most {
            return Err(Violation::Credit { got: if got > most { got } else { stored }, least, most });
        }
        if stored > least {
            self.stored.store(stored, Relaxed);
        }
        Ok(got)
    }

    /// Bytes from the next record's offset to the ring's present end.
    #[inline]
    pub(super) fn to_end(&self) -> u64 {
        self.cap().saturating_sub(self.offset.load(Relaxed))
    }

    /// Payload bytes of the longest record that fits both `room` and the bytes to the ring's end.
    pub(super) fn fitting(&self, room: u64) -> usize {
        let to_end = self.to_end();
        usize::try_from(payload_of(room.min(to_end)).min(MAX_PAYLOAD)).unwrap_or(0)
    }
}
