//! Retransmission: sent bytes that have not landed are kept, and sent again on the circuit on which the stream goes on.

use super::moving::{CircuitState, LockHeld};
use super::{CircuitEnd, Failure, Generation};
use crate::segments::Retention;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_stream::Direction;
use crosslane_wire::record::{Kind, MAX_PAYLOAD};
use crosslane_wire::segment::LINE;
use std::time::{Duration, Instant};

/// How long a call that cannot know whether its bytes count waits for the circuit to move.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a close waits for a stream that is moving.
const CLOSE_WAIT: Duration = Duration::from_millis(200);
/// First pause between two looks of a thread that waits for a move, which usually takes about a millisecond.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest of these pauses, each of which is twice the one before.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

impl CircuitEnd {
    /// Stream offset up to which bytes were sent, or wait to be sent again.
    pub(super) fn sent(&self) -> u64 {
        self.shared.producer.units().max(self.shared.kept.owed.load(Relaxed))
    }

    /// Whether units of an earlier ring must still be sent again.
    pub(super) fn owes(&self) -> bool {
        self.shared.producer.units() < self.shared.kept.owed.load(Relaxed)
    }

    /// After [`Self::end_sending`]: whether the end record lies in the ring that the far side reads, so that the kernel's FIN may
    /// follow. A FIN without that record tells the far side that this program has died, and the far side then discards what it sends.
    pub fn fin_may_go(&self) -> bool {
        !self.is_ending() && self.is_sent()
    }

    /// Whether all sent bytes lie in the ring that the far side reads, or never can.
    fn is_sent(&self) -> bool {
        let is_there = match self.circuit_state() {
            CircuitState::Lives(generation) => {
                self.shared.producer.generation() == generation && !self.owes()
            }
            CircuitState::Moving => false,
            CircuitState::Dead(_) => true,
        };
        is_there || self.shared.status.reset.load(Relaxed) != 0
    }

    /// Waits, 200 ms at most, until all sent bytes lie in the ring that the far side reads. Called before the socket is
    /// closed, which sends the FIN.
    pub fn await_sent(&self, tid: u32) {
        let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
        while !self.is_sent() && start.elapsed() < CLOSE_WAIT {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.attend(tid);
        }
    }

    /// Whether there is room to send some of these units again.
    pub(super) fn can_resend(&self) -> bool {
        let tx = self.generations.newest();
        self.shared.producer.glance(&self.credits(tx), 2 * LINE) >= 2 * LINE
    }

    /// With the lock of sending, when the end is not steady: whether new bytes may be sent now. An error if they never may.
    #[cold]
    pub(super) fn may_go_on(&self, tid: u32, has: LockHeld) -> Result<bool, Failure> {
        if self.dead().is_some() {
            return Err(Failure::Reset);
        }
        self.catch_up(tid, has)?;
        let (tx, producer) = (self.generations.tx(), &self.shared.producer);
        let goes =
            self.circuit_state() == CircuitState::Lives(tx.number()) && producer.generation() == tx.number();
        Ok(goes && !self.owes())
    }

    /// The kind of the record that contains unit `unit`; `sent` is the offset behind the last unit.
    fn kind_of(&self, unit: u64, sent: u64) -> Kind {
        let is_last = unit.checked_add(1) == Some(sent);
        match self.tx() {
            _ if unit == 0 => self.side.handshake(),
            Direction::Ended if is_last => Kind::DisConn,
            Direction::Tcp if is_last => Kind::Downgrade,
            Direction::Aborted if is_last => Kind::AbortConn,
            _ => Kind::Data,
        }
    }

    /// Stream offset at which the payload ends, before a control record at `sent`.
    fn payload_end(&self, sent: u64) -> u64 {
        let turned = !matches!(self.tx(), Direction::Open | Direction::Handshake);
        sent - u64::from(turned && sent > 0)
    }

    /// Whether all payload of the units from `from` up to `sent` is kept.
    pub(super) fn is_kept(&self, from: u64, sent: u64) -> bool {
        let (begin, end) = (from.max(1), self.payload_end(sent));
        let is_kept =
            self.shared.kept.from.load(Relaxed) <= begin && end <= self.shared.kept.to.load(Relaxed);
        begin >= end || (is_kept && self.retention().is_some())
    }

    /// The retention ring, the same for all generations; generations from before the stream needed one have none.
    fn retention(&self) -> Option<&Retention> {
        self.generations.all().find_map(|generation| generation.segments.retention.as_ref())
    }

    /// With the lock of sending: sends again what the far end lacks, as far as there is room in `tx`.
    pub(super) fn resend(&self, tx: &Generation) -> Result<(), Failure> {
        let before = self.shared.producer.units();
        while self.owes() {
            if self.resend_some(tx)? == 0 {
                // Grow at once: this call does not wait for the reader.
                if !self.shared.producer.can_grow() {
                    break;
                }
                self.shared.producer.request_grow();
            }
        }
        if self.shared.producer.units() > before {
            self.wake_by_daemon(self.data_waiter(tx));
        }
        Ok(())
    }

    /// Sends the next record again; returns how many units it has.
    fn resend_some(&self, tx: &Generation) -> Result<u64, Failure> {
        let (producer, segments) = (&self.shared.producer, &tx.segments);
        let (ring, credits) = (&segments.outbound, &self.credits(tx));
        let (unit, sent) = (producer.units(), self.shared.kept.owed.load(Relaxed));
        let kind = self.kind_of(unit, sent);
        if kind != Kind::Data {
            return Ok(u64::from(producer.push_control(ring, credits, kind, 0)?));
        }
        let Some(kept) = self.retention() else {
            return Err(Failure::Discontinued { told: unit, known: sent });
        };
        if !self.is_kept(unit, sent) {
            return Err(Failure::Discontinued { told: unit, known: sent });
        }
        let len = self.payload_end(sent).saturating_sub(unit).min(MAX_PAYLOAD);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let count = kept.copy(self.keeping_cap()?, unit, &mut bytes);
        Ok(producer.push(ring, credits, Kind::Data, &bytes[..count], 0)? as u64)
    }

    /// With the lock of sending: the circuit changed while units from `begin` on were pushed into `tx`. Waits until it is
    /// known how many of them have arrived or are kept, and returns that number.
    #[cold]
    pub(super) fn decide(&self, tid: u32, tx: &Generation, begin: u64) -> Result<u64, Failure> {
        let pushed = self.shared.producer.units().saturating_sub(begin);
        if tx.segments.keeping().is_some() {
            self.catch_up(tid, LockHeld::Sending)?;
            return Ok(pushed);
        }
        let Some(arrived) = self.await_next(tx)? else { return Ok(pushed) };
        self.guarded(self.advance_sending(Some(begin)))?;
        self.catch_up(tid, LockHeld::Sending)?;
        Ok(arrived.saturating_sub(begin).min(pushed))
    }

    /// Waits for the segments after `tx` on which sending goes on, and returns the stream offset that arrived before;
    /// `None` if the circuit died, or lives on unchanged.
    pub(super) fn await_next(&self, tx: &Generation) -> Result<Option<u64>, Failure> {
        let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
        while start.elapsed() < MOVE_TIMEOUT && self.shared.status.reset.load(Relaxed) == 0 {
            match self.circuit_state() {
                CircuitState::Dead(_) => return Ok(None),
                CircuitState::Lives(generation) if generation == tx.number() => return Ok(None),
                CircuitState::Lives(generation) => {
                    // In a signal handler that interrupted a request, no thread can wait for the answer.
                    if self.fetch_segments(generation).is_err() {
                        break;
                    }
                    if let Some(arrived) = self.generations.newest().arrived {
                        return Ok(Some(arrived));
                    }
                }
                CircuitState::Moving => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.give_up("the stream moves for too long");
        Err(Failure::Reset)
    }
}
