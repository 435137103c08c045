//! Bulk that the daemon's engine moves in place of this process. The caller holds the lock of the direction, and
//! afterwards finds the ring's state as if it had moved the bytes itself.

use super::ping_pong::Side;
use super::{CircuitEnd, Failure, Generation};
use crate::offload::{self, Handed, Offload};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use crosslane_shm::buffer::locate;
use crosslane_shm::remote::Span;
use crosslane_shm::state::Modes;
use crosslane_shm::submission::{Descriptor, SPANS, Way};
use crosslane_stream::Direction;
use crosslane_wire::Reach;
use crosslane_wire::record::Kind;
use std::io::{IoSlice, IoSliceMut};

/// Longest piece of a call that is handed over at once, bytes: signals are delayed for as long as it takes.
const LONGEST: usize = 4 << 20;
/// A record at the front with this many bytes left announces bulk.
const BULK: usize = 16 * 1024;
/// Calls in a row that the engine may decline before it is not asked for these rings any more.
const IN_VAIN: u32 = 16;
/// Value of `in_vain`: the engine does not take these rings.
const REFUSED: u32 = u32::MAX;

/// The relation of this process and the engine regarding one end.
#[derive(Debug, Default)]
pub(super) struct OffloadState {
    /// The generation, and the engine's handle for its rings; 0 if the engine was not asked.
    rings: AtomicU64,
    /// The session that gave the handle: a child of `fork` and a new session have another.
    by: AtomicPtr<Offload>,
    /// The last receive was bulk: the next one waits in the engine.
    bulk: AtomicBool,
    /// Calls in a row that the engine declined.
    in_vain: AtomicU32,
    /// The engine waited for the far side during the last call.
    waited: AtomicBool,
    /// The engine has given credit, and the far side's waiter was not checked since.
    credited: AtomicBool,
    /// Turns of the two directions, sending and receiving.
    out: Side,
    into: Side,
}

impl CircuitEnd {
    /// Whether a call for `bytes` may use the daemon's engine: only such a call needs an [`offload::Allowed`].
    #[inline]
    pub fn suits_engine(&self, bytes: usize) -> bool {
        bytes >= BULK && self.offload()
    }

    /// Sends as many bytes of `buffers`, from their byte `skip` on, as the engine takes; 0 if it takes none.
    #[inline(always)]
    pub(super) fn hand_out(
        &self,
        tid: u32,
        tx: &Generation,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<usize, Failure> {
        let hands = self.offload() && !self.is_striped.load(Relaxed);
        if hands { self.try_hand_out(tid, tx, buffers, skip) } else { Ok(0) }
    }

    fn try_hand_out(
        &self,
        tid: u32,
        tx: &Generation,
        buffers: &[IoSlice<'_>],
        skip: usize,
    ) -> Result<usize, Failure> {
        let spans = buffers.iter().map(|buffer| (buffer.as_ptr() as u64, buffer.len()));
        if self.is_turn(tid, Way::Out) || !offload::is_allowed() {
            return Ok(0);
        }
        let Some((engine, mut descriptor)) = self.descriptor(Way::Out, tx, spans, skip, LONGEST) else {
            return Ok(0);
        };
        descriptor.rung = self.shared.sending.rung.load(Relaxed);
        self.shared.producer.close(&tx.segments.outbound)?;
        self.handed(engine.run(Way::Out, &descriptor), &self.shared.sent)
    }

    /// Receives into `buffers` through the engine; 0 if the engine does not do that, or nothing came.
    #[inline(always)]
    pub(super) fn hand_in(
        &self,
        tid: u32,
        buffers: &[IoSliceMut<'_>],
        skip: usize,
    ) -> Result<usize, Failure> {
        let hands = self.offload() && !self.is_striped.load(Relaxed);
        if hands { self.try_hand_in(tid, buffers, skip) } else { Ok(0) }
    }

    fn try_hand_in(&self, tid: u32, buffers: &[IoSliceMut<'_>], skip: usize) -> Result<usize, Failure> {
        let rx = self.generations.rx();
        let spans = buffers.iter().map(|buffer| (buffer.as_ptr() as u64, buffer.len()));
        if self.is_turn(tid, Way::In) || !offload::is_allowed() {
            return Ok(0);
        }
        let Some((engine, mut descriptor)) = self.descriptor(Way::In, rx, spans, skip, LONGEST) else {
            return Ok(0);
        };
        if !self.expects_bulk(tid)? || self.rx() != Direction::Open || !self.is_steady() {
            return Ok(0);
        }
        descriptor.rung = self.shared.receiving.rung.load(Relaxed);
        let moved = self.handed(engine.run(Way::In, &descriptor), &self.shared.received);
        self.note_bulk(moved.unwrap_or(0));
        moved
    }

    /// Whether this thread and the far side take turns: then the far program waits for these bytes, and waking the engine
    /// would take longer than copying them.
    fn is_turn(&self, tid: u32, way: Way) -> bool {
        let (counters, offload_state) = (&self.shared.counters, &self.offload_state);
        let (sent, received) = (counters.tx_bytes.load(Relaxed), counters.rx_bytes.load(Relaxed));
        match way {
            Way::Out => offload_state.out.is_turn(tid, sent, &offload_state.into, received),
            Way::In => offload_state.into.is_turn(tid, received, &offload_state.out, sent),
        }
    }

    /// Notes, from the number of bytes that the engine has received, whether more bulk is to be expected.
    pub(super) fn note_bulk(&self, bytes: usize) {
        self.offload_state.bulk.store(bytes >= BULK, Relaxed);
    }

    /// Whether the engine has waited for the far side since the last call of this: then a spin would not help.
    #[inline]
    pub fn engine_waited(&self) -> bool {
        self.offload_state.waited.load(Relaxed) && self.offload_state.waited.swap(false, Relaxed)
    }

    fn is_bulk(&self) -> bool {
        self.offload_state.bulk.load(Relaxed)
    }

    /// Whether the engine has given credit since the last call of this.
    pub(super) fn was_credited(&self) -> bool {
        self.offload_state.credited.load(Relaxed) && self.offload_state.credited.swap(false, Relaxed)
    }

    /// The descriptor to submit, if the engine may take the transfer.
    #[inline]
    pub(super) fn descriptor(
        &self,
        way: Way,
        at: &Generation,
        spans: impl Iterator<Item = (u64, usize)> + Clone,
        skip: usize,
        longest: usize,
    ) -> Option<(&'static Offload, Descriptor)> {
        if !at.segments.way.offload || !self.is_steady() {
            return None;
        }
        let total = spans.clone().map(|(_, len)| len).sum::<usize>() - skip;
        if total < BULK {
            return None;
        }
        let engine = self.daemon.offload()?;
        if !engine.is_worth(total) {
            return None;
        }
        let handle = self.handle(at, engine)?;
        let (buffer, begin) = self.registered(way, engine, spans.clone()).unwrap_or_default();
        let spans = spans.map(|(address, len)| (address.wrapping_sub(begin), len));
        Some((engine, Descriptor { handle, buffer, spans: place(spans, skip, longest), rung: 0 }))
    }

    /// The engine's handle for the buffer that contains all the pieces, and where the buffer begins; `None` for plain
    /// memory, a buffer that is used for the first time, or one into which other processes may not store.
    fn registered(
        &self,
        way: Way,
        engine: &'static Offload,
        mut spans: impl Iterator<Item = (u64, usize)>,
    ) -> Option<(u32, u64)> {
        let (Some((address, len)), None) = (spans.next(), spans.next()) else { return None };
        let located = locate(core::ptr::without_provenance(usize::try_from(address).ok()?), len)?;
        if located.uses == 0 || (way == Way::In && located.reach != Reach::Store) {
            return None;
        }
        let handle = engine.registered(&located, || self.daemon.register_buffer(&located))?;
        Some((handle, address - located.offset))
    }

    /// The engine's handle for the rings of this generation.
    fn handle(&self, at: &Generation, engine: &'static Offload) -> Option<u32> {
        let by = core::ptr::from_ref(engine).cast_mut();
        if self.offload_state.by.load(Relaxed) != by {
            self.offload_state.rings.store(0, Relaxed);
            self.offload_state.in_vain.store(0, Relaxed);
            self.offload_state.by.store(by, Relaxed);
        }
        let packed = self.offload_state.rings.load(Relaxed);
        let (generation, known) = ((packed >> 32) as u32, (packed & 0xffff_ffff) as u32);
        let handle = if known != 0 && generation == at.number() {
            known
        } else {
            let told = self.daemon.register_rings(self.circuit, self.token, at.number());
            let handle = if told == 0 { REFUSED } else { told };
            self.offload_state.rings.store(u64::from(at.number()) << 32 | u64::from(handle), Relaxed);
            handle
        };
        (handle != REFUSED).then_some(handle)
    }

    /// After some declined calls the engine is not asked for these rings again.
    fn declined(&self, bytes: usize) {
        let in_vain = if bytes > 0 { 0 } else { self.offload_state.in_vain.load(Relaxed) + 1 };
        self.offload_state.in_vain.store(in_vain, Relaxed);
        if in_vain == IN_VAIN {
            self.offload_state.rings.fetch_or(REFUSED.into(), Relaxed);
        }
    }

    /// Whether many bytes lie at the front, or are probably on their way. The engine does not handle open records.
    pub(super) fn expects_bulk(&self, tid: u32) -> Result<bool, Failure> {
        let consumer = &self.shared.consumer;
        let comes = if self.process_control(tid)? {
            let head = consumer.head(&self.generations.rx().segments.inbound)?;
            head.is_some_and(|head| head.kind == Kind::Data && (head.left >= BULK || self.is_bulk()))
        } else {
            self.is_bulk()
        };
        Ok(comes && !consumer.is_open())
    }

    pub(super) fn handed(&self, handed: Handed, modes: &Modes) -> Result<usize, Failure> {
        let moved = self.outcome(handed);
        if let Ok(bytes) = moved {
            modes.offloaded.fetch_add(bytes as u64, Relaxed);
        }
        moved
    }

    fn outcome(&self, handed: Handed) -> Result<usize, Failure> {
        match handed {
            Handed::Transferred { bytes, credited } => {
                if credited {
                    self.offload_state.credited.store(true, Relaxed);
                }
                self.offload_state.waited.store(true, Relaxed);
                Ok(bytes)
            }
            Handed::Declined { bytes } => {
                self.declined(bytes);
                Ok(bytes)
            }
            Handed::Fault { bytes: 0 } => Err(Failure::Fault),
            Handed::Fault { bytes } => Ok(bytes),
            Handed::Lost => {
                self.give_up("the offload engine was lost");
                Err(Failure::Reset)
            }
        }
    }
}

/// The first bytes behind `skip`, at most `longest`, as pieces of one transfer.
fn place(spans: impl Iterator<Item = (u64, usize)>, mut skip: usize, longest: usize) -> [Span; SPANS] {
    let (mut placed, mut count, mut left) = ([Span::default(); SPANS], 0, longest);
    for (address, len) in spans {
        let before = skip.min(len);
        skip -= before;
        let take = (len - before).min(left);
        if take > 0 && count < SPANS {
            placed[count] = Span { address: address + before as u64, len: take };
            (count, left) = (count + 1, left - take);
        }
    }
    placed
}
