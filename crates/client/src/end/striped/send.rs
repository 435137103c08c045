//! Sending by one circuit or two.

use super::{CircuitEnd, End, Failure, Progress, Transferred, Wakes};
use crate::end::note;
use crate::end::order::PIECE;
use crate::end::send::{KERNEL_PIECE, are_there, total};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_stream::{Direction, Side as Role};
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use crosslane_wire::stripe::{Side, place};
use std::io::IoSlice;

impl End {
    /// As [`CircuitEnd::try_send`].
    ///
    /// # Errors
    /// As for [`CircuitEnd::try_send`].
    #[inline]
    pub fn try_send(&self, tid: u32, buffers: &[IoSlice<'_>], skip: usize) -> Result<Transferred, Failure> {
        match self.twin() {
            None => self.first.try_send(tid, buffers, skip),
            Some(twin) => self.send_stripes(twin, tid, buffers, skip),
        }
    }

    #[inline(never)]
    fn send_stripes(
        &self,
        twin: &CircuitEnd,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<Transferred, Failure> {
        let (mut progress, mut wakes) =
            (Progress { wanted: total(buffers) - skip, done: 0 }, Wakes::default());
        if self.first.is_ending() || twin.is_ending() {
            // Fails without waiting for the lock.
            self.first.may_send(Kind::Data)?;
            twin.may_send(Kind::Data)?;
        }
        let outcome = self.send_by_pieces(tid, &mut progress, |Progress { wanted, done }| {
            self.send_stripe(twin, tid, buffers, (skip, *done, *wanted), &mut wakes)
        });
        let wake = wakes.ring(twin);
        outcome.map_err(|failure| self.heed(failure))?;
        let Progress { wanted, done: bytes } = progress;
        if bytes < wanted {
            if !self.can_grow() {
                note(&self.first.shared.sending.blocked);
            }
            if bytes == 0 {
                return Err(Failure::WouldBlock);
            }
        }
        Ok(Transferred { bytes, wake })
    }

    /// Does `send` until all is sent or no more can be, with the first circuit's lock of sending held each time.
    fn send_by_pieces(
        &self,
        tid: u32,
        progress: &mut Progress,
        mut send: impl FnMut(&Progress) -> Result<(usize, usize), Failure>,
    ) -> Result<(), Failure> {
        let (first, is_long) = (&self.first, progress.wanted > PIECE);
        let order = if is_long { Some(first.orders.sending.lock_soon(tid)) } else { None };
        let _order = order.transpose().inspect_err(|_| note(&first.shared.sending.blocked))?;
        loop {
            let guard = if is_long { first.lock_sending_on(tid) } else { first.lock_sending(tid) };
            let sent = guard.map_err(Failure::from).and_then(|_guard| send(progress));
            if progress.is_over(sent)? {
                return Ok(());
            }
        }
    }

    /// With the first circuit's lock of sending: sends what is left of a piece, behind the first `done` bytes of a call for `wanted`.
    /// How many bytes were sent, and how many were to be.
    fn send_stripe(
        &self,
        twin: &CircuitEnd,
        tid: u32,
        buffers: &[IoSlice<'_>],
        (skip, done, wanted): (usize, usize, usize),
        wakes: &mut Wakes,
    ) -> Result<(usize, usize), Failure> {
        let (skip, left) = (skip + done, wanted - done);
        self.first.may_send(Kind::Data)?;
        if self.first.gone() {
            // All that is left counts as sent, not only a piece of it.
            return Err(self.first.send_to_nobody(buffers, skip, left));
        }
        if done.is_multiple_of(KERNEL_PIECE) && !are_there(buffers, skip, left.min(KERNEL_PIECE)) {
            // As the kernel, which sends such a piece as a whole or not at all.
            return Err(Failure::Fault);
        }
        let (before, seen) = (self.count_sent(twin), &self.first.shared.sending.striped);
        seen.store(before, Relaxed);
        let (side, rest) = place(before);
        let wanted = left.min(usize::try_from(rest).unwrap_or(left));
        let moved = match side {
            Side::First => self.first.send_piece(tid, buffers, skip, wanted)?,
            Side::Second if awaits_hello(twin, tid) => return Err(Failure::WouldBlock),
            Side::Second => {
                let _guard = twin.lock_sending(tid)?;
                twin.send_piece(tid, buffers, skip, wanted)?
            }
        };
        seen.store(before.wrapping_add(moved.bytes as u64), Relaxed);
        wakes.add(side, moved.wake);
        Ok((moved.bytes, wanted))
    }

    /// As [`CircuitEnd::has_room`], where the next byte is sent.
    #[inline]
    pub fn has_room(&self, tid: u32) -> bool {
        let (end, _) = self.sending();
        end.has_room(tid) && !(self.is_twin(end) && awaits_hello(end, tid))
    }

    /// As [`CircuitEnd::room`]: what is left of the piece at most.
    pub fn room(&self, tid: u32) -> usize {
        let (end, left) = self.sending();
        end.room(tid).min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// As [`CircuitEnd::has_credit`], where the next byte is sent.
    pub fn has_credit(&self) -> bool {
        self.sending().0.has_credit()
    }

    /// As [`CircuitEnd::can_grow`], where the next byte is sent.
    pub fn can_grow(&self) -> bool {
        self.sending().0.can_grow()
    }

    /// As [`CircuitEnd::request_grow`], where the next byte is sent.
    pub fn request_grow(&self) {
        self.sending().0.request_grow();
    }

    /// As [`CircuitEnd::keeps_too_little`], where the next byte is sent.
    pub fn keeps_too_little(&self) -> bool {
        self.sending().0.keeps_too_little()
    }

    /// As [`CircuitEnd::request_retention`], where the next byte is sent.
    pub fn request_retention(&self) {
        self.sending().0.request_retention();
    }

    /// As [`CircuitEnd::unconfirmed`], of both circuits.
    pub fn unconfirmed(&self) -> u64 {
        self.first.unconfirmed().saturating_add(self.twin().map_or(0, CircuitEnd::unconfirmed))
    }

    /// Asks the far side to wake `waiter` when there is room, by either circuit.
    pub fn want_room(&self, waiter: WaiterId) -> bool {
        let asked = self.first.want_room(waiter);
        match self.twin() {
            None => asked,
            // Its handshake is data.
            Some(twin) if twin.rx() == Direction::Handshake => {
                asked & twin.want_room(waiter) & twin.want_data(waiter)
            }
            Some(twin) => asked & twin.want_room(waiter),
        }
    }

    /// Withdraws the request of `waiter`, which is awake again.
    pub fn unwant_room(&self, waiter: WaiterId) {
        self.each(|end| end.unwant_room(waiter));
    }

    pub(super) fn is_twin(&self, end: &CircuitEnd) -> bool {
        !core::ptr::eq(end, &raw const self.first)
    }
}

/// Whether the far program has perhaps no second circuit: the connecting program's handshake shows that it has. What the accepting one
/// sends there before would be lost if the stream went by one circuit only.
fn awaits_hello(twin: &CircuitEnd, tid: u32) -> bool {
    if twin.side() == Role::Client || twin.rx() != Direction::Handshake {
        return false;
    }
    twin.refresh(tid);
    twin.rx() == Direction::Handshake
}
