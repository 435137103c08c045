//! The sink of Read Zcopy: fetches the bytes that the far side has announced, directly into the program's buffer.

use super::super::moving::{CircuitState, LockHeld};
use super::{CircuitEnd, Failure};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::account::{self, Function};
use crosslane_shm::{Load, Store};
use crosslane_stream::zcopy::{Confirm, Fetched, InvalidReference, is_off};
use crosslane_wire::segment::{MODE, RING_AT, SEND_SM, SRC_OFF};
use crosslane_wire::zcopy::{sequence_of, word};
use std::time::{Duration, Instant};

/// Most bytes fetched between two reports to the source, so that a source that withdraws its memory loses little.
const PIECE: u64 = 1 << 20;
/// Announcements in a row that this end could not reach, after which it refuses more.
const REFUSALS: u32 = 3;
/// How long the daemons' count is waited for, after a piece was fetched while the stream moved.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

impl CircuitEnd {
    /// With the lock of receiving, while bytes are announced: whether there is something to fetch.
    #[cold]
    pub(in super::super) fn process_announced(&self, tid: u32) -> Result<bool, Failure> {
        let (consumer, source) = (&self.shared.consumer, &self.shared.zcopy.source);
        if !self.is_steady() {
            self.catch_up(tid, LockHeld::Receiving)?;
            if consumer.elsewhere() == 0 {
                return Ok(true);
            }
        }
        if self.is_off() {
            let (sequence, done) = (source.sequence.load(Relaxed), source.done.load(Relaxed));
            if done > 0 {
                let mut verdict = Confirm::awaiting(sequence, done);
                let verdict = self.run(self.generations.rx(), |loaded| verdict.step(loaded))?;
                if verdict == Fetched::Counts {
                    let most = source.len.load(Relaxed);
                    return Err(InvalidReference { sequence, got: done, least: most, most }.into());
                }
            }
            consumer.end_elsewhere();
            return Ok(true);
        }
        Ok(source.refused.load(Relaxed) == 0 && self.counts(self.generations.rx()))
    }

    /// Whether bytes are announced and a receive must act on them.
    #[inline]
    pub(in super::super) fn has_elsewhere(&self) -> bool {
        self.shared.zcopy.source.refused.load(Relaxed) == 0 || self.is_off() || !self.is_steady()
    }

    /// Whether the source has withdrawn its memory.
    fn is_off(&self) -> bool {
        let off = self.generations.rx().segments.inbound.load_u64(SRC_OFF);
        is_off(off, self.shared.zcopy.source.sequence.load(Relaxed))
    }

    /// With the lock of receiving, after [`Self::process_announced`]: fetches into `target`; 0 if nothing is left, or the
    /// rest comes through the ring.
    pub(in super::super) fn fetch(&self, tid: u32, target: &mut [u8]) -> Result<usize, Failure> {
        let (consumer, source) = (&self.shared.consumer, &self.shared.zcopy.source);
        let (sequence, done) = (source.sequence.load(Relaxed), source.done.load(Relaxed));
        let wanted = consumer.elsewhere().min(PIECE).min(target.len() as u64);
        let (rx, count) = (self.generations.rx(), usize::try_from(wanted).unwrap_or(0));
        let at = source.at.load(Relaxed).saturating_add(done.into());
        // A source that keeps announcing after the refusal causes no more requests for its buffers.
        let reached = if self.shared.zcopy.refusals.load(Relaxed) < REFUSALS {
            let _span = account::receiving(Function::CopyOut);
            self.reach(tid, source.buffer(), at, &mut target[..count]).ok().transpose()?
        } else {
            None
        };
        if reached.is_none() {
            self.refuse();
            self.note_refusal();
            return Ok(0);
        }
        self.shared.zcopy.refusals.store(0, Relaxed);
        // Counted before the source is told: the daemons must not give another count afterwards.
        consumer.count(wanted, word(sequence, done));
        if !self.still_counts(wanted)? {
            return Ok(0);
        }
        let after = done.saturating_add(u32::try_from(wanted).unwrap_or(0));
        let mut confirm = Confirm::new(sequence, done, after);
        let fetched = self.run(rx, |loaded| confirm.step(loaded))?;
        rx.segments.outbound.fence();
        let said = fetched != Fetched::Void;
        // The daemons' count takes precedence over the source's word.
        let moved = fetched != Fetched::Counts && !self.is_steady() && !self.counts(rx);
        if !(if moved { self.was_counted(said)?.unwrap_or(said) } else { said }) {
            consumer.discount(wanted);
            return Ok(0);
        }
        match fetched {
            Fetched::Counts => source.done.store(after, Relaxed),
            Fetched::CountsAndEnds | Fetched::Void => consumer.end_elsewhere(),
        }
        consumer.confirm();
        // Dekker's algorithm: the source's wish is read after the report is stored, so one of the two sides sees the other's word.
        let wanted = || sequence_of(rx.segments.inbound.load_u64(RING_AT)) == sequence;
        if consumer.elsewhere() == 0 && (source.units.load(Relaxed) != 0 || wanted()) {
            self.shared.zcopy.wake.store(1, Relaxed);
        }
        super::super::add(&self.shared.received.control, 1);
        super::super::add(&self.shared.received.read_zcopy, count);
        Ok(count)
    }

    /// With the lock of receiving, after `bytes` were fetched and counted as received. `Ok(false)`: the stream is moving
    /// and these bytes do not count; they come again.
    fn still_counts(&self, bytes: u64) -> Result<bool, Failure> {
        let rx = self.generations.rx();
        rx.segments.outbound.fence();
        let counts = self.is_steady() || self.counts(rx) || self.was_counted(false)?.unwrap_or(true);
        if !counts {
            self.shared.consumer.discount(bytes);
        }
        Ok(counts)
    }

    /// As [`Self::still_counts`], for bytes that the far side has written. If the daemons have not counted them, the far
    /// side knows that, and has sent nothing behind them here. No fence is needed: the far side stored `WR_DONE` before
    /// this thread saw it. A daemon that did not see `WR_DONE` while counting had set the status word to moving before,
    /// so this thread sees that; a daemon that saw it has counted the bytes, taken or not.
    pub(super) fn landed_counts(&self, bytes: u64) -> Result<bool, Failure> {
        let consumer = &self.shared.consumer;
        let counts = self.is_steady()
            || self.counts(self.generations.rx())
            || self.await_limit()?.is_none_or(|limit| consumer.units() <= limit);
        if !counts {
            consumer.discount(bytes);
        }
        Ok(counts)
    }

    /// With the lock of receiving: the stream began to move while bytes were fetched. Waits until it is known whether they count;
    /// if the daemons have not counted, the bytes come again. `said`: the source's answer, if it withdrew the announcement.
    #[cold]
    fn was_counted(&self, said: bool) -> Result<Option<bool>, Failure> {
        let (limit, consumer) = (self.await_limit()?, &self.shared.consumer);
        // More records follow only if the source withdrew the rest before the daemons counted.
        let behind = || consumer.cursor().has_more(&self.generations.rx().segments.inbound);
        Ok(limit.map(|limit| if behind() { said } else { consumer.units() <= limit }))
    }

    /// With the lock of receiving, while the stream moves: waits for the stream offset up to which bytes of this ring
    /// count; `None` if the daemons have not counted.
    #[cold]
    fn await_limit(&self) -> Result<Option<u64>, Failure> {
        let start = Instant::now();
        while start.elapsed() < MOVE_TIMEOUT {
            match self.circuit_state() {
                CircuitState::Dead(_) => return Ok(None),
                CircuitState::Lives(generation) => {
                    self.fetch_segments(generation)?;
                    return Ok(self.generations.rx().next().map(|next| next.limit));
                }
                CircuitState::Moving => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        self.give_up("the stream moves for too long");
        Err(Failure::Reset)
    }

    /// With the lock of receiving: the announced memory could not be reached. After several in a row asks the source to
    /// announce no more (ModeChange to Buffered).
    #[cold]
    fn note_refusal(&self) {
        if self.shared.zcopy.refusals.fetch_add(1, Relaxed).saturating_add(1) >= REFUSALS {
            self.generations.rx().segments.outbound.store_u64(MODE, 1);
        }
    }

    /// With the lock of receiving: asks the source to send the announced bytes through the ring.
    pub(in super::super) fn refuse(&self) {
        let source = &self.shared.zcopy.source;
        if source.refused.swap(1, Relaxed) == 0 {
            let sequence = source.sequence.load(Relaxed);
            let rx = self.generations.rx();
            rx.segments.outbound.store_u64(SEND_SM, word(sequence, 0));
            self.wake_by_daemon(self.room_waiter(rx));
        }
    }
}
