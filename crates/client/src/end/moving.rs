//! A stream whose circuit was lost, or that found a shorter way, goes on in the next generation of segments.
//!
//! Whoever comes first does it, for all threads and processes that share the end: what is shared changes with the lock of
//! its direction held. A call that has one of the two locks only tries to get the other one, so nobody waits in a circle.

use super::generations::Member;
use super::{End, Failure, Generation, ResumeError};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_shm::Store;
use crosslane_shm::ring::{Head, Violation};
use crosslane_stream::Direction;
use crosslane_wire::control::ARRIVED_ALL;
use crosslane_wire::local::{STATUS_ALIVE, STATUS_MOVING, status_generation, status_reason};
use crosslane_wire::record::{Kind, units};
use crosslane_wire::segment::{ORDER, RING_MIN, STATE, STATE_ATTACHED};

/// What the daemon says of the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitState {
    /// It lives, in the generation with this number.
    Lives(u32),
    /// It is lost, and another is sought: nothing is sent and nothing more counts as received now.
    Moving,
    /// It is over.
    Dead,
}

/// Which lock the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockHeld {
    /// None.
    Nothing,
    /// That of sending.
    Sending,
    /// That of receiving.
    Receiving,
}

impl End {
    /// Goes on in the newest generation, as far as that is possible now; nothing at all to do as a rule.
    #[inline]
    pub fn attend(&self, tid: u32) {
        if !self.is_steady() {
            let _ = self.catch_up(tid, LockHeld::Nothing);
        }
    }

    pub(super) fn circuit_state(&self) -> CircuitState {
        let word = self.status.load(Acquire);
        match status_reason(word) {
            STATUS_ALIVE => CircuitState::Lives(status_generation(word)),
            STATUS_MOVING => CircuitState::Moving,
            _ => CircuitState::Dead,
        }
    }

    /// Whether more may come for the receiver by another circuit than the one that it reads from.
    pub fn is_moving(&self) -> bool {
        if self.is_steady() {
            return false;
        }
        match self.circuit_state() {
            CircuitState::Lives(generation) => self.shared.consumer.generation() != generation,
            CircuitState::Moving => true,
            CircuitState::Dead => false,
        }
    }

    /// Whether a record that was just seen in the newest ring `rx` of this process counts: the daemon has not begun to
    /// count what arrived there before. A dead circuit's bytes count.
    #[inline]
    pub(super) fn counts(&self, rx: &Generation) -> bool {
        self.is_steady()
            || match self.circuit_state() {
                CircuitState::Lives(generation) => generation == rx.number(),
                CircuitState::Moving => false,
                CircuitState::Dead => true,
            }
    }

    /// Gets the segments that this process lacks, moves on to them where the old ones are done with, and sends again what
    /// the far end lacks.
    #[cold]
    pub(super) fn catch_up(&self, tid: u32, has: LockHeld) -> Result<(), Failure> {
        let word = self.status.load(Acquire);
        let lives = status_reason(word) == STATUS_ALIVE && self.shared.status.reset.load(Relaxed) == 0;
        if lives {
            self.fetch_segments(status_generation(word))?;
        }
        let receiving = &self.shared.receiving.lock;
        let guard = if has == LockHeld::Receiving { None } else { receiving.try_lock(tid) };
        if guard.is_some() || has == LockHeld::Receiving {
            self.guarded(self.advance_receiving())?;
        }
        if guard.is_some() && self.generations.rx().next().is_some() {
            // A program that only sends is not to be held up by a handshake that nobody reads.
            let _ = self.process_control(tid);
        }
        drop(guard);
        if !lives {
            return Ok(());
        }
        let guard = if has == LockHeld::Sending { None } else { self.try_lock_sending(tid) };
        if guard.is_some() || has == LockHeld::Sending {
            self.guarded(self.advance_sending(None))?;
        }
        drop(guard);
        self.conclude(word);
        Ok(())
    }

    /// Asks the daemon for all segments up to those of `generation`.
    pub(super) fn fetch_segments(&self, generation: u32) -> Result<(), Failure> {
        loop {
            let last = self.generations.newest();
            if last.number() >= generation {
                return Ok(());
            }
            let answer = self.daemon.next(self.circuit, self.token, last.number());
            match answer {
                Ok(next) if next.segments.generation > last.number() => drop(last.append(Member::of(next))),
                Err(ResumeError::Reentered) => return Err(Failure::Reentered),
                Ok(_) | Err(ResumeError::Never) => {
                    self.give_up("no other circuit can be had");
                    return Err(Failure::Reset);
                }
            }
        }
    }

    /// With the lock of receiving: goes on to the next ring where the old one is read up to its limit.
    fn advance_receiving(&self) -> Result<(), Failure> {
        let consumer = &self.shared.consumer;
        let Some(mut rx) = self.generations.find(consumer.generation()) else {
            return self.check_generation(consumer.generation());
        };
        while let Some(next) = rx.next() {
            let (known, told) = (consumer.units(), next.limit);
            // Behind the end of its direction nothing more comes.
            if matches!(self.rx(), Direction::Open | Direction::Handshake) {
                if known < told {
                    break;
                }
                if known > told {
                    return Err(Failure::Discontinued { told, known });
                }
            }
            let segments = &next.segments;
            let (cap, max) = (RING_MIN.min(segments.ring_max), segments.ring_max);
            self.shared.receiving.rung.store(0, Relaxed);
            consumer.resume(segments.generation, cap, max, segments.rx_key, told);
            // What was announced by the old circuit comes by the ring of the new one.
            self.shared.zcopy.noted.store(0, Relaxed);
            rx = next;
        }
        self.generations.receive_by(rx);
        Ok(())
    }

    /// With the lock of receiving, when not all is settled: the record at the front, if it counts.
    #[cold]
    pub(super) fn front(&self, tid: u32) -> Result<Option<Head>, Failure> {
        self.catch_up(tid, LockHeld::Receiving)?;
        let (rx, consumer) = (self.generations.rx(), &self.shared.consumer);
        if consumer.generation() != rx.number() {
            return Ok(None);
        }
        let ring = &rx.segments.inbound;
        let Some(next) = rx.next() else {
            return Ok(consumer.head_if(ring, || consumer.is_begun() || self.counts(rx))?);
        };
        // All that counts lies here: it was counted where it lies.
        consumer.head(ring)?;
        consumer.clip(next.limit)?;
        let head = consumer.head(ring)?;
        let left = |head: Head| {
            let len = u32::try_from(head.left).unwrap_or(u32::MAX);
            units(head.kind, len.saturating_add(head.kind.prefix()))
        };
        let known = consumer.units().saturating_add(head.map_or(0, left));
        if head.is_none() && self.lies_untaken() {
            return Ok(None);
        }
        if head.is_none() || known > next.limit {
            return Err(Failure::Discontinued { told: next.limit, known });
        }
        Ok(head)
    }

    /// With the lock of sending: goes on in the newest ring with the units that the far end lacks. `undecided` is where
    /// the units of a call begin that has its bytes at hand and sees to them itself.
    pub(super) fn advance_sending(&self, undecided: Option<u64>) -> Result<(), Failure> {
        let (newest, producer) = (self.generations.newest(), &self.shared.producer);
        if producer.generation() == newest.number() {
            self.generations.send_by(newest);
        } else if let (Some(arrived), true) = (newest.arrived, producer.generation() < newest.number()) {
            // With nobody left to read, nothing is missing.
            let arrived = if arrived == ARRIVED_ALL { producer.units() } else { arrived };
            self.resolve_open_at(arrived);
            let sent = match undecided {
                Some(begin) => arrived.min(producer.units()).max(begin),
                None => self.sent(),
            };
            self.send_from(newest, arrived, sent)?;
        } else {
            return self.check_generation(producer.generation());
        }
        self.resend(newest)
    }

    /// With the lock of a direction: that goes by ring number `generation`, which this process does not have. It may be an old
    /// one, or a new one of which the daemon has told somebody else; it is none of which nobody was told.
    fn check_generation(&self, generation: u32) -> Result<(), Failure> {
        let newest = match self.circuit_state() {
            CircuitState::Lives(newest) => newest.max(self.generations.newest().number()),
            CircuitState::Moving | CircuitState::Dead => return Ok(()),
        };
        if generation > newest { Err(Violation::state("the number of a ring").into()) } else { Ok(()) }
    }

    /// What was announced by the old circuit counts up to the unit `arrived`.
    fn resolve_open_at(&self, arrived: u64) {
        let open = self.shared.zcopy.open();
        if open.count() > 0 {
            self.close_open(open.without(self.shared.producer.units().saturating_sub(arrived)));
        }
    }

    /// Begins to send in `newest`, with the unit `arrived`; all before `sent` will be sent again.
    fn send_from(&self, newest: &Generation, arrived: u64, sent: u64) -> Result<(), Failure> {
        let (sending, producer, segments) = (&self.shared.sending, &self.shared.producer, &newest.segments);
        if arrived > producer.units() || !self.is_kept(arrived, sent) {
            return Err(Failure::Discontinued { told: arrived, known: producer.units() });
        }
        segments.outbound.store_u32(ORDER, self.shared.receiving.order.load(Relaxed));
        segments.outbound.store_u32(STATE, STATE_ATTACHED);
        sending.rung.store(0, Relaxed);
        self.shared.kept.owed.store(sent, Relaxed);
        self.shared.zcopy.off.store(0, Relaxed);
        sending.acked.store(arrived, Relaxed);
        sending.base.store(arrived, Relaxed);
        let (cap, max) = (RING_MIN.min(segments.ring_max), segments.ring_max);
        producer.resume(segments.generation, cap, max, segments.tx_key, arrived);
        self.apply_limit(max);
        self.generations.send_by(newest);
        Ok(())
    }

    /// If nothing is left to do for the circuit's word `word`, the rings are all that is looked at from here on.
    fn conclude(&self, word: u32) {
        let newest = self.generations.newest();
        let (consumer, producer) = (&self.shared.consumer, &self.shared.producer);
        let all_there = newest.word() == word
            && consumer.generation() == newest.number()
            && producer.generation() == newest.number();
        if all_there && !self.owes() {
            self.generations.receive_by(newest);
            self.generations.send_by(newest);
            self.generations.mark_steady(word);
        }
    }

    /// When not all is settled: whether there is something that a waiting receiver must look at.
    #[cold]
    pub(super) fn maybe_readable_meanwhile(&self) -> bool {
        let newest = self.generations.newest();
        let behind = match self.circuit_state() {
            CircuitState::Lives(generation) => {
                newest.number() != generation
                    || self.shared.producer.generation() != generation
                    || (self.owes() && self.can_resend())
            }
            CircuitState::Moving => false,
            CircuitState::Dead => true,
        };
        behind || self.has_record()
    }

    /// Whether a record lies unread that counts. If that cannot be told, it is worth a look.
    fn has_record(&self) -> bool {
        let walk = self.shared.consumer.glance().and_then(|front| self.walk(front));
        walk.is_some_and(|mut walk| !matches!(walk.look(), Ok(None)))
    }

    /// The same for payload; takes no lock by force.
    #[cold]
    pub(super) fn has_data_meanwhile(&self, tid: u32) -> bool {
        let _ = self.catch_up(tid, LockHeld::Nothing);
        if let Some(_guard) = self.shared.receiving.lock.try_lock(tid) {
            return !matches!(self.process_control(tid), Ok(false));
        }
        let Some(mut walk) = self.shared.consumer.glance().and_then(|front| self.walk(front)) else {
            return false;
        };
        while let Ok(Some(header)) = walk.look() {
            if header.kind != Kind::Filler {
                return header.kind.has_bytes();
            }
            walk.pass(header);
        }
        false
    }
}
