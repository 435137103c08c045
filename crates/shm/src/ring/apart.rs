//! Bytes of the stream that the consumer receives outside the ring: it fetches them from announced memory (Read Zcopy), or the
//! far side stores them into offered memory (Write Zcopy).

use super::Consumer;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;

impl Consumer {
    /// The front record announces `bytes` of the stream: they come after the record's own bytes and before the next record.
    pub fn announce(&self, bytes: u64) {
        self.announced.store(bytes, Relaxed);
    }

    /// Announced bytes that the program is to receive before the record at the front.
    #[inline]
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    /// Drops the announced bytes that are left: the next byte of the stream is in the ring again.
    pub fn end_elsewhere(&self) {
        self.elsewhere.store(0, Relaxed);
    }

    /// The receiver has offered memory for the next bytes (SinkAvail). `word` is the largest
    /// [`WR_DONE`](crosslane_wire::segment::WR_DONE) that the far side may store for that offer (announcement << 32 |
    /// bytes); 0 once the offer has ended without a byte.
    pub fn expect_apart(&self, word: u64) {
        self.apart.store(word, Release);
    }

    /// Adds `bytes`, which the far side has written into offered memory, to the stream offset, and ends the offer. A thread that
    /// looks at the same time ([`Self::glance`], [`Cursor::arrived`](super::Cursor::arrived)) counts them exactly once.
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

    /// Adds `bytes` that were fetched from announced memory to the stream offset. Until [`Self::confirm`] the source may
    /// take them back by storing `doubt` as its [`VERDICT`](crosslane_wire::segment::VERDICT): they then do not count.
    pub fn count(&self, bytes: u64, doubt: u64) {
        self.doubt.store(doubt, Relaxed);
        self.pending.store(bytes, Release);
        self.add_units(bytes);
        self.elsewhere.store(self.elsewhere().saturating_sub(bytes), Relaxed);
    }

    /// The bytes that were [counted](Self::count) last are final: the source can no longer take them back.
    pub fn confirm(&self) {
        self.pending.store(0, Relaxed);
    }

    /// Undoes [`Self::count`] of `bytes`, which the source took back, and drops the rest of the announced bytes.
    pub fn discount(&self, bytes: u64) {
        self.units.store(self.units.load(Relaxed).saturating_sub(bytes), Relaxed);
        self.end_elsewhere();
        self.pending.store(0, Release);
    }
}
