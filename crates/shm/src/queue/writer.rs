//! The writers' end of a queue.

use super::{
    ASLEEP, DATA, DEAD, FENCE, FENCED, FREED, HEAD, LOCK, PIECE, ROOM, STORE, TAIL, WAKE, WANTED, WORDS,
    entry_len, now, place,
};
use crate::lock::{SharedLock, forget_busy};
use crate::mapping::{MapError, Mapping};
use crate::segment::Segment;
use crate::signals::Masked;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;
use rustix::io::Errno;
use rustix::thread::{Timespec, futex};
use std::time::{Duration, Instant};

/// How long a store waits for room, or for other writers, before the writer gives the queue up.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a writer looks for room before it sleeps.
const SPINS: u32 = 200;
/// Longest sleep for room, ns.
const NAP: i64 = 10_000_000;

/// A queue as its writers see it.
#[derive(Debug)]
pub(crate) struct Writer {
    mapping: Mapping,
    /// Length of the segment that the queue's stores go to, bytes.
    len: usize,
}

/// Outcome of an attempt to append an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    /// There is no room for the entry.
    Full,
    /// Another writer has held the lock for long.
    Busy,
    /// The queue is dead: no more stores land.
    Dead,
}

impl Writer {
    /// Maps the queue of `segment`.
    pub(crate) fn open(segment: &Segment) -> Result<Self, MapError> {
        segment.check()?;
        let len = usize::try_from(segment.info.len).map_err(|_| Errno::OVERFLOW)?;
        Ok(Self { mapping: Mapping::new(&segment.fd, super::LEN)?, len })
    }

    /// Bytes of the segment.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores `bytes` at `offset`, inside the segment: as one entry or several, which land later.
    pub(crate) fn store(&self, offset: usize, bytes: &[u8]) {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            self.append(STORE, (offset + index * PIECE) as u64, piece);
        }
    }

    /// No store after this call lands before a store that came before it.
    pub(crate) fn fence(&self) {
        let word = |at| self.mapping.word64(at).load(Acquire);
        if word(FENCED) != word(TAIL) {
            self.append(FENCE, 0, &[]);
        }
    }

    /// Appends an entry as soon as there is room. If that takes longer than `STORE_TIMEOUT`, the queue is dead: this
    /// entry and all later ones are lost, as on a cable that is cut.
    fn append(&self, kind: u32, offset: u64, bytes: &[u8]) {
        let mut until = None;
        for round in 0_u32.. {
            match self.try_append(kind, offset, bytes) {
                Put::Done | Put::Dead => return,
                Put::Full if round < SPINS => core::hint::spin_loop(),
                outcome => {
                    if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + STORE_TIMEOUT) {
                        return self.mapping.word32(DEAD).store(1, Release);
                    }
                    if outcome == Put::Full {
                        self.await_room(entry_len(bytes.len()));
                    }
                }
            }
        }
    }

    /// Signals are masked meanwhile: a handler may store too.
    fn try_append(&self, kind: u32, offset: u64, bytes: &[u8]) -> Put {
        let signals = Masked::new();
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let outcome = match self.lock().lock(tid) {
            Ok(_guard) => self.put(kind, offset, bytes),
            Err(_) => {
                forget_busy();
                Put::Busy
            }
        };
        signals.end();
        if outcome == Put::Done {
            self.wake_lander();
        }
        outcome
    }

    fn put(&self, kind: u32, offset: u64, bytes: &[u8]) -> Put {
        let (tail, len) = (self.mapping.word64(TAIL).load(Relaxed), entry_len(bytes.len()));
        let Some(room) = self.room(tail).filter(|_| self.mapping.word32(DEAD).load(Relaxed) == 0) else {
            return Put::Dead;
        };
        if kind == FENCE && self.mapping.word64(FENCED).load(Relaxed) == tail {
            return Put::Done;
        }
        if len > room {
            return Put::Full;
        }
        let head = [offset, bytes.len() as u64 | u64::from(kind) << 32, now()];
        for (word, at) in head.into_iter().zip((tail..).step_by(8)) {
            self.mapping.word64(place(at)).store(word, Relaxed);
        }
        self.copy_in(tail + HEAD as u64, bytes);
        let end = tail + len as u64;
        if kind == FENCE {
            self.mapping.word64(FENCED).store(end, Relaxed);
        }
        self.mapping.word64(TAIL).store(end, Release);
        // The entry is visible before any thread takes a later time for a store.
        fence(SeqCst);
        Put::Done
    }

    /// Free bytes; `None` if the words contradict each other.
    fn room(&self, tail: u64) -> Option<usize> {
        let used = tail.checked_sub(self.mapping.word64(FREED).load(Acquire))?;
        let sound = tail.is_multiple_of(8) && tail < u64::MAX / 2;
        DATA.checked_sub(usize::try_from(used).ok()?).filter(|_| sound)
    }

    fn copy_in(&self, position: u64, bytes: &[u8]) {
        let at = place(position);
        let (first, second) = bytes.split_at(bytes.len().min(WORDS + DATA - at));
        for (at, part) in [(at, first), (WORDS, second)] {
            // SAFETY: in range; `bytes` are private memory.
            unsafe { crate::copy::into_shared(self.mapping.at(at, part.len()), part) };
        }
    }

    fn wake_lander(&self) {
        // Only the lander clears ASLEEP: if this writer is killed here, the next one wakes the lander.
        if self.mapping.word32(ASLEEP).load(Relaxed) != 0 {
            let wake = self.mapping.word32(WAKE);
            wake.fetch_add(1, Release);
            let _ = futex::wake(wake, futex::Flags::empty(), 1);
        }
    }

    /// Sleeps until there may be room for `len` bytes.
    fn await_room(&self, len: usize) {
        let room = self.mapping.word32(ROOM);
        let seen = room.load(Acquire);
        self.mapping.word32(WANTED).store(1, Relaxed);
        fence(SeqCst);
        let tail = self.mapping.word64(TAIL).load(Relaxed);
        if self.room(tail).is_some_and(|room| room < len) {
            let timeout = Timespec { tv_sec: 0, tv_nsec: NAP };
            let _ = futex::wait(room, futex::Flags::empty(), seen, Some(&timeout));
        }
    }

    fn lock(&self) -> &SharedLock {
        // SAFETY: in range, aligned, mapped as long as `self`; any bytes are a lock.
        unsafe { &*self.mapping.at(LOCK, size_of::<SharedLock>()).cast::<SharedLock>() }
    }
}
