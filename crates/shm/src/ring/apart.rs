//! Bytes of the stream that do not come by the ring: announced in it, or written into offered memory.

use super::Consumer;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;

impl Consumer {
    /// Behind the front record, so many bytes of the stream follow that are not in the ring.
    pub fn announce(&self, bytes: u64) {
        self.announced.store(bytes, Relaxed);
    }

    /// Bytes of the stream that come before the next record and are not in the ring.
    #[inline]
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    /// Nothing more comes from elsewhere.
    pub fn end_elsewhere(&self) {
        self.elsewhere.store(0, Relaxed);
    }

    /// The far side may write what comes next into memory of ours; it says so by at most `word` in
    /// [`WR_DONE`](crosslane_wire::segment::WR_DONE). 0: not any more, and it did not.
    pub fn expect_apart(&self, word: u64) {
        self.apart.store(word, Release);
    }

    /// Counts `bytes` that the far side has written there as consumed. Whoever looks meanwhile counts them once.
    pub fn land(&self, bytes: u64) {
        let expected = self.expected.load(Relaxed);
        self.expected.store(0, Relaxed);
        fence(Release);
        self.add_units(bytes);
        self.apart.store(0, Relaxed);
        self.expected.store(expected, Release);
    }

    fn add_units(&self, bytes: u64) {
        self.units.store(self.units.load(Relaxed).saturating_add(bytes), Relaxed);
    }

    /// Counts `bytes` that came from elsewhere as consumed; until they are [`Self::confirm`]ed they do not count if the
    /// source's verdict is `doubt`.
    pub fn count(&self, bytes: u64, doubt: u64) {
        self.doubt.store(doubt, Relaxed);
        self.pending.store(bytes, Release);
        self.add_units(bytes);
        self.elsewhere.store(self.elsewhere().saturating_sub(bytes), Relaxed);
    }

    /// What was counted last counts.
    pub fn confirm(&self) {
        self.pending.store(0, Relaxed);
    }

    /// Takes [`Self::count`] of `bytes` back, and nothing more comes from elsewhere.
    pub fn discount(&self, bytes: u64) {
        self.units.store(self.units.load(Relaxed).saturating_sub(bytes), Relaxed);
        self.end_elsewhere();
        self.pending.store(0, Release);
    }
}
