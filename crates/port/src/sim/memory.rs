//! Simulated memory: words exist once they are stored to, and are zero before.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;
type Page = Box<[AtomicU64]>;

/// The memory of one segment.
#[derive(Debug)]
pub(super) struct Memory {
    pages: Vec<OnceLock<Page>>,
    freed: AtomicBool,
}

impl Memory {
    /// Zeroed memory of `len` bytes, a multiple of the page size.
    pub(super) fn new(len: u64) -> Self {
        let pages = usize::try_from(len).unwrap_or(usize::MAX) / PAGE;
        Self { pages: (0..pages).map(|_| OnceLock::new()).collect(), freed: AtomicBool::new(false) }
    }

    /// Length, bytes.
    pub(super) fn len(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Later stores have no effect.
    pub(super) fn free(&self) {
        self.freed.store(true, Ordering::Release);
    }

    /// Stores up to 8 bytes that do not cross an aligned word, all at once. Only one thread at a time may store.
    pub(super) fn store(&self, offset: usize, bytes: &[u8]) {
        if self.freed.load(Ordering::Acquire) || bytes.is_empty() {
            return;
        }
        let word = self.word(offset, true);
        let mut image = word.map_or(0, |word| word.load(Ordering::Relaxed)).to_le_bytes();
        image[offset % 8..offset % 8 + bytes.len()].copy_from_slice(bytes);
        if let Some(word) = word {
            word.store(u64::from_le_bytes(image), Ordering::Release);
        }
    }

    /// Loads an aligned word.
    pub(super) fn load(&self, offset: usize) -> u64 {
        self.word(offset, false).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Loads bytes.
    pub(super) fn read(&self, offset: usize, target: &mut [u8]) {
        let mut at = offset;
        let mut rest = target;
        while !rest.is_empty() {
            let word = self.load(at).to_le_bytes();
            let count = (8 - at % 8).min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&word[at % 8..at % 8 + count]);
            at += count;
            rest = later;
        }
    }

    fn word(&self, offset: usize, make: bool) -> Option<&AtomicU64> {
        let page = &self.pages[offset / PAGE];
        let fresh = || (0..PAGE / 8).map(|_| AtomicU64::new(0)).collect();
        let words = if make { page.get_or_init(fresh) } else { page.get()? };
        words.get(offset % PAGE / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sim_memory_holds_what_was_stored() {
        let memory = Memory::new(8192);
        memory.store(4093, &[1, 2, 3]);
        memory.store(4096, &[4]);
        let mut bytes = [9; 6];
        memory.read(4092, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 0]);
        assert_eq!(memory.load(8184), 0);
        memory.free();
        memory.store(4096, &[7]);
        assert_eq!(memory.load(4096), 4);
    }
}
