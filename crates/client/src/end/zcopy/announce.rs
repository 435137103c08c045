//! The source of Read Zcopy: announces memory, and takes back what the far program does not fetch.
//!
//! No lock is held while the far side fetches. Whoever else comes to send, be it another thread, a signal handler or a
//! process that shares the end, takes the announcement back first, which takes no time; its owner finds out.

use super::super::moving::Has;
use super::{End, Failure};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::Load;
use crosslane_stream::zcopy::{Announced, Cancel, Mode};
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use crosslane_wire::slice::{MODE, RD_DONE, SEND_SM};
use crosslane_wire::zcopy::{Descriptor, LONGEST, Whose, bytes_of, next_sequence, word};

/// Bytes that the announcing record carries itself, as Combined mode demands that it carries some.
const CARRIED: usize = 64;
/// Bytes below which an announcement is not worth its record.
const LEAST: usize = 4096;

/// Memory of a call that the far side may be fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    what: Announced,
    /// Units of the stream before the call.
    begin: u64,
    /// Bytes that the record carried.
    carried: usize,
    generation: u32,
    fetched: u32,
}

impl Announcement {
    /// Bytes that are to be fetched.
    pub fn len(&self) -> u32 {
        self.what.len
    }

    /// Whether there are none; there always are.
    pub fn is_empty(&self) -> bool {
        self.what.len == 0
    }
}

/// What came of an attempt to announce.
#[derive(Clone, Copy, Debug)]
pub enum Attempt {
    /// It is announced; this waiter must be rung.
    Open(Announcement, Option<WaiterId>),
    /// It was, and so many of the call's bytes count, but the stream has moved.
    Over(usize, Option<WaiterId>),
    /// This must go by the ring.
    Ring,
}

/// How an announcement stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// So many bytes were fetched so far.
    Open(u32),
    /// The far side wants it by the ring, or the stream moves: take it back.
    Unwanted,
    /// It is over, and so many of the call's bytes count.
    Over(usize),
}

impl End {
    /// Whether memory may be announced at all now.
    #[inline]
    pub fn may_announce(&self) -> bool {
        let slices = &self.generations.tx().slices;
        !slices.transit
            && Mode::under(slices.inbound.load_u64(MODE), Mode::Combined).announcements() > 0
            && self.is_settled()
    }

    /// Announces `bytes`, which lie `at` there; they must stay as they are until the announcement is over.
    pub fn announce(&self, tid: u32, bytes: &[u8], whose: Whose, at: u64) -> Result<Attempt, Failure> {
        let _guard = self.shared.sending.lock.lock(tid)?;
        self.may_send(Kind::SrcAvail)?;
        let (carried, rest) = bytes.split_at(CARRIED.min(bytes.len()));
        if rest.len() < LEAST || !self.may_announce() || self.gone() || self.owes() {
            return Ok(Attempt::Ring);
        }
        self.take_back_open(tid)?;
        let (zcopy, producer, tx) = (&self.shared.zcopy, &self.shared.producer, self.generations.tx());
        let sequence = next_sequence(zcopy.last_source.load(Relaxed));
        let len = u32::try_from(rest.len()).unwrap_or(LONGEST).min(LONGEST);
        let at = at + carried.len() as u64;
        let descriptor = Descriptor { sequence, len, whose, at, units: 0 }.encode();
        let (begin, slices, cpu) = (producer.units(), &tx.slices, self.processor());
        self.stamp(tx);
        let (ring, credits) = (&slices.outbound, &slices.inbound);
        let pushed = producer.push_announcement(ring, credits, Kind::SrcAvail, &descriptor, carried, cpu);
        if !self.guarded(pushed.map_err(Failure::from))? {
            return Ok(Attempt::Ring);
        }
        zcopy.last_source.store(sequence, Relaxed);
        zcopy.open_len.store(len, Relaxed);
        zcopy.open.store(sequence, Relaxed);
        producer.count(len.into());
        self.shared.sent.control.store(self.shared.sent.control.load(Relaxed) + 1, Relaxed);
        let wake = self.data_bell(tx);
        let what = Announced { sequence, len };
        let open = Announcement { what, begin, carried: carried.len(), generation: tx.number(), fetched: 0 };
        if self.has_moved(tx) {
            let counted = self.settle_open_by(tid, &open)?;
            return Ok(Attempt::Over(counted, wake));
        }
        Ok(Attempt::Open(open, wake))
    }

    /// How `open` stands now. Takes no lock unless it is over.
    pub fn stand(&self, tid: u32, open: &mut Announcement) -> Result<Stand, Failure> {
        let zcopy = &self.shared.zcopy;
        if zcopy.open.load(Relaxed) != open.what.sequence {
            return self.counted(open).map(Stand::Over);
        }
        if self.dead().is_some() || self.gone() {
            return Err(Failure::Reset);
        }
        let tx = self.generations.tx();
        if tx.number() != open.generation || !self.is_settled() {
            return Ok(Stand::Unwanted);
        }
        let inbound = &tx.slices.inbound;
        let (done, sm) = (inbound.load_u64(RD_DONE), inbound.load_u64(SEND_SM));
        let progress = self.guarded(open.what.progress(done, sm, open.fetched).map_err(Failure::from))?;
        open.fetched = progress.fetched;
        if progress.fetched < open.what.len {
            return Ok(if progress.refused { Stand::Unwanted } else { Stand::Open(progress.fetched) });
        }
        let _guard = self.shared.sending.lock.lock(tid)?;
        if zcopy.open.load(Relaxed) != open.what.sequence {
            return self.counted(open).map(Stand::Over);
        }
        zcopy.open.store(0, Relaxed);
        Ok(Stand::Over(self.note_sent(open, open.what.len)))
    }

    /// Whether [`Self::stand`] would say something new: for those who wait.
    #[inline]
    pub fn is_answered(&self, open: &Announcement) -> bool {
        let inbound = &self.generations.tx().slices.inbound;
        bytes_of(inbound.load_u64(RD_DONE), open.what.sequence) == Some(open.what.len)
            || bytes_of(inbound.load_u64(SEND_SM), open.what.sequence).is_some()
            || self.shared.zcopy.open.load(Relaxed) != open.what.sequence
            || !self.is_settled()
    }

    /// Takes `open` back: what was not fetched by now never counts. Returns how many of the call's bytes do.
    pub fn withdraw(&self, tid: u32, open: &Announcement) -> Result<usize, Failure> {
        let _guard = self.shared.sending.lock.lock(tid)?;
        if self.shared.zcopy.open.load(Relaxed) != open.what.sequence {
            return self.counted(open);
        }
        let tx = self.generations.tx();
        if tx.number() != open.generation || self.has_moved(tx) {
            return self.settle_open_by(tid, open);
        }
        self.take_back_open(tid)?;
        self.counted(open)
    }

    /// With the lock of sending: takes back whatever is announced.
    pub(in super::super) fn take_back_open(&self, tid: u32) -> Result<(), Failure> {
        let (zcopy, tx) = (&self.shared.zcopy, self.generations.tx());
        let sequence = zcopy.open.load(Relaxed);
        if sequence == 0 {
            return Ok(());
        }
        if self.has_moved(tx) {
            return self.catch_up(tid, Has::Sending);
        }
        let what = Announced { sequence, len: zcopy.open_len.load(Relaxed) };
        let mut cancel = Cancel::new(what, 0);
        let counted = self.run(tx, |loaded| cancel.step(loaded));
        let counted = self.guarded(counted)?;
        self.close_open(counted);
        Ok(())
    }

    /// With the lock of sending: nothing is announced any more, and `counted` bytes of what was count.
    pub(in super::super) fn close_open(&self, counted: u32) {
        let zcopy = &self.shared.zcopy;
        let (sequence, len) = (zcopy.open.load(Relaxed), zcopy.open_len.load(Relaxed));
        self.shared.producer.discount(len.saturating_sub(counted).into());
        zcopy.withdrawn.store(word(sequence, counted), Relaxed);
        zcopy.open.store(0, Relaxed);
        let cancelled = &self.shared.sent.cancelled;
        cancelled.store(cancelled.load(Relaxed) + 1, Relaxed);
    }

    /// With the lock of sending: the stream has moved, and the daemon has counted; waits until that is known.
    fn settle_open_by(&self, tid: u32, open: &Announcement) -> Result<usize, Failure> {
        let tx = self.generations.find(open.generation).unwrap_or_else(|| self.generations.tx());
        let counted = self.decide(tid, tx, open.begin)?;
        if self.shared.zcopy.open.load(Relaxed) == open.what.sequence {
            let fetched = counted.saturating_sub(open.carried as u64);
            self.close_open(u32::try_from(fetched).unwrap_or(0));
        }
        Ok(usize::try_from(counted).unwrap_or(0))
    }

    /// How many of the call's bytes count, after somebody took the announcement back.
    fn counted(&self, open: &Announcement) -> Result<usize, Failure> {
        let withdrawn = self.shared.zcopy.withdrawn.load(Relaxed);
        let counted = bytes_of(withdrawn, open.what.sequence).ok_or(Failure::Reset)?;
        Ok(self.note_sent(open, counted))
    }

    fn note_sent(&self, open: &Announcement, fetched: u32) -> usize {
        let (sent, counters) = (&self.shared.sent, &self.shared.counters);
        for (counter, bytes) in [
            (&sent.read_zcopy, u64::from(fetched)),
            (&sent.spared, u64::from(fetched)),
            (&counters.tx_bytes, u64::from(fetched) + open.carried as u64),
        ] {
            counter.store(counter.load(Relaxed).wrapping_add(bytes), Relaxed);
        }
        open.carried + fetched as usize
    }
}
