//! Posted writes that cross the cable.

use super::memory::Memory;
use fastrand::Rng;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most bytes of one packet.
const PACKET: usize = 128;
/// Words that a processor combines before it must let one go: twelve buffers of a cache line.
const GATHERED: usize = 96;

/// The effect of a posted write when it arrives.
#[derive(Debug)]
pub(super) enum Write {
    /// Memory behind a window.
    Memory { memory: Arc<Memory>, offset: usize, bytes: Vec<u8> },
    /// A scratchpad.
    Scratchpad { index: usize, value: u32 },
    /// Doorbells.
    Doorbell(u32),
}

/// One direction of a cable: the stores that the processor still combines, and the writes under way, in order.
#[derive(Debug, Default)]
pub(super) struct Lane {
    gathered: Vec<Gathered>,
    under_way: VecDeque<(u64, Write)>,
}

/// An aligned word of which some bytes were stored.
#[derive(Debug)]
struct Gathered {
    memory: Arc<Memory>,
    word: usize,
    bytes: [Option<u8>; 8],
}

/// The timing of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Shortest time under way, ns.
    pub(super) delay: u64,
    /// Longest random addition to that time, ns. No write overtakes another.
    pub(super) jitter: u64,
    /// Whether stores to windows are combined and leave in any order.
    pub(super) combine: bool,
}

impl Lane {
    /// Takes a store to a window.
    pub(super) fn store(
        &mut self,
        memory: &Arc<Memory>,
        offset: usize,
        bytes: &[u8],
        now: u64,
        pace: Pace,
        dice: &mut Rng,
    ) {
        if pace.combine {
            for (at, part) in by_words(offset, bytes) {
                self.gather(memory, at, part);
                while self.gathered.len() > GATHERED {
                    self.let_one_go(now, pace, dice);
                }
            }
            return;
        }
        let mut at = offset;
        for packet in bytes.chunks(PACKET) {
            let write = Write::Memory { memory: memory.clone(), offset: at, bytes: packet.to_vec() };
            self.post(write, now, pace, dice);
            at += packet.len();
        }
    }

    /// Puts a write under way, behind all others.
    pub(super) fn post(&mut self, write: Write, now: u64, pace: Pace, dice: &mut Rng) {
        let earliest = now + pace.delay + dice.u64(..=pace.jitter);
        let due = self.under_way.back().map_or(earliest, |(last, _)| earliest.max(*last));
        self.under_way.push_back((due, write));
    }

    /// Lets all combined stores go, in any order: a store fence.
    pub(super) fn fence(&mut self, now: u64, pace: Pace, dice: &mut Rng) {
        while !self.gathered.is_empty() {
            self.let_one_go(now, pace, dice);
        }
    }

    /// Lets about half of the combined stores go, as processors do over time.
    pub(super) fn spill(&mut self, now: u64, pace: Pace, dice: &mut Rng) {
        for _ in 0..self.gathered.len().div_ceil(2) {
            self.let_one_go(now, pace, dice);
        }
    }

    /// When the next write arrives, ns.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.under_way.front().map(|(due, _)| *due)
    }

    /// The next write that has arrived by `now`.
    pub(super) fn arrived(&mut self, now: u64) -> Option<Write> {
        if self.next_due()? > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, write)| write)
    }

    /// Drops all writes; doorbells are kept if they may arrive in the next life.
    pub(super) fn lose(&mut self, keep_doorbells: bool) {
        self.gathered.clear();
        self.under_way.retain(|(_, write)| keep_doorbells && matches!(write, Write::Doorbell(_)));
    }

    /// Adds bytes of one word to those combined so far.
    fn gather(&mut self, memory: &Arc<Memory>, offset: usize, part: &[u8]) {
        let word = offset / 8 * 8;
        let is_it = |entry: &Gathered| entry.word == word && Arc::ptr_eq(&entry.memory, memory);
        let index = self.gathered.iter().position(is_it).unwrap_or_else(|| {
            self.gathered.push(Gathered { memory: memory.clone(), word, bytes: [None; 8] });
            self.gathered.len() - 1
        });
        let bytes = &mut self.gathered[index].bytes[offset % 8..];
        bytes.iter_mut().zip(part).for_each(|(byte, stored)| *byte = Some(*stored));
    }

    fn let_one_go(&mut self, now: u64, pace: Pace, dice: &mut Rng) {
        let entry = self.gathered.swap_remove(dice.usize(..self.gathered.len()));
        let mut at = 0;
        // Runs of bytes that were stored; bytes between them keep their value.
        while at < 8 {
            let run: Vec<u8> = entry.bytes[at..].iter().map_while(|byte| *byte).collect();
            if run.is_empty() {
                at += 1;
                continue;
            }
            let (memory, offset, len) = (entry.memory.clone(), entry.word + at, run.len());
            self.post(Write::Memory { memory, offset, bytes: run }, now, pace, dice);
            at += len;
        }
    }
}

/// Makes bytes visible, word by word and in order.
pub(super) fn apply(memory: &Memory, offset: usize, bytes: &[u8]) {
    by_words(offset, bytes).for_each(|(at, part)| memory.store(at, part));
}

/// Splits bytes at the borders of aligned words.
fn by_words(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (part, later) = rest.split_at((8 - at % 8).min(rest.len()));
        let from = at;
        (at, rest) = (at + part.len(), later);
        (!part.is_empty()).then_some((from, part))
    })
}
