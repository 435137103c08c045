//! Retention of sent bytes until they have landed, on paths that can lose them: over several cables, where hosts between
//! hold the bytes in their memory, and over a cable that posts stores.
//!
//! While the far program receives, only a small part of the retention ring is used, which stays in this processor's cache. If
//! the far program takes nothing for a while, the part doubles, so that a program may send megabytes before the far one reads.

use super::{CircuitEnd, Failure, Generation};
use crate::segments::Retention;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::Load;
use crosslane_shm::guarded::Fault;
use crosslane_shm::ring::{Source, Violation};
use crosslane_wire::record::{Kind, MAX_PAYLOAD};
use crosslane_wire::segment::{ACKED, RETENTION, RETENTION_MIN};

/// Less free retention than this counts as none, bytes, so that records do not become small.
const WORTHWHILE: u64 = 16 * 1024;

impl CircuitEnd {
    /// Bytes of the retention ring in use.
    pub(super) fn keeping_cap(&self) -> Result<u64, Violation> {
        let cap = self.shared.kept.cap.load(Relaxed);
        let is_one = cap.is_power_of_two() && (RETENTION_MIN..=RETENTION).contains(&cap);
        if is_one { Ok(cap) } else { Err(Violation::state("the length of what is kept")) }
    }

    /// As [`Self::keeping_cap`], for callers that only look; 0 if the shared value is impossible.
    fn keeping_cap_seen(&self) -> u64 {
        self.keeping_cap().unwrap_or(0)
    }

    /// Pushes as many of `bytes` as there is room for, and keeps them; a [`Fault`] if a page of the first record is not mapped.
    pub(super) fn push_kept<'a>(
        &self,
        tx: &Generation,
        kept: &Retention,
        bytes: impl Source<'a>,
        cpu: u16,
    ) -> Result<Result<usize, Fault>, Failure> {
        let mut done = 0;
        while done < bytes.length() {
            let wanted = (bytes.length() - done).min(usize::try_from(MAX_PAYLOAD).unwrap_or(usize::MAX));
            let room = self.keeping_room(tx, wanted as u64)?;
            if room < (wanted as u64).min(WORTHWHILE) {
                if self.lengthen(tx, kept)? {
                    continue;
                }
                break;
            }
            let piece = bytes.range(done..done + wanted.min(usize::try_from(room).unwrap_or(usize::MAX)));
            let pushed = match self.push_piece(tx, kept, piece, cpu)? {
                Ok(pushed) => pushed,
                Err(fault) if done == 0 => return Ok(Err(fault)),
                Err(_) => break,
            };
            done += pushed;
            if pushed < piece.length() {
                break;
            }
        }
        Ok(Ok(done))
    }

    /// Pushes as many bytes of `piece`, all of which can be kept, as there is room for.
    fn push_piece<'a>(
        &self,
        tx: &Generation,
        kept: &Retention,
        piece: impl Source<'a>,
        cpu: u16,
    ) -> Result<Result<usize, Fault>, Failure> {
        let (producer, segments) = (&self.shared.producer, &tx.segments);
        let unit = producer.units();
        let pushed = producer.push_guarded(&segments.outbound, &self.credits(tx), Kind::Data, piece, cpu)?;
        let Ok(pushed) = pushed else { return Ok(pushed) };
        let cap = self.keeping_cap()?;
        let mut at = unit;
        let all_kept = piece.range(0..pushed).slices().try_for_each(|slice| {
            let from = at;
            at = at.saturating_add(slice.len() as u64);
            kept.keep(cap, from, slice)
        });
        if all_kept.is_err() {
            // Another thread unmapped the memory between the two copies: the bytes under way could not be sent again.
            self.give_up("the memory that is sent went away");
            return Err(Failure::Reset);
        }
        self.note_kept(unit, pushed as u64, cap);
        Ok(Ok(pushed))
    }

    fn note_kept(&self, unit: u64, count: u64, cap: u64) {
        let (kept, to) = (&self.shared.kept, unit.saturating_add(count));
        if kept.to.load(Relaxed) != unit {
            kept.from.store(unit, Relaxed);
        }
        kept.to.store(to, Relaxed);
        kept.from.fetch_max(to.saturating_sub(cap), Relaxed);
    }

    /// Most bytes of the retention ring. They should all fit into the ring of another circuit, where this host's daemon
    /// sends them again if this program has ended.
    fn keeping_max(tx: &Generation) -> u64 {
        (tx.segments.ring_max / 2).clamp(RETENTION_MIN, RETENTION)
    }

    /// Whether the retention ring is full and could be longer: then [`Self::request_retention`] helps if the far program
    /// takes nothing for a while. A sender that must not wait does without it, as it polls for room.
    pub fn keeps_too_little(&self) -> bool {
        let tx = self.generations.tx();
        tx.segments.keeping().is_some()
            && self.shared.kept.grow_requested.load(Relaxed) == 0
            && self.keeping_cap_seen() < Self::keeping_max(tx)
            && self.keeping_glance() < WORTHWHILE
    }

    /// Doubles the retention ring at the next send that finds it full.
    pub fn request_retention(&self) {
        self.shared.kept.grow_requested.store(1, Relaxed);
    }

    /// With the lock of sending: doubles the retention ring, if that is possible, and was requested or stores of this end take time to land: there
    /// as much is under way as the cables and the hosts between hold, and a cache gains nothing.
    #[cold]
    fn lengthen(&self, tx: &Generation, kept: &Retention) -> Result<bool, Violation> {
        let shared = &self.shared.kept;
        let (cap, from, to) = (self.keeping_cap()?, shared.from.load(Relaxed), shared.to.load(Relaxed));
        let wanted = shared.grow_requested.swap(0, Relaxed) != 0 || tx.segments.posted_out_ns > 0;
        if !wanted || cap >= Self::keeping_max(tx) {
            return Ok(false);
        }
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from).min(cap)).unwrap_or(0)];
        let mut done = 0;
        while done < bytes.len() {
            done += kept.copy(cap, from.wrapping_add(done as u64), &mut bytes[done..]);
        }
        // If this process is killed in between, the ring keeps nothing, rather than wrong bytes.
        shared.from.store(to, Relaxed);
        shared.cap.store(cap * 2, Relaxed);
        let _ = kept.keep(cap * 2, from, &bytes);
        shared.from.store(from, Relaxed);
        Ok(true)
    }

    /// Stream offset up to which the far program has taken the bytes. On a relayed circuit the next host stores it (`ACKED`,
    /// counted from the circuit's start); else it is the sent offset minus the bytes of ring for which no credit has come back.
    fn acked(&self, tx: &Generation) -> u64 {
        let (sending, producer) = (&self.shared.sending, &self.shared.producer);
        if tx.segments.way.relayed {
            return sending.base.load(Relaxed).saturating_add(tx.segments.inbound.load_u64(ACKED));
        }
        let sent = producer.units();
        producer.unconfirmed(&self.credits(tx)).map_or(0, |bytes| sent.saturating_sub(bytes))
    }

    /// Bytes that may still be kept. Loads the acknowledged offset only if the last known one leaves less than `wanted`.
    fn keeping_room(&self, tx: &Generation, wanted: u64) -> Result<u64, Failure> {
        let (acked, most) = (&self.shared.sending.acked, self.shared.producer.units());
        let cap = self.keeping_cap()?;
        let room = |acked: u64| cap.saturating_sub(most.saturating_sub(acked));
        let least = acked.load(Relaxed);
        if room(least) >= wanted {
            return Ok(room(least));
        }
        let got = self.acked(tx);
        if got > most {
            return Err(Violation::Credit { got, least, most }.into());
        }
        Ok(room(acked.fetch_max(got, Relaxed).max(got)))
    }

    /// Bytes that may certainly be kept, without the lock; an impossible value is left for the sender to find.
    pub(super) fn keeping_glance(&self) -> u64 {
        let tx = self.generations.tx();
        if tx.segments.keeping().is_none() {
            return u64::MAX;
        }
        let sent = self.shared.producer.units();
        let acked = self.acked(tx).max(self.shared.sending.acked.load(Relaxed));
        self.keeping_cap_seen().saturating_sub(sent.saturating_sub(acked))
    }

    /// Whether a quarter of the retention ring is free, if there is one.
    pub(super) fn can_keep(&self) -> bool {
        let glance = self.keeping_glance();
        glance == u64::MAX || glance >= self.keeping_cap_seen() / 4
    }
}
