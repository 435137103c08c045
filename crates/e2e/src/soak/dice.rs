//! Random choices that a seed repeats.

use std::time::Duration;

/// A generator of numbers: the same for the same seed.
#[derive(Debug)]
pub(super) struct Dice(fastrand::Rng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// A time of `least` to `most` milliseconds.
    pub(super) fn pause(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.0.u64(least..=most))
    }

    /// A length of a transfer, bytes: small and large ones alike, by their powers of two.
    pub(super) fn length(&mut self, most_bits: u64) -> u64 {
        let bits = self.0.u64(..=most_bits);
        self.0.u64(1..=1 << bits)
    }
}
