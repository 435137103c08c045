//! The source of Read Zcopy: announces memory, and withdraws what the far program does not fetch.
//!
//! No lock is held while the far side fetches. Any other sender, be it another thread, a signal handler or a process that
//! shares the end, first withdraws the announcement, which takes no time; its owner finds that out later.

use super::super::add;
use super::super::moving::LockHeld;
use super::{CircuitEnd, Failure};
use core::cmp::Ordering;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::lock::NotTaken;
use crosslane_shm::ring::Violation;
use crosslane_shm::{Load, Store};
use crosslane_stream::zcopy::{Announced, Cancel, Mode, Open, Progress};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{MODE, RD_DONE, RING_AT, SEND_SM, SRC_OFF};
use crosslane_wire::zcopy::{Descriptor, LONGEST, bytes_of, next_sequence, sequence_of, word};
use crosslane_wire::{BufferId, WaiterId};

/// Bytes that the announcing record itself carries: Combined mode demands some.
const CARRIED: usize = 64;
/// Attempts to withdraw an announcement that is still open: the stream may move during each.
const TRIES: u32 = 1000;
/// Bytes below which an announcement is not worth its record.
const LEAST: usize = 4096;

/// Memory of a call that the far side may be fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    what: Announced,
    /// Bytes that the record itself carried.
    carried: usize,
    generation: u32,
    fetched: u32,
}

impl Announcement {
    /// Announced bytes.
    pub fn len(&self) -> u32 {
        self.what.len
    }

    /// Bytes that were fetched at the last look.
    pub fn fetched(&self) -> u32 {
        self.fetched
    }

    /// Always `false`: at least one byte is announced.
    pub fn is_empty(&self) -> bool {
        self.what.len == 0
    }
}

/// What the announced bytes follow in the stream.
#[derive(Clone, Copy, Debug)]
pub enum Behind<'a> {
    /// Nothing that is announced: open announcements are withdrawn first.
    Nothing,
    /// Other announcements of the same caller, of which this is the last one.
    Others(Option<&'a Announcement>),
}

impl Behind<'_> {
    fn mode(self) -> Mode {
        match self {
            Self::Nothing => Mode::Combined,
            Self::Others(_) => Mode::Pipelined,
        }
    }

    /// Whether that is still so.
    fn holds(self, open: &Open) -> bool {
        match self {
            Self::Nothing => true,
            Self::Others(last) => {
                open.last().map(|last| last.sequence) == last.map(|last| last.what.sequence)
            }
        }
    }
}

/// Result of an attempt to announce.
#[derive(Clone, Copy, Debug)]
pub enum Attempt {
    /// The memory is announced; the caller must wake this waiter.
    Open(Announcement, Option<WaiterId>),
    /// The memory was announced, but the stream has moved; this many of the call's bytes count.
    Over(usize, Option<WaiterId>),
    /// The bytes must go through the ring. Also if another process keeps the lock; see `crosslane_shm::lock::take_busy`.
    Ring,
}

/// State of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Open; this many bytes were fetched so far.
    Open(u32),
    /// The far side wants the bytes through the ring, or the stream is moving: withdraw the announcement.
    Unwanted,
    /// Over; this many of the call's bytes count.
    Over(usize),
}

impl CircuitEnd {
    /// Whether memory may be announced at all now.
    #[inline]
    pub fn may_announce(&self) -> bool {
        let segments = &self.generations.tx().segments;
        let mode = Mode::under(segments.inbound.load_u64(MODE), Mode::Combined);
        mode.announcements() > 0 && segments.way.zero_copy && self.is_steady()
    }

    /// Announces `bytes`, at byte `at` of `buffer`, which is exported for this circuit; they must not change until the
    /// announcement is over. If `behind` is an announcement that is still open, the bytes follow it
    /// ([`Mode::Pipelined`]); if it is over already, the bytes must wait for what is left of it.
    pub fn announce(
        &self,
        tid: u32,
        bytes: &[u8],
        (buffer, at): (BufferId, u64),
        behind: Behind<'_>,
    ) -> Result<Attempt, Failure> {
        let mode = behind.mode();
        let _guard = match self.lock_sending(tid) {
            Err(NotTaken::Busy) => return Ok(Attempt::Ring),
            taken => taken?,
        };
        self.may_send(Kind::SrcAvail)?;
        let carried = if mode == Mode::Combined { CARRIED.min(bytes.len()) } else { 0 };
        let (carried, rest) = bytes.split_at(carried);
        if rest.len() < LEAST || !self.may_announce() || self.gone() || self.owes() {
            return Ok(Attempt::Ring);
        }
        let behind_none = mode != Mode::Combined || self.take_back_open(tid)?;
        if !behind_none || !self.is_past_cancel()? {
            return Ok(Attempt::Ring);
        }
        let (zcopy, producer, tx) = (&self.shared.zcopy, &self.shared.producer, self.generations.tx());
        let (before, sequence) = (zcopy.open(), next_sequence(zcopy.last_source.load(Relaxed)));
        // The result of an announcement many sends ago, which its owner has not read yet, must not be overwritten.
        let taken = zcopy.result(sequence).load(Relaxed) != 0;
        if taken || before.count() >= mode.announcements() || !behind.holds(&before) {
            return Ok(Attempt::Ring);
        }
        let len = u32::try_from(rest.len()).unwrap_or(LONGEST).min(LONGEST);
        // Of several announcements, `want_fetched` later says for which one the sink must wake.
        let (at, rings) = (at + carried.len() as u64, mode == Mode::Combined);
        let descriptor = Descriptor { sequence, len, buffer, at, line: 0, units: u64::from(rings) }.encode();
        let (begin, segments, cpu) = (producer.units(), &tx.segments, self.processor());
        self.stamp(tx);
        let (ring, credits) = (&segments.outbound, &self.credits(tx));
        let pushed = producer.push_announcement(ring, credits, Kind::SrcAvail, &descriptor, carried, cpu);
        if !self.guarded(pushed.map_err(Failure::from))? {
            return Ok(Attempt::Ring);
        }
        zcopy.last_source.store(sequence, Relaxed);
        zcopy.set_open(&before.advanced(0, len, sequence));
        producer.count(len.into());
        add(&self.shared.sent.control, 1);
        let wake = self.data_waiter(tx);
        let what = Announced { sequence, len };
        let open = Announcement { what, carried: carried.len(), generation: tx.number(), fetched: 0 };
        if self.has_moved(tx) {
            let counted = self.decide(tid, tx, begin)?;
            if zcopy.open().find(sequence).is_none() {
                zcopy.result(sequence).store(0, Relaxed);
                let counted = usize::try_from(counted).unwrap_or(0).min(carried.len() + rest.len());
                add(&self.shared.counters.tx_bytes, counted);
                return Ok(Attempt::Over(counted, wake));
            }
        }
        Ok(Attempt::Open(open, wake))
    }

    /// The present state of `open`. Takes no lock while nothing changes; while another process keeps the lock, the state is the last one.
    pub fn stand(&self, tid: u32, open: &mut Announcement) -> Result<Stand, Failure> {
        // Words that are read without the lock may be of different moments: only the answer "still open" is used.
        if let Ok(Some(stand @ Stand::Open(_))) = self.look_at(&self.shared.zcopy.open(), open) {
            return Ok(stand);
        }
        let _guard = match self.lock_sending(tid) {
            Err(NotTaken::Busy) => return Ok(Stand::Open(open.fetched)),
            taken => taken?,
        };
        let all = self.shared.zcopy.open();
        if let Some(stand) = self.guarded(self.look_at(&all, open))? {
            return Ok(stand);
        }
        if let Some(index) = all.find(open.what.sequence) {
            self.retire(&all, index + 1);
        }
        self.counted(open).map(Stand::Over)
    }

    /// The state of `open`, one of `all`; `None` if it is over.
    fn look_at(&self, all: &Open, open: &mut Announcement) -> Result<Option<Stand>, Failure> {
        let Some(index) = all.find(open.what.sequence) else { return Ok(None) };
        let tx = self.generations.tx();
        if tx.number() != open.generation || !self.is_steady() || self.gone() {
            return Ok(Some(Stand::Unwanted));
        }
        let inbound = &tx.segments.inbound;
        let before = if index == 0 { open.fetched } else { 0 };
        let progress = all.progress(inbound.load_u64(RD_DONE), before)?;
        if progress.ended > index {
            return Ok(None);
        }
        open.fetched = if progress.ended == index { progress.fetched } else { 0 };
        let refused = bytes_of(inbound.load_u64(SEND_SM), open.what.sequence).is_some();
        Ok(Some(if refused { Stand::Unwanted } else { Stand::Open(open.fetched) }))
    }

    /// With the lock of sending: the first `ended` announcements were fetched in full.
    fn retire(&self, all: &Open, ended: usize) {
        let zcopy = &self.shared.zcopy;
        for Announced { sequence, len } in (0..ended).map(|index| all.at(index)) {
            zcopy.result(sequence).store(word(sequence, len), Relaxed);
        }
        zcopy.set_open(&all.advanced(ended, 0, 0));
    }

    /// With the lock of sending: whether the sink knows of the last withdrawal, since it has consumed the ring past it.
    /// Before that nothing may be announced: the sink's words can answer only one withdrawal.
    fn is_past_cancel(&self) -> Result<bool, Failure> {
        let (zcopy, producer, tx) = (&self.shared.zcopy, &self.shared.producer, self.generations.tx());
        if zcopy.off.load(Relaxed) == 0 {
            return Ok(true);
        }
        let waiting = producer.unconfirmed(&tx.segments.inbound).map_err(Failure::from);
        let consumed = producer.position().saturating_sub(self.guarded(waiting)?);
        // The sink consumes the announcing record before it fetches the announced bytes.
        let past = consumed > zcopy.off_at.load(Relaxed);
        if past {
            tx.segments.outbound.store_u64(SRC_OFF, 0);
            zcopy.off.store(0, Relaxed);
        }
        Ok(past)
    }

    /// Asks the sink to wake the waiter for room when `open`, one of several announcements, is fetched in full. To be
    /// called before [`Self::want_room`].
    pub fn want_fetched(&self, open: &Announcement) {
        self.generations.tx().segments.outbound.store_u64(RING_AT, word(open.what.sequence, 0));
    }

    /// Whether [`Self::stand`] would return a new state: for callers that wait.
    #[inline]
    pub fn is_answered(&self, open: &Announcement) -> bool {
        let inbound = &self.generations.tx().segments.inbound;
        let all = self.shared.zcopy.open();
        let Some(index) = all.find(open.what.sequence) else { return true };
        let ended = |progress: Progress| progress.ended > index;
        all.progress(inbound.load_u64(RD_DONE), 0).map_or(true, ended)
            || all.find(sequence_of(inbound.load_u64(SEND_SM))).is_some()
            || !self.is_steady()
    }

    /// Withdraws all announcements: bytes that were not fetched by now never count. Returns how many of the call's bytes
    /// count. Waits for the lock, since until it is taken the far side may fetch.
    pub fn withdraw(&self, tid: u32, open: &Announcement) -> Result<usize, Failure> {
        let _guard = self.lock_sending_surely(tid)?;
        for _ in 0..TRIES {
            if self.shared.zcopy.open().find(open.what.sequence).is_none() {
                return self.counted(open);
            }
            let tx = self.generations.tx();
            if tx.number() != open.generation || self.has_moved(tx) {
                // The stream is moving, so the daemons count the bytes that have arrived.
                let tx = self.generations.find(open.generation).unwrap_or(tx);
                self.await_next(tx)?;
            }
            self.take_back_open(tid)?;
        }
        self.guarded(Err(Violation::state("what is announced").into()))
    }

    /// With the lock of sending: withdraws all announcements. `Ok(false)`: the stream is moving, something is still
    /// announced, and nothing can be sent behind it now.
    #[inline]
    pub(in super::super) fn take_back_open(&self, tid: u32) -> Result<bool, Failure> {
        if self.shared.zcopy.open.load(Relaxed) == 0 { Ok(true) } else { self.take_all_back(tid) }
    }

    #[cold]
    fn take_all_back(&self, tid: u32) -> Result<bool, Failure> {
        let (all, tx) = (self.shared.zcopy.open(), self.generations.tx());
        if self.has_moved(tx) && self.dead().is_none() {
            self.catch_up(tid, LockHeld::Sending)?;
            return Ok(self.shared.zcopy.open().count() == 0);
        }
        self.shared.zcopy.off_at.store(self.shared.producer.position(), Relaxed);
        self.shared.zcopy.off.store(1, Relaxed);
        let mut cancel = Cancel::new(all, 0);
        let progress = self.run(tx, |loaded| cancel.step(loaded));
        let progress = self.guarded(progress)?;
        tx.segments.outbound.fence();
        if self.has_moved(tx) && self.await_next(tx)?.is_some() {
            // The daemons may have counted before they could see the withdrawal.
            self.catch_up(tid, LockHeld::Sending)?;
            return Ok(self.shared.zcopy.open().count() == 0);
        }
        self.close_open(progress);
        Ok(true)
    }

    /// With the lock of sending: no announcement is open any more; the bytes up to `progress` count.
    pub(in super::super) fn close_open(&self, progress: Progress) {
        let zcopy = &self.shared.zcopy;
        let all = zcopy.open();
        for (index, Announced { sequence, len }) in (0..all.count()).map(|index| (index, all.at(index))) {
            let counted = match index.cmp(&progress.ended) {
                Ordering::Less => len,
                Ordering::Equal => progress.fetched,
                Ordering::Greater => 0,
            };
            zcopy.result(sequence).store(word(sequence, counted), Relaxed);
        }
        self.shared.producer.discount(all.missing(progress));
        zcopy.set_open(&Open::default());
        add(&self.shared.sent.cancelled, all.count());
    }

    /// How many of the call's bytes count, once the announcement is over.
    fn counted(&self, open: &Announcement) -> Result<usize, Failure> {
        let result = self.shared.zcopy.result(open.what.sequence).swap(0, Relaxed);
        let Some(fetched) = bytes_of(result, open.what.sequence) else {
            // The stream was lost, or the result was read before.
            self.give_up("what was fetched of announced memory is not known");
            return Err(Failure::Reset);
        };
        if fetched > open.what.len {
            return self.guarded(Err(Violation::state("bytes that were fetched").into()));
        }
        let (sent, fetched) = (&self.shared.sent, fetched as usize);
        add(&sent.read_zcopy, fetched);
        add(&sent.spared, fetched);
        add(&self.shared.counters.tx_bytes, open.carried + fetched);
        Ok(open.carried + fetched)
    }
}
