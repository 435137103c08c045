//! The sink of Write Zcopy and of Transactions: offers memory for the next bytes, and withdraws it.

use super::super::add;
use super::{CircuitEnd, Failure, Generation, Line};
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

/// Longest request that an offer carries, bytes.
pub const REQUEST_MAX: usize = ANNOUNCED;

impl CircuitEnd {
    /// Offers `place`, in a buffer that is exported to the far side, for the next bytes that it sends, and sends
    /// `request` with the offer: at most [`REQUEST_MAX`] bytes. The far side reports in `line`, a line behind that
    /// buffer, how many it has written. Until the offer is over no code may use the place. `Ok(None)`: it cannot be
    /// offered now, and nothing was sent. Also if another process keeps the lock; see `crosslane_shm::lock::take_busy`.
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
        // If another thread is receiving all the same, the offer has no effect.
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

    /// Whether bytes seem to be written into the offered memory: for callers that wait. If [`Self::take_landed`] then
    /// finds none, another process has stored behind the buffer, and the caller should withdraw the offer.
    #[inline]
    pub fn has_landed(&self, line: &Landing<'_>) -> bool {
        let offered = self.shared.zcopy.offered.load(Relaxed);
        offered != 0 && sequence_of(line.word()) == offered
    }

    /// Whether bytes were written into the offered memory and not taken yet: the daemon counts these as arrived.
    #[cold]
    pub(in super::super) fn lies_untaken(&self) -> bool {
        let offered = self.shared.zcopy.offered.load(Relaxed);
        let said = self.offered_at().map_or(0, |at| at.segments.inbound.load_u64(WR_DONE));
        offered != 0 && sequence_of(said) == offered
    }

    /// The generation in which the memory was offered: the far side may still be writing on the old circuit.
    fn offered_at(&self) -> Option<&Generation> {
        self.generations.find(self.shared.zcopy.offered_in.load(Relaxed))
    }

    /// How many bytes were written into the offered memory; the offer is then over. `Ok(None)`: none so far.
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

    /// Ends the offer, by [`Self::take_landed`] or else by [`Self::take_back`].
    pub fn take_offered(&self, tid: u32, line: &Landing<'_>) -> Result<Option<usize>, Failure> {
        let landed = self.take_landed(tid, line)?;
        if landed.is_some() { Ok(landed) } else { self.take_back(tid, line) }
    }

    /// Withdraws the offer; waits while the far side writes. Returns how many bytes it has written, if any; it never writes after that.
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

    /// With the lock of receiving: the offer is over, and `bytes` were written. The caller must not get more than were
    /// offered with `line`.
    fn end_offer(&self, bytes: Option<u32>, line: &Landing<'_>) -> Result<Option<usize>, Failure> {
        if bytes.is_some_and(|bytes| bytes > line.most()) {
            return self.guarded(Err(Violation::state("bytes that were offered").into()));
        }
        let count = self.count_landed(bytes);
        // No other offer is made before this store.
        self.shared.zcopy.offered.store(0, Release);
        count
    }

    fn count_landed(&self, bytes: Option<u32>) -> Result<Option<usize>, Failure> {
        let consumer = &self.shared.consumer;
        // A circuit is left only when all bytes that count were taken.
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
