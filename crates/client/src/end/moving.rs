//! A stream whose circuit was lost, or for which the daemon has a shorter path, goes on in the next generation of segments.
//!
//! The first caller that notices does this for all threads and processes that share the end: state of a direction is changed only
//! with that direction's lock held. A call that holds one of the two locks only tries to take the other one, so there is no deadlock.

use super::generations::Member;
use super::{CircuitEnd, Failure, Generation, ResumeError};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_shm::Store;
use crosslane_shm::ring::{Head, Violation};
use crosslane_stream::Direction;
use crosslane_wire::control::ARRIVED_ALL;
use crosslane_wire::local::{STATUS_ALIVE, STATUS_MOVING, status_generation, status_reason};
use crosslane_wire::record::{Kind, units};
use crosslane_wire::segment::{ORDER, RING_MIN, STATE, STATE_ATTACHED};

/// What the status word says about the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitState {
    /// The circuit lives, in the generation with this number.
    Lives(u32),
    /// The circuit is lost, and the daemon looks for another: nothing is sent, and no more records count as received.
    Moving,
    /// The stream is over; what arrived in the generations up to the one with this number counts.
    Dead(u32),
}

impl CircuitState {
    /// What this status word says.
    fn of(word: u32) -> Self {
        match status_reason(word) {
            STATUS_ALIVE => Self::Lives(status_generation(word)),
            STATUS_MOVING => Self::Moving,
            _ => Self::Dead(status_generation(word)),
        }
    }
}

/// Which lock the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockHeld {
    /// Neither lock.
    Nothing,
    /// The lock of sending.
    Sending,
    /// The lock of receiving.
    Receiving,
}

impl CircuitEnd {
    /// Moves on to the newest generation, as far as possible now; usually there is nothing to do.
    #[inline]
    pub fn attend(&self, tid: u32) {
        if !self.is_steady() {
            let _ = self.catch_up(tid, LockHeld::Nothing);
        }
    }

    pub(super) fn circuit_state(&self) -> CircuitState {
        CircuitState::of(self.status.load(Acquire))
    }

    /// Whether more bytes may come on another circuit than the one from which this end receives.
    pub fn is_moving(&self) -> bool {
        if self.is_steady() {
            return false;
        }
        match self.circuit_state() {
            CircuitState::Lives(generation) => self.shared.consumer.generation() != generation,
            CircuitState::Moving => true,
            CircuitState::Dead(_) => false,
        }
    }

    /// Whether a record that was just seen in `rx`, this process's newest ring, counts: the daemon has not yet begun to
    /// count the records that arrived there. Records of a dead circuit count, in its last ring.
    #[inline]
    pub(super) fn counts(&self, rx: &Generation) -> bool {
        self.is_steady()
            || match self.circuit_state() {
                CircuitState::Lives(generation) => generation == rx.number(),
                CircuitState::Moving => false,
                CircuitState::Dead(generation) => generation <= rx.number(),
            }
    }

    /// Fetches the segments that this process lacks, those of a dead circuit too, moves on to them where the old ones are
    /// finished, and sends again what the far end lacks.
    #[cold]
    pub(super) fn catch_up(&self, tid: u32, has: LockHeld) -> Result<(), Failure> {
        let word = self.status.load(Acquire);
        let whole = self.shared.status.reset.load(Relaxed) == 0;
        let state = CircuitState::of(word);
        let lives = whole && matches!(state, CircuitState::Lives(_));
        match state {
            CircuitState::Lives(generation) if whole => self.fetch_segments(generation)?,
            // What arrived before the circuit died is read first, as with the kernel's TCP; if it cannot be had, the end is an error
            // all the same.
            CircuitState::Dead(generation) if whole => drop(self.fetch_up_to(generation)),
            _ => {}
        }
        let receiving = &self.shared.receiving.lock;
        let guard = if has == LockHeld::Receiving { None } else { receiving.try_lock(tid) };
        if guard.is_some() || has == LockHeld::Receiving {
            self.guarded(self.advance_receiving())?;
        }
        if guard.is_some() && self.generations.rx().next().is_some() {
            // A program that only sends must not be delayed by a handshake record that no call reads.
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

    /// Asks the daemon for all segments up to those of `generation`; a stream that cannot have them is broken off.
    pub(super) fn fetch_segments(&self, generation: u32) -> Result<(), Failure> {
        self.fetch_up_to(generation).map_err(|error| match error {
            ResumeError::Reentered => Failure::Reentered,
            ResumeError::Never => {
                self.give_up("no other circuit can be had");
                Failure::Reset
            }
        })
    }

    fn fetch_up_to(&self, generation: u32) -> Result<(), ResumeError> {
        loop {
            let last = self.generations.newest();
            if last.number() >= generation {
                return Ok(());
            }
            let next = self.daemon.next(self.circuit, self.token, last.number())?;
            if next.segments.generation <= last.number() {
                return Err(ResumeError::Never);
            }
            last.append(Member::of(next));
        }
    }

    /// With the lock of receiving: goes on to the next ring once the old one is read up to its limit.
    fn advance_receiving(&self) -> Result<(), Failure> {
        let consumer = &self.shared.consumer;
        let Some(mut rx) = self.generations.find(consumer.generation()) else {
            return self.check_generation(consumer.generation());
        };
        while let Some(next) = rx.next() {
            let (known, told) = (consumer.units(), next.limit);
            // After the end of the far side's direction nothing more comes.
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
            // Bytes that were announced on the old circuit come through the ring of the new one.
            self.shared.zcopy.noted.store(0, Relaxed);
            rx = next;
        }
        self.generations.receive_by(rx);
        Ok(())
    }

    /// With the lock of receiving, when the end is not steady: the record at the front, if it counts.
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
        // The daemons counted the records where they lie, so all that count are in this ring.
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

    /// With the lock of sending: goes on in the newest ring with the bytes that the far end lacks. `undecided` is the
    /// stream offset at which the bytes of the present call begin: that call still has them, and sends them again itself.
    pub(super) fn advance_sending(&self, undecided: Option<u64>) -> Result<(), Failure> {
        let (newest, producer) = (self.generations.newest(), &self.shared.producer);
        if producer.generation() == newest.number() {
            self.generations.send_by(newest);
        } else if let (Some(arrived), true) = (newest.arrived, producer.generation() < newest.number()) {
            // No far program is left to read, so nothing is missing.
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

    /// Called with the lock of a direction that uses ring number `generation`, which this process does not have. It may be an
    /// old ring, or a new one that the daemon has given to another process; a number beyond the status word's is a violation.
    fn check_generation(&self, generation: u32) -> Result<(), Failure> {
        let newest = match self.circuit_state() {
            CircuitState::Lives(newest) => newest.max(self.generations.newest().number()),
            CircuitState::Moving | CircuitState::Dead(_) => return Ok(()),
        };
        if generation > newest { Err(Violation::state("the number of a ring").into()) } else { Ok(()) }
    }

    /// Ends the announcements of the old circuit: their bytes count up to stream offset `arrived`.
    fn resolve_open_at(&self, arrived: u64) {
        let open = self.shared.zcopy.open();
        if open.count() > 0 {
            self.close_open(open.without(self.shared.producer.units().saturating_sub(arrived)));
        }
    }

    /// Begins to send in `newest`, at stream offset `arrived`; the bytes up to `sent` will be sent again.
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

    /// Marks the end as steady for the status word `word` if nothing is left to do: from then on calls look only at the rings.
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

    /// When the end is not steady: whether there is something that a waiting receiver must look at.
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
            CircuitState::Dead(_) => true,
        };
        behind || self.has_record()
    }

    /// Whether an unread record counts; `true` if that cannot be determined.
    fn has_record(&self) -> bool {
        let walk = self.shared.consumer.glance().and_then(|front| self.walk(front));
        walk.is_some_and(|mut walk| !matches!(walk.look(), Ok(None)))
    }

    /// As `has_record`, for payload; does not wait for a lock.
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
