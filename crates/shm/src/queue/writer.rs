//! The writers' end of a queue.

use super::{
    ASLEEP, DATA, DEAD, DEPTH, DEPTH_MIN, FENCE, FENCED, FREED, HEAD, HELD_UP, LOCK, LOCKED, PIECE, ROOM,
    STORE, TAIL, WAKE, WAKING, WANTED, WORDS, entry_len, now, place,
};
use crate::copy::{self, Strategy};
use crate::lock::{SharedLock, forget_busy};
use crate::mapping::{MapError, Mapping};
use crate::segment::Segment;
use crate::signals::Masked;
use core::marker::PhantomData;
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

/// No bytes.
const NOTHING: Source<'static> =
    Source { at: core::ptr::NonNull::dangling().as_ptr(), len: 0, mapped: PhantomData };

/// A queue as its writers see it.
#[derive(Debug)]
pub(crate) struct Writer {
    mapping: Mapping,
    /// Length of the segment that the queue's stores go to, bytes.
    len: usize,
}

/// What is appended.
#[derive(Clone, Copy, Debug)]
enum What<'a> {
    /// Bytes for an offset of the segment, as one entry or several.
    Store(usize, Source<'a>),
    Fence,
    /// A wake, by the number of a waker.
    Wake(u64),
}

/// Bytes that stay mapped for `'a`, and may be shared memory, which changes meanwhile.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    at: *const u8,
    len: usize,
    mapped: PhantomData<&'a [u8]>,
}

/// Outcome of an attempt to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    /// So many bytes of a store: there is no room for more, or others shall have the lock meanwhile.
    Part(usize),
    /// There is no room.
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
        // SAFETY: borrowed as long as the call.
        unsafe { self.store_shared(offset, bytes.as_ptr(), bytes.len()) }
    }

    /// As [`Self::store`], of `len` bytes that may be shared memory.
    ///
    /// # Safety
    /// `source` is valid for loads of `len` bytes, which do not overlap the queue.
    pub(crate) unsafe fn store_shared(&self, offset: usize, source: *const u8, len: usize) {
        self.append(What::Store(offset, Source { at: source, len, mapped: PhantomData }));
    }

    /// No store after this call lands before a store that came before it.
    pub(crate) fn fence(&self) {
        if !self.is_fenced() {
            self.append(What::Fence);
        }
    }

    /// Wakes the sleeper whose waker has this number at the port, behind what was stored before.
    pub(crate) fn wake(&self, number: u64) {
        self.append(What::Wake(number));
    }

    /// Whether the last entry is a fence.
    fn is_fenced(&self) -> bool {
        let word = |at| self.mapping.word64(at).load(Acquire);
        word(FENCED) == word(TAIL)
    }

    /// Appends as soon as there is room. If no byte of it had room for `STORE_TIMEOUT`, the queue is dead: what is left of it
    /// and all that comes later are lost, as on a cable that is cut.
    fn append(&self, mut what: What<'_>) {
        let (mut until, mut waited) = (None, false);
        loop {
            match (self.try_append(what, waited), &mut what) {
                (Put::Done | Put::Dead, _) => return,
                (Put::Part(len), What::Store(offset, bytes)) => {
                    (*offset, *bytes) = (*offset + len, bytes.part(len, bytes.len - len));
                    until = None;
                    continue;
                }
                (Put::Full, _) => waited = true,
                (Put::Part(_) | Put::Busy, _) => {}
            }
            if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + STORE_TIMEOUT) {
                return self.mapping.word32(DEAD).store(1, Release);
            }
            self.await_room(what.least_room(), what.room_wanted(self.depth()));
        }
    }

    /// Signals are masked meanwhile: a handler may store too.
    fn try_append(&self, what: What<'_>, waited: bool) -> Put {
        let signals = Masked::new();
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let outcome = match self.lock().lock(tid) {
            Ok(_guard) => self.put(what, waited),
            Err(_) => {
                forget_busy();
                Put::Busy
            }
        };
        signals.end();
        if matches!(outcome, Put::Done | Put::Part(_)) {
            self.wake_lander();
        }
        outcome
    }

    fn put(&self, what: What<'_>, waited: bool) -> Put {
        let (offset, bytes) = match what {
            What::Store(offset, bytes) => (offset, bytes),
            What::Fence if self.is_fenced() => return Put::Done,
            What::Fence => return self.put_entry(FENCE, 0, NOTHING),
            What::Wake(number) => return self.put_entry(WAKING, number, NOTHING),
        };
        let kind = if waited { STORE | HELD_UP } else { STORE };
        let mut done = 0;
        while done < bytes.len.min(LOCKED) {
            let piece = bytes.part(done, PIECE.min(bytes.len - done));
            match self.put_entry(kind, (offset + done) as u64, piece) {
                Put::Done => done += piece.len,
                Put::Full if done > 0 => return Put::Part(done),
                other => return other,
            }
        }
        if done == bytes.len { Put::Done } else { Put::Part(done) }
    }

    fn put_entry(&self, kind: u32, offset: u64, bytes: Source<'_>) -> Put {
        let (tail, len) = (self.mapping.word64(TAIL).load(Relaxed), entry_len(bytes.len));
        let Some(room) = self.room(tail).filter(|_| self.mapping.word32(DEAD).load(Relaxed) == 0) else {
            return Put::Dead;
        };
        if len > room {
            return Put::Full;
        }
        let head = [offset, bytes.len as u64 | u64::from(kind) << 32, now()];
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
        let used = usize::try_from(used).ok().filter(|used| *used <= DATA && sound)?;
        Some(self.depth().saturating_sub(used))
    }

    /// Most bytes that may be under way. Another program's garbage there is as no word at all.
    fn depth(&self) -> usize {
        let depth = self.mapping.word32(DEPTH).load(Relaxed);
        if depth < DEPTH_MIN { DATA } else { usize::try_from(depth).map_or(DATA, |depth| depth.min(DATA)) }
    }

    fn copy_in(&self, position: u64, bytes: Source<'_>) {
        let at = place(position);
        let first = bytes.len.min(WORDS + DATA - at);
        for (at, part) in [(at, bytes.part(0, first)), (WORDS, bytes.part(first, bytes.len - first))] {
            let target = self.mapping.at(at, part.len);
            // SAFETY: in range; the source is mapped, and is not the queue's.
            unsafe { copy::copy(Strategy::Cached, target, part.at, part.len) };
        }
    }

    fn wake_lander(&self) {
        let asleep = self.mapping.word32(ASLEEP);
        let sleep = asleep.load(Relaxed);
        if sleep != 0 {
            let wake = self.mapping.word32(WAKE);
            wake.fetch_add(1, Release);
            let _ = futex::wake(wake, futex::Flags::empty(), 1);
            // Behind the wake: if this writer is killed before, the next one wakes the lander. It may be in another sleep by now, of another number.
            let _ = asleep.compare_exchange(sleep, 0, Relaxed, Relaxed);
        }
    }

    /// Waits shortly until there is room for `least` bytes, else sleeps until there may be room for `len`.
    fn await_room(&self, least: usize, len: usize) {
        // Where the words contradict each other the next attempt says so.
        let has = |len| self.room(self.mapping.word64(TAIL).load(Relaxed)).is_none_or(|room| room >= len);
        for _ in 0..SPINS {
            if has(least) {
                return;
            }
            core::hint::spin_loop();
        }
        let (room, wanted) = (self.mapping.word32(ROOM), self.mapping.word32(WANTED));
        let seen = room.load(Acquire);
        // Where another writer waits for less, it is woken in time.
        let mine = u32::try_from(len).unwrap_or(u32::MAX);
        let fewest = |others| Some(if others == 0 { mine } else { mine.min(others) });
        let _ = wanted.fetch_update(Relaxed, Relaxed, fewest);
        fence(SeqCst);
        if !has(len) {
            let timeout = Timespec { tv_sec: 0, tv_nsec: NAP };
            let _ = futex::wait(room, futex::Flags::empty(), seen, Some(&timeout));
        }
    }

    fn lock(&self) -> &SharedLock {
        // SAFETY: in range, aligned, mapped as long as `self`; any bytes are a lock.
        unsafe { &*self.mapping.at(LOCK, size_of::<SharedLock>()).cast::<SharedLock>() }
    }
}

impl Source<'_> {
    /// `len` of the bytes from byte `from`, which is not behind the last.
    fn part(self, from: usize, len: usize) -> Self {
        assert!(from <= self.len && len <= self.len - from, "not a part of the source");
        Self { at: self.at.wrapping_add(from), len, ..self }
    }
}

impl What<'_> {
    /// Bytes of room without which nothing of it can be appended.
    fn least_room(&self) -> usize {
        match self {
            Self::Store(_, bytes) => entry_len(bytes.len.min(PIECE)),
            Self::Fence | Self::Wake(_) => HEAD,
        }
    }

    /// Bytes of room that are worth a wake: for all that is left, or half of `depth`, since each sleep costs two system calls.
    fn room_wanted(&self, depth: usize) -> usize {
        match self {
            Self::Store(_, bytes) => {
                let entries = bytes.len.div_ceil(PIECE);
                (entries * HEAD + bytes.len.next_multiple_of(8)).min(depth / 2)
            }
            Self::Fence | Self::Wake(_) => HEAD,
        }
    }
}
