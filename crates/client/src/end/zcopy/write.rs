//! The source of Write Zcopy and of Transactions: writes into what the sink offers.

use super::super::add;
use super::super::send::total;
use super::{End, Failure};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::{FarBuffer, Store};
use crosslane_stream::zcopy::{Claim, Written};
use crosslane_wire::zcopy::Whose;
use crosslane_wire::{BufferId, Reach, WaiterId};
use std::io::IoSlice;

impl End {
    /// With the lock of sending: writes as much of `buffers`, from their byte `skip` on, as was offered room for. `Ok(None)`:
    /// nothing is offered, or not for this.
    #[inline]
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

    fn write_there(
        &self,
        tid: u32,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<Option<(usize, Option<WaiterId>)>, Failure> {
        let sink = &self.shared.zcopy.sink;
        let sequence = sink.sequence.swap(0, Relaxed);
        let (producer, tx) = (&self.shared.producer, self.generations.tx());
        let begin = producer.units();
        let here = sink.generation.load(Relaxed) == tx.number() && !tx.slices.transit;
        if sequence == 0 || !here || sink.units.load(Relaxed) != begin {
            return Ok(None);
        }
        let Whose::Buffer(number) = sink.whose() else { return Ok(None) };
        let Ok(far) = self.far_buffer(tid, BufferId(number), Reach::Store) else {
            return Ok(None);
        };
        let mut claim = Claim::new(sequence);
        if !self.run(tx, |loaded| Ok(claim.step(loaded)))? {
            return Ok(None);
        }
        let most = (sink.len.load(Relaxed) as usize).min(total(buffers) - skip);
        let done = write(&far, sink.at.load(Relaxed), buffers, skip, most);
        producer.close(&tx.slices.outbound);
        producer.count(done as u64);
        tx.slices.outbound.store_fence();
        let mut written = Written::new(sequence, u32::try_from(done).unwrap_or(0));
        self.run(tx, |_| Ok(written.step()))?;
        let wake = self.data_bell(tx);
        if self.has_moved(tx) {
            let counted = self.decide(tid, tx, begin)?;
            return Ok(Some((usize::try_from(counted).unwrap_or(0), wake)));
        }
        add(&self.shared.sent.write_zcopy, done);
        add(&self.shared.sent.control, 1);
        Ok(Some((done, wake)))
    }
}

/// Writes `most` bytes of `buffers`, from their byte `skip` on, and returns how many it could: a place that is none is the
/// sink's mistake.
fn write(far: &FarBuffer, at: u64, buffers: &[IoSlice<'_>], mut skip: usize, most: usize) -> usize {
    let mut done = 0;
    for buffer in buffers {
        let Some(rest) = buffer.get(skip..) else {
            skip -= buffer.len();
            continue;
        };
        skip = 0;
        let piece = &rest[..rest.len().min(most - done)];
        if far.copy_in(at + done as u64, piece).is_err() {
            break;
        }
        done += piece.len();
    }
    done
}
