//! The sink of Write Zcopy and of Transactions: offers memory for what comes next, and takes it back.

use super::super::add;
use super::{End, Failure, Generation, Line};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crosslane_shm::Load;
use crosslane_shm::buffer::{Landing, Located};
use crosslane_shm::lock::NotTaken;
use crosslane_shm::ring::{ANNOUNCED, Violation};
use crosslane_stream::zcopy::{Announced, TakeBack, landed};
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::WR_DONE;
use crosslane_wire::zcopy::{Descriptor, LONGEST, next_sequence, sequence_of, word};

/// Longest request that rides in an offer, bytes.
pub const REQUEST_MAX: usize = ANNOUNCED;

impl End {
    /// Offers `place`, which the far side may have, for what it sends next, and sends `request` with the offer: at most
    /// [`REQUEST_MAX`] bytes. What was written is said in `line`, a line behind that buffer. Until the offer is over nobody may use
    /// the place. `Ok(None)`: it cannot be offered now, and nothing was sent; also if others keep the lock, as
    /// `crosslane_shm::lock::take_busy` tells.
    pub fn offer(
        &self,
        tid: u32,
        request: &[u8],
        (place, line): (&Located, &Landing<'_>),
        len: usize,
    ) -> Result<Option<Option<WaiterId>>, Failure> {
        let _guard = match self.lock_sending(tid) {
            Err(NotTaken::Busy) => return Ok(None),
            taken => taken?,
        };
        self.may_send(Kind::SinkAvail)?;
        let (zcopy, producer, tx) = (&self.shared.zcopy, &self.shared.producer, self.generations.tx());
        let free = zcopy.offered.load(Acquire) == 0 && zcopy.open().count() == 0;
        if !free || !tx.segments.way.zero_copy || !self.is_steady() || self.gone() || self.has_arrived() {
            return Ok(None);
        }
        // Should another thread be receiving all the same, the offer is void.
        let Some(front) = self.shared.consumer.glance() else { return Ok(None) };
        let sequence = next_sequence(zcopy.last_sink.load(Relaxed));
        let len = u32::try_from(len).unwrap_or(LONGEST).min(LONGEST);
        let units = front.units();
        let (buffer, at) = (place.id, place.offset);
        let descriptor = Descriptor { sequence, len, buffer, at, line: line.number(), units };
        let descriptor = descriptor.encode();
        let begin = producer.units();
        zcopy.last_sink.store(sequence, Relaxed);
        line.limit(len);
        zcopy.offered_len.store(len, Relaxed);
        zcopy.offered_in.store(tx.number(), Relaxed);
        zcopy.offered.store(sequence, Relaxed);
        self.shared.consumer.expect_apart(word(sequence, len));
        self.stamp(tx);
        let (ring, credits) = (&tx.segments.outbound, &self.credits(tx));
        let cpu = self.processor();
        let pushed = producer.push_announcement(ring, credits, Kind::SinkAvail, &descriptor, request, cpu);
        let pushed = self.guarded(pushed.map_err(Failure::from))?;
        let wake = if pushed { self.data_waiter(tx) } else { None };
        let counts = pushed && (!self.has_moved(tx) || self.decide(tid, tx, begin)? == request.len() as u64);
        if !counts {
            self.shared.consumer.expect_apart(0);
            zcopy.offered.store(0, Release);
            return Ok(None);
        }
        add(&self.shared.counters.tx_bytes, request.len());
        add(&self.shared.sent.transaction, request.len());
        let carries = !request.is_empty();
        add(if carries { &self.shared.sent.records } else { &self.shared.sent.control }, 1);
        Ok(Some(wake))
    }

    /// Whether something seems to be written into what is offered: for those who wait. If [`Self::take_landed`] finds that
    /// there is not, somebody else has stored behind the buffer, and it is best taken back.
    #[inline]
    pub fn has_landed(&self, line: &Landing<'_>) -> bool {
        let offered = self.shared.zcopy.offered.load(Relaxed);
        offered != 0 && sequence_of(line.word()) == offered
    }

    /// Whether something was written into what is offered, and not taken: as the daemon sees it, which counts that as arrived.
    #[cold]
    pub(in super::super) fn lies_untaken(&self) -> bool {
        let offered = self.shared.zcopy.offered.load(Relaxed);
        let said = self.offered_at().map_or(0, |at| at.segments.inbound.load_u64(WR_DONE));
        offered != 0 && sequence_of(said) == offered
    }

    /// The generation that it was offered in: the far side may be writing by the old circuit still.
    fn offered_at(&self) -> Option<&Generation> {
        self.generations.find(self.shared.zcopy.offered_in.load(Relaxed))
    }

    /// How many bytes were written into what is offered, and the offer is over; `Ok(None)`: none so far.
    pub fn take_landed(&self, tid: u32, line: &Landing<'_>) -> Result<Option<usize>, Failure> {
        if !self.has_landed(line) {
            return Ok(None);
        }
        let _guard = self.lock_receiving_surely(tid)?;
        let at = self.offered_at().ok_or(Failure::Reset)?;
        let said = Line::Near(line).load(&at.segments);
        if said == 0 {
            return Ok(None);
        }
        let bytes = self.guarded(landed(self.offered(), said).map_err(Failure::from))?;
        self.end_offer(bytes, line)
    }

    /// Takes back what is offered; waits while the far side writes into it. Returns how many bytes it has written, if it
    /// did; after that it never does.
    pub fn take_back(&self, tid: u32, line: &Landing<'_>) -> Result<Option<usize>, Failure> {
        let _guard = self.lock_receiving_surely(tid)?;
        if self.shared.zcopy.offered.load(Relaxed) == 0 {
            return Ok(None);
        }
        let mut back = TakeBack::new(self.offered());
        let at = self.offered_at().ok_or(Failure::Reset)?;
        let bytes = self.run_with(at, Line::Near(line), |loaded| back.step(loaded));
        let bytes = self.guarded(bytes)?;
        self.end_offer(bytes, line)
    }

    fn offered(&self) -> Announced {
        let zcopy = &self.shared.zcopy;
        Announced { sequence: zcopy.offered.load(Relaxed), len: zcopy.offered_len.load(Relaxed) }
    }

    /// With the lock of receiving: the offer is over, and `bytes` were written. Of more than was offered with `line` the caller
    /// must not hear.
    fn end_offer(&self, bytes: Option<u32>, line: &Landing<'_>) -> Result<Option<usize>, Failure> {
        if bytes.is_some_and(|bytes| bytes > line.most()) {
            return self.guarded(Err(Violation::state("bytes that were offered").into()));
        }
        let count = self.count_landed(bytes);
        // Another one is made only now.
        self.shared.zcopy.offered.store(0, Release);
        count
    }

    fn count_landed(&self, bytes: Option<u32>) -> Result<Option<usize>, Failure> {
        let consumer = &self.shared.consumer;
        // A circuit is left only when all that counts of it was taken.
        if self.shared.zcopy.offered_in.load(Relaxed) != consumer.generation() {
            return Ok(None);
        }
        let Some(bytes) = bytes else {
            consumer.expect_apart(0);
            return Ok(None);
        };
        consumer.land(bytes.into());
        if !self.landed_counts(bytes.into())? {
            return Ok(None);
        }
        let (received, count) = (&self.shared.received, bytes as usize);
        add(&self.shared.counters.rx_bytes, count);
        add(&received.write_zcopy, count);
        add(&received.spared, count);
        Ok(Some(count))
    }
}
