//! Chance that a seed repeats.

use std::time::Duration;

/// A generator of numbers (SplitMix64): the same for the same seed.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end as u64).unwrap_or(0)
    }

    /// A time of `least` to `most` milliseconds.
    pub(super) fn pause(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.number() % (most - least + 1))
    }

    /// A length of a transfer, bytes: small and large ones alike, by their powers of two.
    pub(super) fn length(&mut self, most_bits: u64) -> u64 {
        let bits = self.number() % (most_bits + 1);
        self.number() % (1 << bits) + 1
    }
}
