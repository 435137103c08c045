//! Receiving.

use super::order::PIECE;
use super::{CircuitEnd, Failure, Generation, Transferred, add};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_shm::account::{self, Function};
use crosslane_shm::guarded::Fault;
use crosslane_shm::lock::forget_busy;
use crosslane_shm::ring::{Cursor, Head, Violation};
use crosslane_shm::shared_bytes::Part;
use crosslane_shm::{Inbound, Load};
use crosslane_stream::{Direction, Effect, handle_record};
use crosslane_wire::EndedBy;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{LINE, RING_MAX, STATE, STATE_GONE};
use std::io::IoSliceMut;

/// Times that one call may find payload announced by the shared state and yet take no byte: an honest holder of the end causes none.
const IN_VAIN: u32 = 100;
/// Long peeks that another thread may interrupt before the next one holds the lock.
const PEEKS: u32 = 3;

/// Where the next bytes for the program are.
enum Front {
    /// In the record at the front of the ring.
    Ring(Head),
    /// In memory that the far side has announced.
    Elsewhere,
}

/// Why nothing can arrive any more.
#[derive(Clone, Copy)]
enum LastWord {
    /// The stream was aborted, by one of its ends or a daemon.
    Broken,
    /// The kernel's connection has ended, while the circuit's status word had this value.
    Fin(u32),
}

/// Where received bytes go.
pub(super) trait Target {
    /// Copies at most `most` bytes behind the first `done` bytes of the target, with the lock of receiving held; returns how many.
    fn take(&mut self, end: &CircuitEnd, tid: u32, done: usize, most: usize) -> Result<usize, Failure>;
}

impl Target for &mut [IoSliceMut<'_>] {
    #[inline(always)]
    fn take(&mut self, end: &CircuitEnd, tid: u32, done: usize, most: usize) -> Result<usize, Failure> {
        end.take_all(tid, self, done, most)
    }
}

impl Target for Part<'_> {
    fn take(&mut self, end: &CircuitEnd, tid: u32, done: usize, most: usize) -> Result<usize, Failure> {
        let part = *self;
        end.pass_on(tid, most.min(part.len() - done), |ring, from, passed, count| {
            let _span = account::receiving(Function::CopyOut);
            part.fill(done + passed, ring, from, count);
        })
    }
}

/// A callback that gets received bytes through a buffer and returns how many it has taken.
pub(super) struct Taker<'a, F>(pub(super) &'a mut [u8], pub(super) F);

impl<F: FnMut(&[u8]) -> usize> Target for Taker<'_, F> {
    fn take(&mut self, end: &CircuitEnd, tid: u32, _: usize, most: usize) -> Result<usize, Failure> {
        let Self(buffer, takes) = self;
        let most = most.min(buffer.len());
        let front = end.begin_peek(tid)?;
        let there = end.peek_all(front, &mut [IoSliceMut::new(&mut buffer[..most])])?;
        if there == 0 {
            return Ok(0);
        }
        match takes(&buffer[..there]).min(there) {
            0 => Err(Failure::WouldBlock),
            taken => end.pass_on(tid, taken, |_, _, _, _| {}),
        }
    }
}

impl CircuitEnd {
    /// Copies the bytes that have arrived into `buffers`. [`Failure::Ended`] is end of file.
    pub fn try_receive(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<Transferred, Failure> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.receive_by(tid, wanted, buffers)
    }

    /// As [`Self::try_receive`], into memory that far programs may write.
    pub fn try_receive_into(&self, tid: u32, part: Part<'_>) -> Result<Transferred, Failure> {
        self.receive_by(tid, part.len(), part)
    }

    /// Calls `takes` with the bytes that have arrived, in `buffer`, a part of a record or several records at a time, and consumes
    /// as many as it returns. The lock is held during the call: it must not wait. [`Failure::WouldBlock`] if it took nothing.
    pub fn try_pass(
        &self,
        tid: u32,
        buffer: &mut [u8],
        takes: impl FnMut(&[u8]) -> usize,
    ) -> Result<Transferred, Failure> {
        let wanted = buffer.len().min(PIECE);
        self.receive_by(tid, wanted, Taker(&mut buffer[..wanted], takes))
    }

    /// Receives `wanted` bytes at most, piece by piece, and releases the lock after each piece.
    #[inline(always)]
    fn receive_by(&self, tid: u32, wanted: usize, mut target: impl Target) -> Result<Transferred, Failure> {
        let (mut bytes, mut gave, order) = {
            let _guard = self.lock_receiving(tid)?;
            let (bytes, gave) = self.receive_piece(|| target.take(self, tid, 0, PIECE))?;
            let goes_on = bytes >= PIECE && bytes < wanted;
            // Another thread waits for the order: this call ends after one piece.
            (bytes, gave, if goes_on { self.orders.receiving.try_lock(tid) } else { None })
        };
        if order.is_some() {
            self.receive_on(tid, wanted, (&mut bytes, &mut gave), target)?;
        }
        drop(order);
        Ok(Transferred { bytes, wake: gave.and_then(|rx| self.room_waiter(rx)) })
    }

    /// Receives one piece after the other. Bytes that were received count, whatever fails later, unless the stream is aborted.
    #[inline(never)]
    fn receive_on<'a>(
        &'a self,
        tid: u32,
        wanted: usize,
        (bytes, gave): (&mut usize, &mut Option<&'a Generation>),
        mut target: impl Target,
    ) -> Result<(), Failure> {
        while *bytes < wanted {
            let guard = self.shared.receiving.lock.lock(tid).map_err(Failure::from);
            match guard.and_then(|_guard| self.receive_piece(|| target.take(self, tid, *bytes, PIECE))) {
                Ok((more, given)) => {
                    (*bytes, *gave) = (*bytes + more, given.or(*gave));
                    if more < PIECE {
                        break;
                    }
                }
                Err(failure) if failure.is_violation() => return Err(failure),
                Err(_) => {
                    forget_busy();
                    break;
                }
            }
        }
        Ok(())
    }

    /// With the lock of receiving: one piece, and the generation in which credit was given for it, if it was.
    #[inline(always)]
    pub(super) fn receive_piece(
        &self,
        mut take: impl FnMut() -> Result<usize, Failure>,
    ) -> Result<(usize, Option<&Generation>), Failure> {
        let mut last = None;
        let bytes = loop {
            match (self.guarded(take())?, last) {
                // The far side may have stored records between the look at the ring and its last word, so look at the ring once more.
                (0, None) => last = Some(self.last_word().ok_or_else(|| self.nothing_yet())?),
                (0, Some(last)) => return Err(self.nothing_left(last)),
                (bytes, _) => break bytes,
            }
        };
        let rx = self.generations.rx();
        let (consumer, segments) = (&self.shared.consumer, &rx.segments);
        let gave = consumer.give_or_offer(&segments.outbound, &segments.inbound) | self.was_credited();
        if gave {
            add(&self.shared.received.control, 1);
        }
        let wake = &self.shared.zcopy.wake;
        let ended = wake.load(Relaxed) != 0 && wake.swap(0, Relaxed) != 0;
        add(&self.shared.counters.rx_bytes, bytes);
        Ok((bytes, (gave || ended).then_some(rx)))
    }

    /// Copies what has arrived without consuming it (`MSG_PEEK`).
    pub fn try_peek(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if wanted > PIECE {
            for _ in 0..PEEKS {
                match self.peek_apart(tid, buffers)? {
                    // The locked call below finds out why nothing is there.
                    Some(0) => break,
                    Some(bytes) => return Ok(bytes),
                    None => {}
                }
            }
        }
        let _guard = self.lock_receiving(tid)?;
        let mut last = None;
        loop {
            let front = self.begin_peek(tid)?;
            let peeked = self.peek_all(front, buffers);
            match (self.guarded(peeked)?, last) {
                (0, None) => last = Some(self.last_word().ok_or_else(|| self.nothing_yet())?),
                (0, Some(last)) => return Err(self.nothing_left(last)),
                (bytes, _) => return Ok(bytes),
            }
        }
    }

    /// Peeks without the lock during the copy: the number of bytes, perhaps 0; `None` if another thread consumed meanwhile.
    fn peek_apart(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, Failure> {
        let front = {
            let _guard = self.lock_receiving(tid)?;
            self.begin_peek(tid)?
        };
        let peeked = self.peek_all(front, buffers);
        let _guard = self.lock_receiving(tid)?;
        // No thread has consumed these records, so the far side cannot have overwritten them.
        if self.shared.consumer.cursor() == front { self.guarded(peeked).map(Some) } else { Ok(None) }
    }

    /// With the lock of receiving: a cursor at the front, where bytes for the program may lie.
    fn begin_peek(&self, tid: u32) -> Result<Cursor, Failure> {
        self.guarded(self.process_control(tid))?;
        if self.shared.consumer.elsewhere() > 0 {
            self.refuse();
        }
        Ok(self.shared.consumer.cursor())
    }

    /// Payload bytes that lie unread (`FIONREAD`).
    pub fn unread(&self, tid: u32) -> Result<usize, Failure> {
        self.unread_with(tid).map(|(bytes, _)| bytes)
    }

    /// As [`Self::unread`], and whether the ring is nearly full, so that its sender may wait for room.
    pub(super) fn unread_with(&self, tid: u32) -> Result<(usize, bool), Failure> {
        // The caller does not retry, so the mark of a busy lock is cleared.
        let _guard = self.lock_receiving(tid).inspect_err(|_| forget_busy())?;
        self.guarded(self.process_control(tid))?;
        let (consumer, mut bytes) = (&self.shared.consumer, 0_usize);
        let front = consumer.cursor();
        let Some(mut walk) = self.walk(front) else { return Ok((0, false)) };
        while let Some(header) = self.guarded(walk.look().map_err(Failure::from))? {
            match header.kind {
                Kind::Filler => {}
                kind if kind.has_bytes() => {
                    bytes += (header.bytes() as usize).saturating_sub(walk.cursor().taken());
                }
                _ => break,
            }
            walk.pass(header);
        }
        let elsewhere = usize::try_from(consumer.elsewhere()).unwrap_or(0);
        let used = walk.cursor().position().saturating_sub(front.position());
        Ok((bytes.saturating_add(elsewhere), used >= walk.cursor().cap() / 4 * 3))
    }

    /// Handles records that are not for the program: handshakes and ends of a direction. Does not wait for the lock: if another
    /// thread holds it, that thread handles them. A record that breaks the protocol stays in place, for the next receive to report.
    pub fn refresh(&self, tid: u32) {
        if let Some(_guard) = self.shared.receiving.lock.try_lock(tid) {
            let _ = self.process_control(tid);
        }
    }

    /// Copies at most `most` bytes, behind the first `skip` bytes of `buffers`; the engine may copy more.
    #[inline(always)]
    fn take_all(
        &self,
        tid: u32,
        buffers: &mut [IoSliceMut<'_>],
        mut skip: usize,
        most: usize,
    ) -> Result<usize, Failure> {
        let mut done = self.hand_in(tid, buffers, skip)?;
        if done > 0 {
            return Ok(done);
        }
        // Bytes that this call has taken of the record at the front.
        let mut begun = 0;
        let (consumer, mut in_vain) = (&self.shared.consumer, 0);
        for buffer in buffers {
            let mut at = skip.min(buffer.len());
            skip -= at;
            while at < buffer.len() {
                if done >= most {
                    return Ok(done);
                }
                let to = buffer.len().min(at + (most - done));
                let taken = match self.front_bytes(tid)? {
                    None => return Ok(done),
                    Some(Front::Elsewhere) => match self.fetch(tid, &mut buffer[at..to]) {
                        Err(Failure::Fault) if done > 0 => return Ok(done),
                        fetched => fetched?,
                    },
                    Some(Front::Ring(head)) => {
                        let ring = &self.generations.rx().segments.inbound;
                        match consumer.take_guarded(ring, head, &mut buffer[at..to])? {
                            Ok(taken) => {
                                begun = if taken == head.left { 0 } else { begun + taken };
                                taken
                            }
                            Err(fault) => return self.taken_before(fault, done, begun),
                        }
                    }
                };
                add(&self.shared.received.records, usize::from(consumer.taken() == 0));
                (at, done) = (at + taken, done + taken);
                in_vain = if taken > 0 { 0 } else { in_vain + 1 };
                if in_vain > IN_VAIN {
                    return Err(Violation::state("data that is not there").into());
                }
            }
        }
        Ok(done)
    }

    /// A page of the buffer is not mapped for the rest of the front record, of which this call has taken `begun` bytes,
    /// and `done` bytes in all: as with the kernel's TCP nothing of that record is received.
    #[cold]
    fn taken_before(&self, fault: Fault, done: usize, begun: usize) -> Result<usize, Failure> {
        self.shared.consumer.untake(begun);
        if done > begun { Ok(done - begun) } else { Err(fault.into()) }
    }

    /// One piece of up to `wanted` bytes, which all come through the ring. `pass` gets, for each part of a record, its
    /// place in the ring, how many bytes were passed before, and its length.
    fn pass_on(
        &self,
        tid: u32,
        wanted: usize,
        mut pass: impl FnMut(&Inbound, usize, usize, usize),
    ) -> Result<usize, Failure> {
        let (consumer, mut done, mut in_vain) = (&self.shared.consumer, 0, 0);
        while done < wanted.min(PIECE) && self.process_control(tid)? {
            in_vain += 1;
            if in_vain > IN_VAIN {
                return Err(Violation::state("data that is not there").into());
            }
            if consumer.elsewhere() > 0 {
                self.refuse();
                continue;
            }
            let ring = &self.generations.rx().segments.inbound;
            let Some(head) = consumer.head(ring)? else { break };
            let count = head.left.min(wanted - done);
            pass(ring, consumer.front(ring, head)?, done, count);
            consumer.skip(head, count)?;
            (done, in_vain) = (done + count, if count > 0 { 0 } else { in_vain });
        }
        Ok(done)
    }

    fn peek_all(&self, front: Cursor, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        // Bytes passed in all, and bytes passed of the present record.
        let (mut done, mut begun) = (0, 0);
        let Some(mut walk) = self.walk(front) else { return Ok(0) };
        for buffer in buffers {
            let mut at = 0;
            while at < buffer.len() {
                let Some(header) = walk.look()? else { return Ok(done) };
                match header.kind {
                    Kind::Filler => {
                        walk.pass(header);
                        continue;
                    }
                    kind if kind.has_bytes() => {}
                    _ => return Ok(done),
                }
                let skip = walk.cursor().taken();
                let left = (header.bytes() as usize).saturating_sub(skip);
                let count = left.min(buffer.len() - at);
                let target = &mut buffer[at..at + count];
                if let Err(fault) = walk.cursor().read_guarded(walk.inbound(), header, skip, target)? {
                    return if done > begun { Ok(done - begun) } else { Err(fault.into()) };
                }
                (at, done) = (at + count, done + count);
                if count == left {
                    walk.pass(header);
                    begun = 0;
                } else {
                    walk.take(count);
                    begun += count;
                }
            }
        }
        Ok(done)
    }

    /// Consumes control records until a record with payload for the program is at the front (`Ok(true)`), or none is there.
    #[inline]
    pub(super) fn process_control(&self, tid: u32) -> Result<bool, Failure> {
        Ok(self.front_bytes(tid)?.is_some())
    }

    /// As [`Self::process_control`]; returns where the next bytes are.
    fn front_bytes(&self, tid: u32) -> Result<Option<Front>, Failure> {
        // At most as many records as two rings hold, and some that move the stream to the next ring.
        for _ in 0..2 * RING_MAX / LINE {
            let state = self.rx();
            if !matches!(state, Direction::Open | Direction::Handshake) {
                return Ok(None);
            }
            if self.shared.consumer.elsewhere() > 0 {
                let fetchable = self.process_announced(tid)?;
                if !fetchable || self.shared.consumer.elsewhere() > 0 {
                    return Ok(fetchable.then_some(Front::Elsewhere));
                }
            }
            let Some(head) = self.next_record(tid)? else { return Ok(None) };
            let (next, effect) = handle_record(self.side, state, head.kind)?;
            if head.kind.prefix() > 0 {
                self.note_announcement(head)?;
            }
            if effect == Effect::Deliver && head.left > 0 {
                self.shared.receiving.peer_cpu.store(u32::from(head.cpu), Relaxed);
                return Ok(Some(Front::Ring(head)));
            }
            self.shared.consumer.consume()?;
            self.shared.status.rx.store(next as u32, Relaxed);
            if next == Direction::Aborted {
                self.break_off(libc::ECONNRESET);
            }
        }
        Err(Violation::state("records without end").into())
    }

    /// The record at the front, if one has arrived and counts. The status word is read after the record's mark was seen.
    #[inline]
    fn next_record(&self, tid: u32) -> Result<Option<Head>, Failure> {
        let ring = &self.generations.rx().segments.inbound;
        let head = self.shared.consumer.head_if(ring, || self.is_steady())?;
        if head.is_some() || self.is_steady() {
            return Ok(head);
        }
        self.front(tid)
    }

    /// Whether a record waits in the ring from which this end receives.
    #[inline]
    pub(super) fn has_arrived(&self) -> bool {
        if self.shared.consumer.elsewhere() > 0 {
            return self.has_elsewhere();
        }
        self.shared.consumer.arrived(&self.generations.rx().segments.inbound)
    }

    /// Whether the far side's FIN was seen and all that it sent before is here. A FIN may overtake bytes that a host
    /// between forwards, or that are sent again on another circuit; in these cases it counts only once the segment says
    /// that the far side is gone. Ask this before looking at the ring: then the ring contains all that the far side
    /// stored before its FIN, while another thread may see the FIN at any later time.
    #[inline]
    pub fn has_fin(&self) -> bool {
        self.shared.status.fin.load(Acquire) != 0 && {
            let newest = self.generations.newest();
            let segments = &newest.segments;
            match segments.way.ended_by {
                EndedBy::Fin if newest.number() == 0 => true,
                EndedBy::Fin | EndedBy::Status => segments.inbound.load_u32(STATE) == STATE_GONE,
            }
        }
    }

    /// The reason for which nothing can arrive any more, if there is one. The caller then looks at the ring once more,
    /// since the far side may have stored its last records, and ended, between the look at the ring and this call.
    fn last_word(&self) -> Option<LastWord> {
        if self.dead().is_some() || self.shared.status.reset.load(Acquire) != 0 {
            return Some(LastWord::Broken);
        }
        let word = self.status.load(Acquire);
        (self.has_fin() && !self.is_moving()).then_some(LastWord::Fin(word))
    }

    /// The failure of a receive that finds nothing, on a stream that is not known to be over.
    fn nothing_yet(&self) -> Failure {
        match self.rx() {
            Direction::Tcp => Failure::Tcp,
            Direction::Ended => Failure::Ended,
            Direction::Aborted => Failure::Reset,
            _ if self.shared.status.read_shut.load(Relaxed) != 0 => Failure::Ended,
            _ => Failure::WouldBlock,
        }
    }

    /// The failure of a receive that finds nothing, on a stream to which nothing can arrive any more.
    fn nothing_left(&self, last: LastWord) -> Failure {
        match (last, self.nothing_yet()) {
            // As with the kernel's TCP, a reset after the end of the far side's direction does not change that end.
            (LastWord::Broken, _) if self.rx() == Direction::Ended => Failure::Ended,
            (LastWord::Broken, _) => Failure::Reset,
            // If the status word has changed meanwhile, the stream has begun to move, and the last look did not count the records there.
            (LastWord::Fin(word), Failure::WouldBlock) if self.status.load(Acquire) == word => Failure::Ended,
            (LastWord::Fin(_), why) => why,
        }
    }
}
