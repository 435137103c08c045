//! Sending.

use super::moving::LockHeld;
use super::order::PIECE;
use super::{CircuitEnd, Failure, Generation, Transferred, add, note};
use crate::shared::UNHEARD;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crosslane_shm::Load;
use crosslane_shm::guarded::{self, Fault};
use crosslane_shm::lock::{forget_busy, let_settle};
use crosslane_shm::ring::{Gather, Source};
use crosslane_stream::{Direction, handle_send};
use crosslane_wire::WaiterId;
use crosslane_wire::local::Request;
use crosslane_wire::record::{Kind, MAX_PAYLOAD};
use crosslane_wire::segment::{ORDER, RING_MIN};
use std::io::IoSlice;

/// Bytes that the kernel's TCP copies at a time: of a buffer that ends in an unmapped page it sends a multiple of this, or nothing.
pub(super) const KERNEL_PIECE: usize = 32 * 1024;
/// A send of this many bytes or more first looks whether the far side offers memory, bytes.
const WORTH_A_LOOK: usize = 4096;
/// Most bytes that one call counts as sent to a far end that is gone: as many as the kernel takes from a program before
/// the far side's answer to the first of them arrives.
const UNHEARD_MAX: usize = 512 * 1024;

impl CircuitEnd {
    /// Applies the program's `SO_SNDBUF`: about `bytes` may be under way, so the ring does not grow beyond that, nor is
    /// it limited below its first size.
    pub fn limit_sending(&self, bytes: u64) {
        self.shared.sending.limit.store(bytes.max(1), Relaxed);
        self.apply_limit(self.generations.tx().segments.ring_max);
    }

    /// Applies the limit to a ring of at most `ring_max` bytes.
    pub(super) fn apply_limit(&self, ring_max: u64) {
        let limit = self.shared.sending.limit.load(Relaxed);
        if limit > 0 {
            let wanted = limit.clamp(RING_MIN.min(ring_max), ring_max).next_power_of_two();
            self.shared.producer.limit(wanted);
        }
    }

    /// Copies as many bytes of `buffers`, from their byte `skip` on, as there is room for. If some are left, the ring may
    /// still be made longer: see [`Self::can_grow`].
    pub fn try_send(&self, tid: u32, buffers: &[IoSlice<'_>], skip: usize) -> Result<Transferred, Failure> {
        let (sending, wanted) = (&self.shared.sending, total(buffers) - skip);
        if wanted >= WORTH_A_LOOK && self.allows_zero_copy() && self.is_steady() && self.has_arrived() {
            // The records that have arrived may offer memory for these bytes (SinkAvail).
            self.refresh(tid);
        }
        if self.is_ending() {
            // Fails without waiting for the lock.
            self.may_send(Kind::Data)?;
        }
        let Transferred { bytes, wake } = if wanted <= PIECE {
            let _guard = self.lock_sending(tid)?;
            self.send_piece(tid, buffers, skip, wanted)?
        } else {
            self.send_pieces(tid, buffers, skip, wanted)?
        };
        if bytes < wanted {
            if !self.can_grow() {
                note(&sending.blocked);
            }
            if bytes == 0 {
                return Err(Failure::WouldBlock);
            }
        }
        Ok(Transferred { bytes, wake })
    }

    /// With the lock of sending: sends at most [`PIECE`] of the next `wanted` bytes, as far as there is room. Memory that
    /// the far side offers and the daemon's engine may take more than [`PIECE`].
    #[inline(always)]
    pub(super) fn send_piece(
        &self,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
        wanted: usize,
    ) -> Result<Transferred, Failure> {
        self.may_send(Kind::Data)?;
        let goes_on = self.is_steady() || self.may_go_on(tid, LockHeld::Sending)?;
        if !(goes_on && self.take_back_open(tid)?) {
            note(&self.shared.sending.blocked);
            return Err(Failure::WouldBlock);
        }
        if self.gone() {
            return Err(self.send_to_nobody(buffers, skip, wanted));
        }
        let most = wanted.min(PIECE);
        let (written, first) = self.guarded(self.write_offered(tid, buffers, skip))?.unwrap_or((0, None));
        let (pushed, wake) = if written < most {
            self.guarded(self.push_surely(tid, buffers, skip + written, most - written))?
        } else {
            (0, None)
        };
        add(&self.shared.counters.tx_bytes, written + pushed);
        Ok(Transferred { bytes: written + pushed, wake: wake.or(first) })
    }

    /// Sends one piece after the other, and releases the lock in between. Bytes that were sent count, whatever fails later.
    #[inline(never)]
    fn send_pieces(
        &self,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
        wanted: usize,
    ) -> Result<Transferred, Failure> {
        let _order =
            self.orders.sending.lock_soon(tid).inspect_err(|_| note(&self.shared.sending.blocked))?;
        let mut all = Transferred { bytes: 0, wake: None };
        while all.bytes < wanted {
            let left = wanted - all.bytes;
            let guard = self.lock_sending_on(tid).map_err(Failure::from);
            match guard.and_then(|_guard| self.send_piece(tid, buffers, skip + all.bytes, left)) {
                Ok(Transferred { bytes, wake }) => {
                    all = Transferred { bytes: all.bytes + bytes, wake: wake.or(all.wake) };
                    if bytes < left.min(PIECE) {
                        break;
                    }
                }
                Err(failure) if all.bytes == 0 || failure.is_violation() => return Err(failure),
                Err(_) => {
                    forget_busy();
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Ends the direction (`DisConn`). If another process keeps the lock, [`Self::is_ending`] is true until the holder
    /// releases it and sends the record; for the program the direction has ended at once.
    ///
    /// # Errors
    /// [`Failure::WouldBlock`]: not yet. Others: the direction cannot end any more.
    pub fn end_sending(&self, tid: u32) -> Result<Transferred, Failure> {
        self.wake_surely();
        let outcome = self.send_control(tid, Kind::DisConn);
        let ending = &self.shared.sending.ending;
        if !matches!(outcome, Err(Failure::WouldBlock | Failure::Reentered)) {
            ending.store(0, Relaxed);
        } else if self.tx() == Direction::Open && ending.swap(1, SeqCst) == 0 {
            // The thread that released the lock just now may not have seen `ending`.
            let_settle();
            self.end_as_told(tid);
            return if self.is_ending() { outcome } else { Ok(Transferred { bytes: 0, wake: None }) };
        }
        outcome
    }

    /// [`Self::end_sending`] for another caller that had asked while this thread held the lock. If yet another thread
    /// holds the lock by now, that thread does it.
    #[cold]
    pub(super) fn end_as_told(&self, tid: u32) {
        let Some(_guard) = self.try_lock_sending(tid) else { return };
        self.wake_surely();
        let wake = match self.turn_now(tid, Kind::DisConn) {
            Err(Failure::WouldBlock | Failure::Reentered) => return,
            outcome => outcome.ok().and_then(|moved| moved.wake),
        };
        self.wake_by_daemon(wake);
        self.shared.sending.ending.store(0, Relaxed);
    }

    /// Makes the next record wake the far side's sleeper even if it is noted as woken: the thread that noted this may
    /// have been killed before the wake.
    fn wake_surely(&self) {
        self.shared.sending.rung.store(0, Relaxed);
    }

    /// Sends a record without payload that changes the state of the direction: `DisConn`, `Downgrade`, `AbortConn`. While
    /// the stream is between two circuits the record is only noted, and is sent after the bytes that are sent again.
    pub fn send_control(&self, tid: u32, kind: Kind) -> Result<Transferred, Failure> {
        let _guard = self.lock_sending(tid).inspect_err(|_| forget_busy())?;
        self.turn_now(tid, kind)
    }

    /// As [`Self::send_control`], with the lock of sending held.
    fn turn_now(&self, tid: u32, kind: Kind) -> Result<Transferred, Failure> {
        let next = self.may_send(kind)?;
        let goes_on = self.is_steady() || self.may_go_on(tid, LockHeld::Sending)?;
        if !self.take_back_open(tid)? {
            return Err(Failure::WouldBlock);
        }
        let (tx, sent) = (self.generations.tx(), self.sent());
        let mut wake = None;
        if goes_on {
            self.stamp(tx);
            let (ring, credits) = (&tx.segments.outbound, self.credits(tx));
            let pushed = self.shared.producer.push_control(ring, &credits, kind, 0).map_err(Failure::from);
            if !self.guarded(pushed)? {
                return Err(Failure::WouldBlock);
            }
            wake = self.data_waiter(tx);
        }
        self.shared.status.tx.store(next as u32, Relaxed);
        self.shared.kept.turn.store(kind as u32, Relaxed);
        if !goes_on || self.has_moved(tx) {
            self.shared.kept.owed.store(sent.saturating_add(1), Relaxed);
            self.catch_up(tid, LockHeld::Sending)?;
        }
        Ok(Transferred { bytes: 0, wake })
    }

    /// Whether the last send found the ring full and the ring can be made longer. A sender should first wait shortly for
    /// [`Self::has_credit`], so that both ends stay in their caches, and then call [`Self::request_grow`].
    pub fn can_grow(&self) -> bool {
        self.shared.producer.can_grow() || self.may_outgrow()
    }

    /// Doubles the ring at the next send that finds it full; if it is as long as its segment, asks the daemon for a
    /// longer segment, to which the stream moves about a millisecond later.
    pub fn request_grow(&self) {
        let (sending, tx) = (&self.shared.sending, self.generations.tx());
        if self.shared.producer.may_grow() {
            self.shared.producer.request_grow();
        } else if sending.outgrown.swap(tx.number() + 1, Relaxed) != tx.number() + 1 {
            // The ring is as long as its segment: the daemon may move the stream to a longer one.
            let (circuit, token, generation) = (self.circuit, self.token, tx.number());
            self.daemon.tell(&Request::Grow { circuit, token, generation });
        }
    }

    /// Whether the last send found the ring full although it is as long as its segment, and no longer segment was requested yet.
    fn may_outgrow(&self) -> bool {
        let (sending, tx) = (&self.shared.sending, self.generations.tx());
        let (ring_max, limit) = (tx.segments.ring_max, sending.limit.load(Relaxed));
        tx.segments.way.grows
            && self.shared.producer.was_full_at(ring_max)
            && (limit == 0 || limit > ring_max)
            && sending.outgrown.load(Relaxed) != tx.number() + 1
            && self.is_steady()
    }

    /// Whether a quarter of the ring in use is free, and a quarter of the retention ring.
    pub fn has_credit(&self) -> bool {
        let wanted = self.shared.producer.cap() / 4;
        self.shared.producer.glance(&self.credits(self.generations.tx()), wanted) >= wanted && self.can_keep()
    }

    /// Bytes of ring for which the far side has given no credit, and bytes that wait to be sent again (roughly `SIOCOUTQ`).
    pub fn unconfirmed(&self) -> u64 {
        let producer = &self.shared.producer;
        let owed = self.sent().saturating_sub(producer.units());
        producer.unconfirmed(&self.credits(self.generations.tx())).unwrap_or(0).saturating_add(owed)
    }

    /// Send to a far end that is gone, as TCP does it: the first call succeeds and is answered by a reset, later ones
    /// fail. It counts at most [`UNHEARD_MAX`] bytes as sent. Memory that is not mapped is a fault here too.
    pub(super) fn send_to_nobody(&self, buffers: &[IoSlice<'_>], skip: usize, bytes: usize) -> Failure {
        if self.shared.status.unheard.load(Relaxed) == 0 && !are_there(buffers, skip, bytes.min(UNHEARD_MAX))
        {
            return Failure::Fault;
        }
        let unheard = &self.shared.status.unheard;
        let before = if bytes == 0 { unheard.load(Relaxed) } else { unheard.swap(UNHEARD, Relaxed) };
        if before == 0 { Failure::Unheard(bytes.min(UNHEARD_MAX)) } else { Failure::Ended }
    }

    /// Puts time stamps on records if the far side's `ORDER` word asks for them.
    #[inline]
    pub(super) fn stamp(&self, tx: &Generation) {
        self.shared.producer.stamp(tx.segments.inbound.load_u32(ORDER) != 0);
    }

    /// Whether the circuit has changed since `tx` was its newest generation. Call this after a full fence: then either
    /// the daemon counts the records that were pushed before, or this returns `true`.
    #[inline]
    pub(super) fn has_moved(&self, tx: &Generation) -> bool {
        self.status.load(Acquire) != tx.word()
    }

    pub(super) fn may_send(&self, kind: Kind) -> Result<Direction, Failure> {
        if self.shared.status.reset.load(Relaxed) != 0 {
            return Err(Failure::Reset);
        }
        if self.is_ending() && kind != Kind::DisConn {
            return Err(Failure::Ended);
        }
        let state = self.tx();
        handle_send(state, kind).ok_or(match state {
            Direction::Tcp => Failure::Tcp,
            _ => Failure::Ended,
        })
    }

    /// Pushes as many bytes as there is room for. If the circuit moves meanwhile, the bytes that did not arrive are
    /// pushed into the next ring.
    #[inline(always)]
    fn push_surely(
        &self,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
        most: usize,
    ) -> Result<(usize, Option<WaiterId>), Failure> {
        let mut done = 0;
        loop {
            let (tx, begin) = (self.generations.tx(), self.shared.producer.units());
            self.stamp(tx);
            let pushed = match self.push_all(tid, tx, buffers, skip + done, most.saturating_sub(done)) {
                Err(Failure::Fault) if done > 0 => 0,
                pushed => pushed?,
            };
            if pushed == 0 {
                return Ok((done, None));
            }
            let wake = self.data_waiter(tx);
            add(
                &self.shared.sent.records,
                pushed.div_ceil(usize::try_from(MAX_PAYLOAD).unwrap_or(usize::MAX)),
            );
            if !self.has_moved(tx) {
                return Ok((done + pushed, wake));
            }
            let counted = usize::try_from(self.decide(tid, tx, begin)?).unwrap_or(pushed).min(pushed);
            done += counted;
            if counted == pushed || !(self.is_steady() || self.may_go_on(tid, LockHeld::Sending)?) {
                return Ok((done, wake));
            }
        }
    }

    #[inline(always)]
    fn push_all(
        &self,
        tid: u32,
        tx: &Generation,
        buffers: &[IoSlice<'_>],
        skip: usize,
        most: usize,
    ) -> Result<usize, Failure> {
        let done = self.hand_out(tid, tx, buffers, skip)?;
        if done > 0 {
            return Ok(done);
        }
        let cpu = self.processor();
        if let [buffer] = buffers {
            let rest = buffer.get(skip..).unwrap_or_default();
            return self.push_bytes(tx, &rest[..rest.len().min(most)], cpu);
        }
        if !begins_there(buffers, skip) {
            return Err(Failure::Fault);
        }
        self.push_gathered(tx, Gather::new(buffers, skip, most), cpu)
    }

    #[inline(never)]
    fn push_gathered(&self, tx: &Generation, bytes: Gather<'_>, cpu: u16) -> Result<usize, Failure> {
        self.push_bytes(tx, bytes, cpu)
    }

    #[inline(always)]
    fn push_bytes<'a>(&self, tx: &Generation, bytes: impl Source<'a>, cpu: u16) -> Result<usize, Failure> {
        match self.push_or_fault(tx, bytes, cpu)? {
            Ok(pushed) => Ok(pushed),
            Err(Fault) => self.push_there(tx, bytes, cpu),
        }
    }

    /// Called if a page of the first record's bytes is not mapped: pushes a record of [`KERNEL_PIECE`] bytes, as the
    /// kernel would send, or fails with the fault.
    #[cold]
    fn push_there<'a>(&self, tx: &Generation, bytes: impl Source<'a>, cpu: u16) -> Result<usize, Failure> {
        if bytes.length() <= KERNEL_PIECE {
            return Err(Failure::Fault);
        }
        Ok(self.push_or_fault(tx, bytes.range(0..KERNEL_PIECE), cpu)??)
    }

    /// Pushes as many of `bytes` as there is room for, and keeps them where the circuit can lose them.
    #[inline(always)]
    fn push_or_fault<'a>(
        &self,
        tx: &Generation,
        bytes: impl Source<'a>,
        cpu: u16,
    ) -> Result<Result<usize, Fault>, Failure> {
        let (ring, credits) = (&tx.segments.outbound, self.credits(tx));
        Ok(match tx.segments.keeping() {
            None => self.shared.producer.push_guarded(ring, &credits, Kind::Data, bytes, cpu)?,
            Some(kept) => self.push_kept(tx, kept, bytes, cpu)?,
        })
    }

    /// Number of the processor that this thread runs on, looked up at every 64th send.
    #[inline(always)]
    pub(super) fn processor(&self) -> u16 {
        let sending = &self.shared.sending;
        let sends = sending.sends.load(Relaxed);
        sending.sends.store(sends.wrapping_add(1), Relaxed);
        if sends.is_multiple_of(64) {
            self.look_up_processor();
        }
        // Cut to 16 bits: a process that shares the end may write any value there, and the far side takes the number only as a hint.
        u16::try_from(sending.cpu.load(Relaxed) & u32::from(u16::MAX)).unwrap_or(0)
    }

    #[cold]
    fn look_up_processor(&self) {
        let cpu = rustix::thread::sched_getcpu();
        self.shared.sending.cpu.store(u32::try_from(cpu).unwrap_or(0), Relaxed);
    }
}

/// Whether the next [`KERNEL_PIECE`] bytes of `buffers`, from their byte `skip` on, are mapped: if there are several
/// buffers, either all of these bytes are sent, or nothing.
fn begins_there(buffers: &[IoSlice<'_>], mut skip: usize) -> bool {
    let mut left = KERNEL_PIECE;
    buffers.iter().all(|buffer| {
        let before = skip.min(buffer.len());
        skip -= before;
        let piece = left.min(buffer.len() - before);
        left -= piece;
        guarded::is_there(buffer.as_ptr().wrapping_add(before), piece)
    })
}

/// Whether `len` bytes of `buffers` behind the first `skip` are mapped.
pub(super) fn are_there(buffers: &[IoSlice<'_>], mut skip: usize, mut len: usize) -> bool {
    buffers.iter().all(|buffer| {
        let begin = skip.min(buffer.len());
        let part = len.min(buffer.len() - begin);
        skip -= begin;
        len -= part;
        guarded::is_there(buffer.as_ptr().wrapping_add(begin), part)
    })
}

pub(super) fn total(buffers: &[IoSlice<'_>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}
