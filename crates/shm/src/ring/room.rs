//! Room in a ring, as its producer knows it: credit that came back, and when the ring becomes longer.

use super::producer::{FULL, GROW_REQUESTED};
use super::{Credits, EASY, Producer, Violation};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_wire::record::{MAX_PAYLOAD, payload_of};

impl Producer {
    /// Lets the ring become at most `ring_max` bytes long from here on; not more than [`Self::reset`] said.
    pub fn limit(&self, ring_max: u64) {
        self.ring_max.store(ring_max.max(self.cap()), Relaxed);
    }

    /// Whether the ring can still become longer.
    pub fn may_grow(&self) -> bool {
        self.cap() < self.ring_max.load(Relaxed)
    }

    /// Whether a ring that is full could still become longer by [`Self::request_grow`]: it is [`EASY`] or more. Worth a short
    /// wait for the reader first.
    pub fn can_grow(&self) -> bool {
        self.cap() >= EASY && self.may_grow() && self.demand.load(Relaxed) == FULL
    }

    /// Whether the last push found no room though the ring is `len` bytes long, all that there is.
    pub fn was_full_at(&self, len: u64) -> bool {
        self.cap() >= len && self.demand.load(Relaxed) == FULL
    }

    /// The reader was waited for in vain: let the ring become twice as long with the next push that finds it full.
    /// Needs no lock.
    pub fn request_grow(&self) {
        self.demand.store(GROW_REQUESTED, Relaxed);
    }

    pub(super) fn was_full(&self) {
        self.demand.fetch_max(FULL, Relaxed);
    }

    /// Whether the ring may grow with the record that is written next.
    pub(super) fn grows_now(&self) -> bool {
        let least = if self.cap() < EASY { FULL } else { GROW_REQUESTED };
        self.demand.load(Relaxed) >= least && self.may_grow()
    }

    /// Bytes of ring that were pushed and not yet consumed, as far as returned credits tell. Needs no lock.
    pub fn unconfirmed(&self, credits: &impl Credits) -> Result<u64, Violation> {
        let got = self.look_at_credit(credits)?;
        Ok(self.position().saturating_sub(self.credit.fetch_max(got, Relaxed).max(got)))
    }

    /// Bytes of ring that may be used, as far as that can be told while another thread is sending. Changes nothing;
    /// a lie of the peer's is left for the sender to find.
    #[inline]
    pub fn glance(&self, credits: &impl Credits, wanted: u64) -> u64 {
        let (position, credit) = (self.position.load(Acquire), self.credit.load(Relaxed));
        let known = self.room_at(position, credit);
        if known >= wanted {
            return known;
        }
        self.room_at(position, credits.stored().max(credits.ridden(self.generation())).max(credit))
    }

    /// Bytes of ring that may be used now. Looks at the peer's credit only if less than `wanted` is known of.
    pub fn room(&self, credits: &impl Credits, wanted: u64) -> Result<u64, Violation> {
        let known = self.known_room();
        if known >= wanted {
            return Ok(known);
        }
        self.reload_credit(credits)?;
        Ok(self.known_room())
    }

    #[inline]
    pub(super) fn known_room(&self) -> u64 {
        self.room_at(self.position(), self.credit.load(Relaxed))
    }

    /// Room with so much sent and so much of it given back. Saturates where a thread without the lock sees a mixture.
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

    /// What came back by either way, checked. In this order an honest peer's credit passes even while another thread
    /// sends.
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

    /// Bytes from the place of the next record to the ring's end.
    #[inline]
    pub(super) fn to_end(&self) -> u64 {
        self.cap().saturating_sub(self.offset.load(Relaxed))
    }

    /// Payload of the longest record that fits `room` and the way to the ring's end.
    pub(super) fn fitting(&self, room: u64) -> usize {
        let to_end = self.to_end();
        usize::try_from(payload_of(room.min(to_end)).min(MAX_PAYLOAD)).unwrap_or(0)
    }
}
