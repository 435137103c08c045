//! Checked copies of the two states of a ring, for the daemon's engine, which sends or receives in place of a program: it
//! copies the state out of memory that the program can write, works on the copy, and stores the result back.

use super::producer::GROW_REQUESTED;
use super::{Consumer, Producer};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::fence;
use crosslane_wire::record::{FLAG_GROW, Header, Kind, is_open, mark};
use crosslane_wire::segment::{LINE, RING_MIN};

impl Consumer {
    /// A checked copy of this state, which another process may have overwritten. `None` if the state cannot belong to
    /// ring number `generation` with at most `ring_max` bytes and this key, if a thread is changing it, or if the next
    /// bytes of the stream are not payload of a closed Data record. The copy never leads to memory outside such a ring.
    pub fn checked(&self, generation: u32, ring_max: u64, key: u64) -> Option<Self> {
        let cursor = self.glance()?.checked(ring_max, key)?;
        let (word, taken) = (self.word.load(Relaxed), self.taken.load(Relaxed));
        let (ridden, answered) = (self.ridden.load(Relaxed), self.answered.load(Relaxed));
        let elsewhere = self.elsewhere() | self.announced.load(Relaxed);
        if cursor.generation != generation || answered > ridden || cursor.units > u64::MAX / 4 {
            return None;
        }
        let begun_ok = if word == 0 {
            taken == 0
        } else {
            let header = Header::from_word(word, cursor.cap - cursor.offset).ok()?;
            let grows = header.flags & FLAG_GROW != 0;
            header.kind == Kind::Data && taken <= header.len.into() && !(grows && cursor.cap * 2 > ring_max)
        };
        if elsewhere != 0 || !begun_ok || is_open(word) {
            return None;
        }
        let copy = Self::default();
        copy.resume(generation, cursor.cap, ring_max, key, cursor.units);
        for (to, value) in [
            (&copy.position, cursor.position),
            (&copy.offset, cursor.offset),
            (&copy.word, word),
            (&copy.taken, taken),
            (&copy.ridden, ridden),
            (&copy.answered, answered),
            (&copy.expected, mark(key, cursor.position)),
        ] {
            to.store(value, Relaxed);
        }
        copy.heed(self);
        Some(copy)
    }

    /// Loads again from `of`, the state that this is a copy of, how much credit was given: the sender of the other
    /// direction may have piggybacked credit since [`Self::checked`].
    pub fn heed(&self, of: &Self) {
        self.given.store(of.given.load(Acquire), Relaxed);
        self.seen_given.store(self.given(), Relaxed);
    }

    /// Stores what has changed since [`Self::checked`] into `to`, the state that this is a copy of. Credit is left out, since
    /// the sender of the other direction may be changing it: call [`Self::give_credit`] of `to` after this.
    pub fn publish(&self, to: &Self) {
        to.expected.store(0, Relaxed);
        fence(Release);
        let words = [
            (&self.position, &to.position),
            (&self.cap, &to.cap),
            (&self.units, &to.units),
            (&self.word, &to.word),
            (&self.taken, &to.taken),
            (&self.ridden, &to.ridden),
            (&self.answered, &to.answered),
        ];
        for (from, to) in words {
            to.store(from.load(Relaxed), Relaxed);
        }
        if self.offered.load(Relaxed) != 0 {
            to.offer();
        }
        to.offset.store(self.offset.load(Relaxed), Release);
        to.expected.store(self.expected.load(Relaxed), Release);
    }
}

impl Producer {
    /// A checked copy of this state, which another process may have overwritten. `None` if the state cannot belong to
    /// ring number `generation` with at most `ring_max` bytes and this key, or if its last record is open. The copy never
    /// leads to memory outside such a ring.
    pub fn checked(&self, generation: u32, ring_max: u64, key: u64) -> Option<Self> {
        let word = |word: &AtomicU64| word.load(Relaxed);
        let (position, offset, cap) = (word(&self.position), word(&self.offset), word(&self.cap));
        let (credit, barrier, units) = (word(&self.credit), word(&self.barrier), word(&self.units));
        let stored = word(&self.stored);
        let limit = word(&self.ring_max);
        let limit_ok = limit.is_power_of_two() && cap <= limit && limit <= ring_max;
        let cap_ok = cap.is_power_of_two() && cap >= RING_MIN.min(ring_max);
        let place_ok = offset < cap && offset.is_multiple_of(LINE) && position < u64::MAX / 4;
        let past_ok = [credit, stored, barrier].iter().all(|&past| past <= position) && units < u64::MAX / 4;
        let is_open = word(&self.open) != 0;
        if !(limit_ok && cap_ok && place_ok && past_ok) || is_open || self.generation() != generation {
            return None;
        }
        let copy = Self::default();
        copy.resume(generation, cap, limit, key, units);
        for (to, value) in [
            (&copy.position, position),
            (&copy.offset, offset),
            (&copy.credit, credit),
            (&copy.stored, stored),
            (&copy.barrier, barrier),
        ] {
            to.store(value, Relaxed);
        }
        copy.demand.store(self.demand.load(Relaxed).min(GROW_REQUESTED), Relaxed);
        copy.stamping.store(self.stamping.load(Relaxed), Relaxed);
        Some(copy)
    }

    /// Stores what has changed since [`Self::checked`] into `to`, the state that this is a copy of.
    pub fn publish(&self, to: &Self) {
        let words = [
            (&self.cap, &to.cap),
            (&self.credit, &to.credit),
            (&self.stored, &to.stored),
            (&self.barrier, &to.barrier),
            (&self.units, &to.units),
        ];
        for (from, to) in words {
            to.store(from.load(Relaxed), Relaxed);
        }
        to.demand.store(self.demand.load(Relaxed), Relaxed);
        to.position.store(self.position(), Release);
        to.offset.store(self.offset.load(Relaxed), Relaxed);
    }
}
