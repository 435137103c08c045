//! Receiving by one circuit or two.

use super::{CircuitEnd, End, Failure, Progress, Transferred, Wakes};
use crate::end::receive::{Taker, Target};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::guarded;
use crosslane_shm::lock::forget_busy;
use crosslane_shm::shared_bytes::Part;
use crosslane_wire::stripe::{Side, place};
use std::io::IoSliceMut;

/// Peeks that another thread may interrupt.
const PEEKS: u32 = 10;

impl End {
    /// As [`CircuitEnd::try_receive`].
    ///
    /// # Errors
    /// As for [`CircuitEnd::try_receive`].
    #[inline]
    pub fn try_receive(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<Transferred, Failure> {
        match self.twin() {
            None => self.first.try_receive(tid, buffers),
            Some(twin) => {
                let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
                self.receive_stripes(twin, tid, wanted, buffers)
            }
        }
    }

    /// As [`CircuitEnd::try_receive_into`].
    ///
    /// # Errors
    /// As for [`CircuitEnd::try_receive_into`].
    pub fn try_receive_into(&self, tid: u32, part: Part<'_>) -> Result<Transferred, Failure> {
        match self.twin() {
            None => self.first.try_receive_into(tid, part),
            Some(twin) => self.receive_stripes(twin, tid, part.len(), part),
        }
    }

    /// As [`CircuitEnd::try_pass`]; of a striped stream no more than is left of a piece.
    ///
    /// # Errors
    /// As for [`CircuitEnd::try_pass`].
    pub fn try_pass(
        &self,
        tid: u32,
        buffer: &mut [u8],
        takes: impl FnMut(&[u8]) -> usize,
    ) -> Result<Transferred, Failure> {
        let Some(twin) = self.twin() else { return self.first.try_pass(tid, buffer, takes) };
        let left = usize::try_from(self.receiving().1).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        self.receive_stripes(twin, tid, wanted, Taker(&mut buffer[..wanted], takes))
    }

    #[inline(never)]
    fn receive_stripes(
        &self,
        twin: &CircuitEnd,
        tid: u32,
        wanted: usize,
        mut target: impl Target,
    ) -> Result<Transferred, Failure> {
        let (mut progress, mut wakes) = (Progress { wanted, done: 0 }, Wakes::default());
        let outcome = self.receive_by_pieces(tid, &mut progress, |Progress { wanted, done }| {
            self.receive_stripe(twin, tid, (*done, wanted - done), &mut target, &mut wakes)
        });
        let wake = wakes.ring(twin);
        outcome.map_err(|failure| self.heed(failure))?;
        Ok(Transferred { bytes: progress.done, wake })
    }

    /// Does `receive` until all is there or there is no more, with the first circuit's lock of receiving held each time.
    fn receive_by_pieces(
        &self,
        tid: u32,
        progress: &mut Progress,
        mut receive: impl FnMut(&Progress) -> Result<(usize, usize), Failure>,
    ) -> Result<(), Failure> {
        let (first, mut order) = (&self.first, None);
        loop {
            let guard = match order {
                None => first.lock_receiving(tid),
                Some(_) => first.shared.receiving.lock.lock(tid),
            };
            let received = guard.map_err(Failure::from).and_then(|_guard| receive(progress));
            if progress.is_over(received)? {
                return Ok(());
            }
            order = order.or_else(|| first.orders.receiving.try_lock(tid));
            if order.is_none() {
                // Another thread waits for the order: this call ends after one piece.
                return Ok(());
            }
        }
    }

    /// With the first circuit's lock of receiving: receives what there is of a piece, behind the first `done` bytes of a call for which
    /// so many are left. How many bytes were received, and how many were to be.
    fn receive_stripe(
        &self,
        twin: &CircuitEnd,
        tid: u32,
        (done, left): (usize, usize),
        target: &mut impl Target,
        wakes: &mut Wakes,
    ) -> Result<(usize, usize), Failure> {
        let _guard = twin.lock_receiving(tid)?;
        let shut = self.first.shared.status.read_shut.load(Relaxed);
        twin.shared.status.read_shut.store(shut, Relaxed);
        let (before, seen) = (self.count_received(twin), &self.first.shared.receiving.striped);
        seen.store(before, Relaxed);
        let (side, rest) = place(before);
        let wanted = left.min(usize::try_from(rest).unwrap_or(left));
        let end = if side == Side::First { &self.first } else { twin };
        let (bytes, gave) = end.receive_piece(|| target.take(end, tid, done, wanted))?;
        seen.store(before.wrapping_add(bytes as u64), Relaxed);
        wakes.add(side, gave.and_then(|rx| end.room_waiter(rx)));
        Ok((bytes, wanted))
    }

    /// As [`CircuitEnd::try_peek`].
    ///
    /// # Errors
    /// As for [`CircuitEnd::try_peek`].
    pub fn try_peek(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let Some(twin) = self.twin() else { return self.first.try_peek(tid, buffers) };
        let received = &self.first.shared.receiving.striped;
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        for _ in 0..PEEKS {
            let before = received.load(Relaxed);
            // One byte that is not there says why there is none.
            let wanted = wanted.min(self.unread(tid)?.max(1));
            let peeked = self.peek_both(twin, tid, before, wanted)?;
            if received.load(Relaxed) == before {
                return hand_out(&peeked, buffers);
            }
        }
        Err(Failure::WouldBlock)
    }

    /// Copies of the next `wanted` bytes, as far as they are there, if `before` were received.
    fn peek_both(&self, twin: &CircuitEnd, tid: u32, before: u64, wanted: usize) -> Result<Vec<u8>, Failure> {
        let pieces = || Pieces { at: before, left: wanted as u64 };
        let (side_now, _) = place(before);
        let peek = |end: &CircuitEnd, side: Side| {
            let count: u64 = pieces().filter(|(of, _)| *of == side).map(|(_, count)| count).sum();
            let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
            if bytes.is_empty() {
                return Ok(bytes);
            }
            match end.try_peek(tid, &mut [IoSliceMut::new(&mut bytes)]) {
                Ok(there) => bytes.truncate(there),
                Err(failure) if side == side_now => return Err(failure),
                Err(_) => {
                    forget_busy();
                    bytes.clear();
                }
            }
            Ok(bytes)
        };
        let (first, second) = (peek(&self.first, Side::First)?, peek(twin, Side::Second)?);
        let (mut first, mut second, mut joined) = (&first[..], &second[..], Vec::with_capacity(wanted));
        for (side, count) in pieces() {
            let bytes = if side == Side::First { &mut first } else { &mut second };
            let count = usize::try_from(count).unwrap_or(0);
            let (piece, rest) = bytes.split_at(count.min(bytes.len()));
            joined.extend_from_slice(piece);
            *bytes = rest;
            if piece.len() < count {
                break;
            }
        }
        Ok(joined)
    }

    /// As [`CircuitEnd::unread`].
    ///
    /// # Errors
    /// As for [`CircuitEnd::unread`].
    pub fn unread(&self, tid: u32) -> Result<usize, Failure> {
        self.unread_with(tid).map(|(bytes, _)| bytes)
    }

    /// Payload bytes that lie unread without a gap, and whether a ring is nearly full.
    pub(super) fn unread_with(&self, tid: u32) -> Result<(usize, bool), Failure> {
        let Some(twin) = self.twin() else { return self.first.unread_with(tid) };
        let before = self.first.shared.receiving.striped.load(Relaxed);
        let ((first, one_full), (second, other_full)) =
            (self.first.unread_with(tid)?, twin.unread_with(tid)?);
        let mut there = (first as u64, second as u64);
        let mut all = 0;
        for (side, count) in (Pieces { at: before, left: u64::MAX }) {
            let bytes = if side == Side::First { &mut there.0 } else { &mut there.1 };
            let here = count.min(*bytes);
            (*bytes, all) = (*bytes - here, all + here);
            if here < count {
                break;
            }
        }
        Ok((usize::try_from(all).unwrap_or(usize::MAX), one_full || other_full))
    }
}

/// The pieces of the next bytes of a direction: which circuit has them, and how many.
struct Pieces {
    at: u64,
    left: u64,
}

impl Iterator for Pieces {
    type Item = (Side, u64);

    fn next(&mut self) -> Option<(Side, u64)> {
        let (side, rest) = place(self.at);
        let count = rest.min(self.left);
        (self.at, self.left) = (self.at.wrapping_add(count), self.left - count);
        (count > 0).then_some((side, count))
    }
}

/// Copies `bytes` into the program's buffers, which may not be mapped.
fn hand_out(bytes: &[u8], buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
    let mut left = bytes;
    for buffer in buffers {
        let (piece, rest) = left.split_at(left.len().min(buffer.len()));
        if !piece.is_empty() {
            guarded::fill(buffer, piece)?;
        }
        left = rest;
    }
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_wire::stripe::PIECE;

    #[test]
    fn pieces_alternate_from_the_middle_of_one() {
        let pieces: Vec<_> = Pieces { at: PIECE - 3, left: PIECE + 10 }.collect();
        assert_eq!(pieces, [(Side::First, 3), (Side::Second, PIECE), (Side::First, 7)]);
        assert_eq!(Pieces { at: 5, left: 0 }.next(), None);
    }
}
