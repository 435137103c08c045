//! Piggybacked credit: credit of one direction, stored in the records of the other.
//!
//! A record's cache line is sent anyway, so credit in it is free; a store of the CREDIT word costs each side a cache
//! line. But a peer that sleeps or spins for room reads no records. So piggybacked credit is *sure* only once the peer
//! has piggybacked credit that covers the record which carried it, while no thread of the peer slept for room. Until then
//! this end stores the CREDIT word as if nothing had been piggybacked: at each quarter of the ring.
//!
//! An end acknowledges piggybacked credit only if that credit grew by at least 1/8 of the smallest ring since the last acknowledged
//! one; this prevents acknowledgements of acknowledgements without end. Both ends compute this from the same records.
//!
//! Each direction has its own lock, no thread takes both, and for a moment the two may be in different generations of
//! rings. So each word that one direction leaves for the other is tagged with its generation, and ignored if the reader
//! is in another one:
//!
//! ```text
//!   given    written by sender and receiver, tagged: all credit that was ever given. The sender raises it before it stores
//!            the record that carries the credit, so that all bytes that the peer sends with this credit pass the check
//!   ridden   written by the receiver: the highest credit that the peer piggybacked; the sender checks it as it does CREDIT
//! ```

use super::Consumer;
use crate::account::{self, Function};
use crate::{Load, Store};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::fence;
use crosslane_wire::segment::{CREDIT, LINE, RING_MIN, WANT_DATA, WANT_ROOM};

/// How a producer reads its peer's credit, and piggybacks credit of its own side. Where nothing is piggybacked a plain
/// view of the words that the peer stores is enough: only [`Self::stored`] has no default.
pub trait Credits {
    /// The peer's `CREDIT` word, a position in bytes; unchecked.
    fn stored(&self) -> u64;

    /// The highest credit that the peer piggybacked in this generation, a position in bytes; 0 if none. Unchecked.
    fn ridden(&self, _generation: u32) -> u64 {
        0
    }

    /// Whether small sends may be appended to an open record: the peer is awake, so it will look at the record again.
    fn gathers(&self) -> bool {
        false
    }

    /// Whether the next record should carry credit.
    fn is_offered(&self) -> bool {
        false
    }

    /// Called if [`Self::is_offered`]: the credit to store into the record that ends at position `end` of ring
    /// `generation`. That credit counts as given once this returns.
    fn ride(&self, _generation: u32, _end: u64) -> Option<u64> {
        None
    }
}

impl<T: Load> Credits for T {
    #[inline]
    fn stored(&self) -> u64 {
        self.load_u64(CREDIT)
    }
}

/// The [`Credits`] of a channel between two ends that piggyback credit.
#[derive(Debug)]
pub struct Duplex<'a, L> {
    /// The words that the peer stores into this end's segment.
    pub words: &'a L,
    /// This end's receiving state, of the other direction.
    pub consumer: &'a Consumer,
    /// Whether the peer reads piggybacked credit.
    pub rides: bool,
}

impl<L: Load> Credits for Duplex<'_, L> {
    #[inline]
    fn stored(&self) -> u64 {
        self.words.load_u64(CREDIT)
    }

    #[inline]
    fn ridden(&self, generation: u32) -> u64 {
        self.consumer.ridden(generation)
    }

    #[inline]
    fn gathers(&self) -> bool {
        self.words.load_u64(WANT_DATA) == 0
    }

    #[inline]
    fn is_offered(&self) -> bool {
        self.rides && self.consumer.offered.load(Relaxed) != 0
    }

    fn ride(&self, generation: u32, end: u64) -> Option<u64> {
        self.consumer.ride(generation, end)
    }
}

/// A generation that no ring has.
pub(super) const NO_RING: u32 = u32::MAX;

/// Generation and position in one word: generation << 32 | position in lines, modulo 2^32. The lower half is enough, since
/// credit is never more than a ring behind what was consumed.
pub(super) fn tagged(generation: u32, position: u64) -> u64 {
    u64::from(generation) << 32 | u64::from(lines(position))
}

/// `position` in lines, modulo 2^32.
fn lines(position: u64) -> u32 {
    low(position / LINE)
}

/// The lower 32 bits.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// The inverse of [`lines`]: the last position, at or before `position`, that is `so_many` lines modulo 2^32.
fn before(position: u64, so_many: u32) -> u64 {
    position.saturating_sub(u64::from(lines(position).wrapping_sub(so_many)) * LINE)
}

impl Consumer {
    /// The position up to which this end gave credit, by the `CREDIT` word or piggybacked. The caller has the lock of receiving.
    #[inline]
    pub(super) fn given(&self) -> u64 {
        before(self.position.load(Relaxed), low(self.given.load(Acquire)))
    }

    /// The position up to which the peer surely knows this end's credit; `position` is the end of what was consumed.
    #[inline]
    fn sure(&self, position: u64) -> u64 {
        before(position, self.sure.load(Relaxed))
    }

    /// Stores the `CREDIT` word if a quarter of the ring is due; with `all`, if any byte is. Returns whether it stored:
    /// the caller must then wake a peer that sleeps for room.
    #[inline]
    pub fn give_credit(&self, peer: &impl Store, all: bool) -> bool {
        let position = self.position.load(Relaxed);
        let due = position.wrapping_sub(self.sure(position));
        if due == 0 || (!all && due < self.cap.load(Relaxed) / 4) {
            return false;
        }
        let _span = account::receiving(Function::Acknowledge);
        peer.store_u64(CREDIT, position);
        self.asked.store(0, Relaxed);
        self.given.store(tagged(self.generation.load(Relaxed), position), Release);
        self.sure.store(lines(position), Relaxed);
        self.credits.store(self.credits.load(Relaxed).wrapping_add(1), Relaxed);
        true
    }

    /// [`Self::give_credit`] where credit may be piggybacked. Stores the `CREDIT` word if a quarter of the ring is due
    /// that the peer does not surely know of; else asks this end's sender to piggyback, once an eighth is due. `words`
    /// are those that the peer stores into this end's segment.
    #[inline]
    pub fn give_or_offer(&self, peer: &impl Store, words: &impl Load) -> bool {
        self.position.load(Relaxed) >= self.due_at.load(Relaxed) && self.give_due(peer, words)
    }

    /// The slow part of [`Self::give_or_offer`]: also computes the position before which nothing can be due again.
    #[inline(never)]
    fn give_due(&self, peer: &impl Store, words: &impl Load) -> bool {
        let gave = self.give_or_offer_now(peer, words);
        let (position, cap) = (self.position.load(Relaxed), self.cap.load(Relaxed));
        let next = self.given().saturating_add(cap / 8);
        let last = self.sure(position).saturating_add(cap / 4);
        self.due_at.store(if next > position { next.min(last) } else { last }, Relaxed);
        gave
    }

    fn give_or_offer_now(&self, peer: &impl Store, words: &impl Load) -> bool {
        let (position, cap) = (self.position.load(Relaxed), self.cap.load(Relaxed));
        if position.wrapping_sub(self.sure(position)) >= cap / 4 {
            self.count_rides(peer, words);
        }
        if self.give_credit(peer, false) {
            return true;
        }
        if position.saturating_sub(self.given()) >= cap / 8 {
            self.offer();
        }
        false
    }

    /// Counts piggybacked credit as sure if the peer has acknowledged it and does not sleep for room. A peer that goes to
    /// sleep for room after this check reads piggybacked credit once more after its own full fence, so it misses none.
    #[cold]
    fn count_rides(&self, peer: &impl Store, words: &impl Load) {
        // `give_credit` clears it, so it is never more than a ring behind.
        let asked = self.asked.load(Acquire);
        if asked != 0
            && asked >> 32 == u64::from(self.generation.load(Relaxed))
            && self.ridden.load(Relaxed) >= self.rode_at.load(Relaxed)
        {
            peer.fence();
            if words.load_u64(WANT_ROOM) == 0 {
                self.sure.store(low(asked), Relaxed);
                self.asked.store(0, Relaxed);
            }
        }
    }

    /// Asks this end's sender to piggyback credit on its next record that has a free word: because enough credit is due,
    /// or to acknowledge the peer's piggybacked credit.
    #[inline]
    pub(super) fn offer(&self) {
        if self.offered.load(Relaxed) == 0 {
            self.offered.store(1, Relaxed);
        }
    }

    /// The credit to store into the record that ends at position `end` of ring `generation`, which this end fills; `None`
    /// if none is due. The caller has only the lock of sending: another thread may consume meanwhile, or move receiving
    /// to the next ring, which shows in the tag of `given`.
    #[inline]
    fn ride(&self, generation: u32, end: u64) -> Option<u64> {
        let given = self.given.load(Acquire);
        // Acquire: the receiver's copies out of the ring up to that position are done.
        let position = self.position.load(Acquire);
        let wanted = tagged(generation, position);
        if given >> 32 != u64::from(generation) || given == wanted {
            return None;
        }
        let base = self.asked_last.load(Relaxed);
        let asks = u64::from(low(wanted).wrapping_sub(base)) * LINE >= self.step();
        if asks {
            // First the place, then the request for an acknowledgement: so no reader pairs the new request with an older place.
            self.rode_at.store(end, Relaxed);
        }
        self.given.compare_exchange(given, wanted, AcqRel, Relaxed).ok()?;
        if asks {
            self.asked_last.store(low(wanted), Relaxed);
            self.asked.store(wanted, Release);
        }
        self.offered.store(0, Relaxed);
        Some(position)
    }

    /// Growth of piggybacked credit, bytes, from which on the peer acknowledges it.
    #[inline]
    pub(super) fn step(&self) -> u64 {
        RING_MIN.min(self.ring_max.load(Relaxed)) / 8
    }

    /// The highest credit piggybacked on records of ring `generation`; 0 if receiving is in another one.
    #[inline]
    fn ridden(&self, generation: u32) -> u64 {
        let before = self.generation.load(Acquire);
        let ridden = self.ridden.load(Acquire);
        fence(Acquire);
        let after = self.generation.load(Relaxed);
        if before == generation && after == generation { ridden } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    /// The sender may enter the next ring before the receiver does: credit that it reads from there belongs to the next ring.
    #[test]
    fn credit_of_the_old_ring_never_rides_in_the_new_one() {
        const RINGS: u32 = 20_000;
        let (consumer, seen) = (Consumer::default(), AtomicU32::new(0));
        let mut rode = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for ring in 1..=RINGS {
                    consumer.position.store(1 << 20, Relaxed);
                    consumer.resume(ring, RING_MIN, RING_MIN, 1, 0);
                    while seen.load(Acquire) < ring {
                        core::hint::spin_loop();
                    }
                }
            });
            for ring in 1..=RINGS {
                while consumer.generation.load(Acquire) < ring {
                    rode += u32::from(consumer.ride(ring, LINE).is_some());
                }
                seen.store(ring, Release);
            }
        });
        assert_eq!(rode, 0);
    }
}
