//! The lander's end of a queue.

use super::{
    ASLEEP, DATA, DEAD, DEPTH, DEPTH_MIN, FENCE, FREED, HEAD, HELD_UP, ROOM, STORE, TAIL, WAKE, WAKING,
    WANTED, WORDS, entry_len, place,
};
use crate::copy;
use crate::mapping::{MapError, Mapping};
use crate::segment::Segment;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, fence};
use rustix::thread::futex;
use std::os::fd::AsFd;
use std::sync::Arc;
use thiserror::Error;

/// How far a store's time stamp may be ahead of the lander's clock, ns.
const AHEAD: u64 = 1_000_000_000;
/// A writer that stores nothing for so long, ns, was not held up any more.
const PAUSE: u64 = 250_000;

/// A queue as the lander sees it, and the segment that its stores go to. Marks the queue as dead when dropped.
#[derive(Debug)]
pub struct Reader {
    pub(super) mapping: Mapping,
    memory: Arc<Mapping>,
    taken: u64,
    freed: u64,
    /// Time stamp of the last entry, ns.
    last: u64,
    /// Entries before this position count as held up.
    held_up_until: u64,
    /// Value of WAKE before the lander last looked for entries.
    pub(super) seen: u32,
    /// Value of ASLEEP when the lander last was about to sleep; never 0.
    asleep: u32,
}

/// The queue contains an entry that no honest writer appends, or its writers gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("what lies in the queue of stores makes no sense")]
pub struct Garbage;

/// An entry that was taken and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's position.
    pub begin: u64,
    /// The position behind it.
    pub end: u64,
    /// When it was stored, ns.
    pub stored_at: u64,
    /// Its writer had waited for room, for this entry or, without a pause since, for one of the last 256 KB: it stores as fast as entries land.
    pub held_up: bool,
    /// The entry's kind.
    pub what: What,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Stores bytes into the segment.
    Store {
        /// Bytes from the segment's start.
        offset: usize,
        /// How many bytes.
        len: usize,
    },
    /// A store fence.
    Fence,
    /// Wakes the sleeper whose waker has this number, which the lander must look up: any writer may name any.
    Wake(u64),
}

impl Reader {
    /// Maps a fresh queue whose stores go to `memory`.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn new(queue: impl AsFd, memory: &Segment) -> Result<Self, MapError> {
        Self::leading_to(queue, Arc::new(memory.map()?))
    }

    /// Maps a fresh queue whose stores go to the same segment.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn beside(&self, queue: impl AsFd) -> Result<Self, MapError> {
        Self::leading_to(queue, self.memory.clone())
    }

    fn leading_to(queue: impl AsFd, memory: Arc<Mapping>) -> Result<Self, MapError> {
        let mapping = Mapping::new(queue, super::LEN)?;
        Ok(Self { mapping, memory, taken: 0, freed: 0, last: 0, held_up_until: 0, seen: 0, asleep: 1 })
    }

    /// Takes the next entry, if it was stored at time `until` (ns) or before.
    ///
    /// # Errors
    /// The queue contains garbage.
    pub fn take(&mut self, until: u64) -> Result<Option<Entry>, Garbage> {
        let Some(ready) = self.ready()? else { return Ok(None) };
        if ready < HEAD as u64 {
            return Err(Garbage);
        }
        let word = |index: u64| self.mapping.word64(place(self.taken + 8 * index)).load(Relaxed);
        let (offset, [l0, l1, l2, l3, k0, k1, k2, k3], stored_at) = (word(0), word(1).to_le_bytes(), word(2));
        if stored_at > until {
            return if stored_at - until > AHEAD { Err(Garbage) } else { Ok(None) };
        }
        let len = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).map_err(|_| Garbage)?;
        let kind = u32::from_le_bytes([k0, k1, k2, k3]);
        let what = self.what(kind & !HELD_UP, offset, len)?;
        let end = self.taken + entry_len(len) as u64;
        if end - self.taken > ready {
            return Err(Garbage);
        }
        if kind & HELD_UP != 0 {
            self.held_up_until = end + DATA as u64;
        } else if stored_at.saturating_sub(self.last) > PAUSE {
            self.held_up_until = 0;
        }
        self.last = self.last.max(stored_at);
        let held_up = self.taken < self.held_up_until;
        let entry = Entry { begin: self.taken, end, stored_at: self.last, held_up, what };
        self.taken = end;
        Ok(Some(entry))
    }

    /// Bytes of entries that were not taken yet, `None` if there are none.
    fn ready(&self) -> Result<Option<u64>, Garbage> {
        if self.mapping.word32(DEAD).load(Relaxed) != 0 {
            return Err(Garbage);
        }
        let tail = self.mapping.word64(TAIL).load(Acquire);
        let ready = tail.checked_sub(self.taken).ok_or(Garbage)?;
        if tail - self.freed > DATA as u64 || !tail.is_multiple_of(8) || tail > u64::MAX / 2 {
            return Err(Garbage);
        }
        Ok((ready > 0).then_some(ready))
    }

    fn what(&self, kind: u32, offset: u64, len: usize) -> Result<What, Garbage> {
        match kind {
            STORE if len > 0 && len <= DATA => {
                let offset = usize::try_from(offset).map_err(|_| Garbage)?;
                let end = offset.checked_add(len).filter(|end| *end <= self.memory.len());
                end.map(|_| What::Store { offset, len }).ok_or(Garbage)
            }
            FENCE if len == 0 => Ok(What::Fence),
            WAKING if len == 0 => Ok(What::Wake(offset)),
            _ => Err(Garbage),
        }
    }

    /// Makes `len` bytes from byte `from` of an entry visible, after all bytes that landed before. An aligned store of 4
    /// or 8 bytes becomes visible in one piece.
    pub fn land(&self, entry: &Entry, from: usize, len: usize) {
        let What::Store { offset, len: all } = entry.what else { return };
        assert!(from <= all && len <= all - from, "not a part of the entry");
        let (offset, position) = (offset + from, entry.begin + (HEAD + from) as u64);
        fence(Release);
        let word = || self.mapping.word64(place(position)).load(Relaxed).to_ne_bytes();
        match len {
            8 if offset.is_multiple_of(8) && from.is_multiple_of(8) => {
                self.memory.word64(offset).store(u64::from_ne_bytes(word()), Release);
            }
            4 if offset.is_multiple_of(4) && from.is_multiple_of(8) => {
                let [a, b, c, d, ..] = word();
                self.memory.word32(offset).store(u32::from_ne_bytes([a, b, c, d]), Release);
            }
            _ => self.copy(offset, position, len),
        }
    }

    fn copy(&self, offset: usize, position: u64, len: usize) {
        let at = place(position);
        let first = len.min(WORDS + DATA - at);
        for (offset, at, len) in [(offset, at, first), (offset + first, WORDS, len - first)] {
            let (source, target) = (self.mapping.at(at, len), self.memory.at(offset, len));
            // SAFETY: both are in range, and lie in two mappings.
            unsafe { copy::copy(copy::Strategy::Cached, target, source, len) };
        }
    }

    /// Frees the room of all entries before `position`, which have landed.
    pub fn free(&mut self, position: u64) {
        self.freed = position;
        self.mapping.word64(FREED).store(position, Release);
        fence(SeqCst);
        let wanted = self.mapping.word32(WANTED);
        let bytes = u64::from(wanted.load(Relaxed));
        if bytes != 0 && self.room() >= bytes.min(DATA as u64) {
            wanted.store(0, Relaxed);
            self.wake_writers();
        }
    }

    /// Bytes that writers may still store.
    fn room(&self) -> u64 {
        let depth = u64::from(self.mapping.word32(DEPTH).load(Relaxed));
        let depth = if depth < DEPTH_MIN.into() { DATA as u64 } else { depth.min(DATA as u64) };
        let tail = self.mapping.word64(TAIL).load(Relaxed);
        depth.saturating_sub(tail.saturating_sub(self.freed))
    }

    fn wake_writers(&self) {
        let room = self.mapping.word32(ROOM);
        room.fetch_add(1, Release);
        let _ = futex::wake(room, futex::Flags::empty(), i32::MAX.cast_unsigned());
    }

    /// From now on the writers wake the lander. Look for entries once more before a [`sleep`](super::sleep()).
    pub fn arm(&mut self) {
        self.seen = self.mapping.word32(WAKE).load(Acquire);
        self.asleep = self.asleep.wrapping_add(1).max(1);
        self.mapping.word32(ASLEEP).store(self.asleep, Relaxed);
        fence(SeqCst);
    }

    /// From now on the writers do not wake the lander.
    pub fn disarm(&self) {
        self.mapping.word32(ASLEEP).store(0, Relaxed);
    }

    pub(super) fn wake_word(&self) -> &AtomicU32 {
        self.mapping.word32(WAKE)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.mapping.word32(DEAD).store(1, Release);
        self.wake_writers();
    }
}
