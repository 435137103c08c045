//! The source of Write Zcopy and of Transactions: writes into memory that the sink offers.

use super::super::add;
use super::super::send::total;
use super::{CircuitEnd, Failure, Generation, Line};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::{FarBuffer, Store};
use crosslane_stream::zcopy::{Announced, Claim, Written};
use crosslane_wire::segment::WR_DONE;
use crosslane_wire::zcopy::word;
use crosslane_wire::{Reach, WaiterId};
use std::io::IoSlice;

impl CircuitEnd {
    /// With the lock of sending: writes bytes of `buffers`, from their byte `skip` on, as far as the offered memory has
    /// room. `Ok(None)`: no memory is offered for these bytes.
    #[inline(always)]
    pub(in super::super) fn write_offered(
        &self,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<Option<(usize, Option<WaiterId>)>, Failure> {
        match self.shared.zcopy.sink.sequence.load(Relaxed) {
            0 => Ok(None),
            _ => self.write_there(tid, buffers, skip),
        }
    }

    #[inline(never)]
    fn write_there(
        &self,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<Option<(usize, Option<WaiterId>)>, Failure> {
        let (sink, tx) = (&self.shared.zcopy.sink, self.generations.tx());
        let sequence = sink.sequence.load(Relaxed);
        sink.sequence.store(0, Relaxed);
        let begin = self.shared.producer.units();
        let here = sink.generation.load(Relaxed) == tx.number() && tx.segments.way.zero_copy;
        if !here || sink.units.load(Relaxed) != begin {
            return Ok(None);
        }
        let what = Announced { sequence, len: sink.len.load(Relaxed) };
        let put = |far: &FarBuffer| self.put_there(tx, far, what, buffers, skip);
        let Ok(filled) = self.with_far(tid, sink.buffer(), Reach::Store, put) else { return Ok(None) };
        let Some(done) = filled? else { return Ok(None) };
        let wake = self.data_waiter(tx);
        if self.has_moved(tx) {
            let counted = self.decide(tid, tx, begin)?;
            return Ok(Some((usize::try_from(counted).unwrap_or(0).min(done), wake)));
        }
        add(&self.shared.sent.write_zcopy, done);
        Ok(Some((done, wake)))
    }

    /// Claims the offer, writes as many bytes as fit, and reports the number, which it returns. `Ok(None)`: the sink withdrew the offer.
    fn put_there(
        &self,
        tx: &Generation,
        far: &FarBuffer,
        what: Announced,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<Option<usize>, Failure> {
        let (sink, producer) = (&self.shared.zcopy.sink, &self.shared.producer);
        let mut claim = Claim::new(what.sequence);
        if !self.run(tx, |loaded| Ok(claim.step(loaded)))? {
            return Ok(None);
        }
        let most = (what.len as usize).min(total(buffers) - skip);
        let done = write(far, sink.at.load(Relaxed), buffers, skip, most);
        producer.close(&tx.segments.outbound)?;
        producer.count(done as u64);
        tx.segments.outbound.store_fence();
        // Stored first for the far daemon: should the circuit be lost now, it counts the bytes that its program has taken.
        tx.segments.outbound.store_u64(WR_DONE, word(what.sequence, u32::try_from(done).unwrap_or(0)));
        let mut written = Written::new(what.sequence, u32::try_from(done).unwrap_or(0));
        self.run_with(tx, Line::Far(far, sink.line.load(Relaxed)), |_| Ok(written.step()))?;
        Ok(Some(done))
    }
}

/// Writes `most` bytes of `buffers`, from their byte `skip` on, and returns how many it could. A place outside the far
/// buffer is the sink's mistake; an unmapped page of the program's is found later by the push into the ring.
fn write(far: &FarBuffer, at: u64, buffers: &[IoSlice<'_>], mut skip: usize, most: usize) -> usize {
    let mut done = 0;
    for buffer in buffers {
        let Some(rest) = buffer.get(skip..) else {
            skip -= buffer.len();
            continue;
        };
        skip = 0;
        let piece = &rest[..rest.len().min(most - done)];
        if far.copy_in(at.saturating_add(done as u64), piece).is_err() {
            break;
        }
        done += piece.len();
    }
    done
}
