//! Which way of moving data is best for sends of a size, found by measuring: whichever took least time for each byte in
//! the runs of sends so far. Ways that lost are tried again ever more rarely.
//!
//! Pure: who uses it measures the time. Threads share it; a number that is lost in a race costs a run, nothing else.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Sends in a row that go the same way and are measured together: at least so many,
pub const RUN: u32 = 8;
/// and so many bytes, several times what a ring holds that its reader keeps up with.
pub const RUN_BYTES: u64 = 8 << 20;
/// Ways that are compared at most.
pub const WAYS: usize = 2;
/// Sizes are told apart by powers of two, from this one on.
const SMALLEST: u32 = 14;
const CLASSES: usize = 12;
/// Runs of each way before any is preferred.
const FIRST: u32 = 3;
/// Runs of the best way before another one is tried again; twice as many each time, up to the second number.
const PAUSE: (u32, u32) = (64, 4096);
/// The best run of a way counts for one part in so many less with each run.
const FORGET: u32 = 32;
/// A way that is not used now must be better by one part in so many, so that noise changes nothing.
const MARGIN: u32 = 16;

/// What is known of one size.
#[derive(Debug, Default)]
struct Class {
    /// Picoseconds for each byte in the best run, by way.
    cost: [AtomicU32; WAYS],
    /// Runs of each way, up to [`FIRST`].
    runs: [AtomicU32; WAYS],
    /// The way that is used.
    best: AtomicU32,
    /// Runs until the other way is tried again.
    left: AtomicU32,
    /// How many those are each time.
    pause: AtomicU32,
}

/// What is known of all sizes.
#[derive(Debug, Default)]
pub struct Chooser([Class; CLASSES]);

impl Chooser {
    /// Knows nothing.
    pub const fn new() -> Self {
        Self(
            [const {
                Class {
                    cost: [const { AtomicU32::new(0) }; WAYS],
                    runs: [const { AtomicU32::new(0) }; WAYS],
                    best: AtomicU32::new(0),
                    left: AtomicU32::new(0),
                    pause: AtomicU32::new(0),
                }
            }; CLASSES],
        )
    }

    /// Whether sends of both lengths, bytes, are chosen for together.
    pub fn alike(one: usize, other: usize) -> bool {
        class_of(one) == class_of(other)
    }

    /// The way, less than [`WAYS`], of the next run of sends of `len` bytes.
    pub fn begin(&self, len: usize) -> usize {
        let class = &self.0[class_of(len)];
        let untried = (0..WAYS).find(|&way| class.runs[way].load(Relaxed) < FIRST);
        if let Some(way) = untried {
            return way;
        }
        let best = class.best() % WAYS;
        let left = class.left.load(Relaxed);
        class.left.store(left.saturating_sub(1), Relaxed);
        if left > 0 {
            return best;
        }
        let pause = (class.pause.load(Relaxed) * 2).clamp(PAUSE.0, PAUSE.1);
        class.pause.store(pause, Relaxed);
        class.left.store(pause, Relaxed);
        (best + 1) % WAYS
    }

    /// A run of sends of `len` bytes each moved `bytes` in `ns` nanoseconds.
    pub fn end(&self, len: usize, way: usize, bytes: u64, ns: u64) {
        let (class, way) = (&self.0[class_of(len)], way % WAYS);
        let cost = u32::try_from(ns.saturating_mul(1000) / bytes.max(1)).unwrap_or(u32::MAX).max(1);
        let (runs, before) = (class.runs[way].load(Relaxed), class.cost[way].load(Relaxed));
        let now = if runs == 0 { cost } else { cost.min(before.saturating_add((before / FORGET).max(1))) };
        class.cost[way].store(now, Relaxed);
        class.runs[way].store((runs + 1).min(FIRST), Relaxed);
    }
}

impl Class {
    /// The way that is used, after a look whether it should be another one.
    fn best(&self) -> usize {
        let used = self.best.load(Relaxed) as usize % WAYS;
        let cost = |way: usize| self.cost[way].load(Relaxed);
        let least = (0..WAYS).min_by_key(|&way| cost(way)).unwrap_or(used);
        if cost(least) >= cost(used) - cost(used) / MARGIN {
            return used;
        }
        self.best.store(u32::try_from(least).unwrap_or(0), Relaxed);
        self.pause.store(0, Relaxed);
        self.left.store(PAUSE.0, Relaxed);
        least
    }
}

fn class_of(len: usize) -> usize {
    let power = (len.max(1)).ilog2().saturating_sub(SMALLEST);
    (power as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages of `len` bytes, each taking `cost` picoseconds a byte by a way; returns the time of all,
    /// and that of the best way alone.
    fn sends(chooser: &Chooser, len: usize, count: u32, cost: impl Fn(u32, usize) -> u64) -> (u64, u64) {
        let (mut all, mut best) = (0, 0);
        for run in 0..count / RUN {
            let way = chooser.begin(len);
            let bytes = (len as u64) * u64::from(RUN);
            let time = |way| bytes * cost(run, way) / 1000;
            chooser.end(len, way, bytes, time(way));
            all += time(way);
            best += time(0).min(time(1));
        }
        (all, best)
    }

    #[test]
    fn either_way_is_found_and_costs_little_to_find() {
        for (first, second) in [(20, 100), (100, 20), (50, 45)] {
            let chooser = Chooser::new();
            let noise = |run: u32| u64::from(run.wrapping_mul(2_654_435_761) >> 29);
            let cost = |run, way| if way == 0 { first + noise(run) } else { second + noise(run + 7) };
            let (all, best) = sends(&chooser, 1 << 20, 40_000, cost);
            assert!(all * 100 < best * 110, "{first} and {second} ps: {all} instead of {best}");
        }
    }

    #[test]
    fn each_size_has_its_own_best_way_which_may_change() {
        let chooser = Chooser::new();
        sends(&chooser, 1 << 16, 4000, |_, way| [20, 60][way]);
        sends(&chooser, 1 << 23, 4000, |_, way| [60, 20][way]);
        assert_eq!((chooser.begin(1 << 16), chooser.begin(1 << 23)), (0, 1));
        let (all, best) = sends(&chooser, 1 << 16, 400_000, |_, way| [60, 20][way]);
        assert!(all * 100 < best * 110, "{all} instead of {best}");
    }

    #[test]
    fn runs_that_lost_their_processor_do_not_decide() {
        let chooser = Chooser::new();
        let cost = |run: u32, way| [20u64, 60][way] * if run.is_multiple_of(3) { 50 } else { 1 };
        sends(&chooser, 1 << 16, 40_000, cost);
        let used = (0..100).filter(|_| chooser.begin(1 << 16) == 0).count();
        assert!(used >= 98, "{used} of 100");
    }

    #[test]
    fn no_size_and_no_time_is_out_of_range() {
        let chooser = Chooser::new();
        for len in [0, 1, usize::MAX] {
            for _ in 0..10 {
                let way = chooser.begin(len);
                chooser.end(len, way, 0, u64::MAX);
            }
        }
        assert!(Chooser::alike(1 << 20, (1 << 21) - 1) && !Chooser::alike(1 << 20, 1 << 21));
    }
}
