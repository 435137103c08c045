//! Completion words: the place where a far program stores how many bytes it has written into a buffer that was offered to it (SinkAvail).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crosslane_wire::buffer::{LANDINGS, landing_at};

/// Which lines behind a buffer are in use.
#[derive(Debug)]
pub(super) struct Lines([AtomicBool; LANDINGS as usize]);

impl Lines {
    pub(super) const fn new() -> Self {
        Self([const { AtomicBool::new(false) }; LANDINGS as usize])
    }

    fn take(&self) -> Option<(u32, &AtomicBool)> {
        let free = |used: &AtomicBool| !used.load(Relaxed) && !used.swap(true, Acquire);
        (0..).zip(&self.0).find(|(_, used)| free(used))
    }

    /// Marks all lines as free.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|used| used.store(false, Relaxed));
    }
}

/// A line behind an open buffer, held for one offer until dropped.
#[derive(Debug)]
pub struct Landing<'a> {
    used: &'a AtomicBool,
    number: u32,
    word: &'a AtomicU64,
    seal: &'a AtomicU64,
    /// Bytes that were offered with it.
    most: AtomicU32,
}

impl<'a> Landing<'a> {
    /// Takes a free line of a buffer whose owner's word is at `end`; `None` if all are in use.
    ///
    /// # Safety
    /// The page at `end` is mapped as long as the line is held.
    pub(super) unsafe fn take(lines: &'a Lines, end: usize) -> Option<Self> {
        let (number, used) = lines.take()?;
        let at = end + usize::try_from(landing_at(number)?).ok()?;
        let [word, seal] = [at, at + 8].map(core::ptr::with_exposed_provenance_mut::<u64>);
        // SAFETY: mapped, by the caller's promise; aligned, since buffers are whole pages; all other access is by atomics too.
        let (word, seal) = unsafe { (AtomicU64::from_ptr(word), AtomicU64::from_ptr(seal)) };
        Some(Self { used, number, word, seal, most: AtomicU32::new(0) })
    }

    /// The line's number, which the offer carries.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sets how many bytes are offered with the line. The number is kept here, in private memory: how much of the buffer
    /// may count as written must not depend on words that other processes write.
    pub fn limit(&self, bytes: u32) {
        self.most.store(bytes, Relaxed);
    }

    /// Bytes that were offered with it last.
    pub fn most(&self) -> u32 {
        self.most.load(Relaxed)
    }

    /// Loads the far program's completion word (acquire: the bytes that it covers are visible after the load).
    #[inline]
    pub fn word(&self) -> u64 {
        self.word.load(Acquire)
    }

    /// The seal that stands beside the completion word that was loaded last.
    #[inline]
    pub fn seal(&self) -> u64 {
        self.seal.load(Relaxed)
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.used.store(false, Release);
    }
}
