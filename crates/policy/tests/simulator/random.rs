//! Numbers that look random and come again with their seed.

use std::time::Duration;

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// The numbers of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A time from `least` up to `most`, in microseconds.
    pub(crate) fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.0.u64(least..most))
    }
}
