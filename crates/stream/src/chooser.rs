//! Chooses the way to move sends of one size, by measurement: it takes the way with the least time per byte in the runs
//! of sends so far, and tries the other way at ever longer intervals.
//!
//! Pure: the caller measures the time. Threads share one chooser without a lock; a lost update costs one run's measurement.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A *run* is consecutive sends that go the same way and are measured together. It has at least this many sends,
pub const RUN: u32 = 8;
/// and at least this many bytes: several times what a ring holds.
pub const RUN_BYTES: u64 = 8 << 20;
/// Number of ways that are compared.
pub const WAYS: usize = 2;
/// All sends below 2^SMALLEST bytes are one class; above, each power of two is a class of its own.
const SMALLEST: u32 = 14;
const CLASSES: usize = 12;
/// Runs of each way before the faster one is preferred.
const FIRST: u32 = 3;
/// Runs of the preferred way before the other one is tried again: the first number, then twice as many each time, up to the
/// second number.
const PAUSE: (u32, u32) = (64, 4096);
/// Ageing of a way's best measurement: with each run of that way its cost rises by one part in this number.
const FORGET: u32 = 32;
/// The other way replaces the preferred one only if it costs less by one part in this number, so that noise changes nothing.
const MARGIN: u32 = 16;

/// The measurements of one class of sizes.
#[derive(Debug, Default)]
struct Class {
    /// Cost of the best run of each way, picoseconds per byte.
    cost: [AtomicU32; WAYS],
    /// Runs of each way, up to [`FIRST`].
    runs: [AtomicU32; WAYS],
    /// The preferred way.
    best: AtomicU32,
    /// Runs left until the other way is tried again.
    left: AtomicU32,
    /// Runs between the last two tries; doubles with each.
    pause: AtomicU32,
}

/// The measurements of all classes of sizes.
#[derive(Debug, Default)]
pub struct Chooser([Class; CLASSES]);

impl Chooser {
    /// A chooser without any measurement.
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

    /// Whether sends of `one` and of `other` bytes are in the same class.
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
    /// The preferred way, after comparing the measurements.
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

    /// Sends `count` messages of `len` bytes, each of which takes `cost` picoseconds a byte by its way; returns the time
    /// of all, and the time that the best way alone would have taken.
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
    fn chooser_finds_either_way_cheaply() {
        for (first, second) in [(20, 100), (100, 20), (50, 45)] {
            let chooser = Chooser::new();
            let noise = |run: u32| u64::from(run.wrapping_mul(2_654_435_761) >> 29);
            let cost = |run, way| if way == 0 { first + noise(run) } else { second + noise(run + 7) };
            let (all, best) = sends(&chooser, 1 << 20, 40_000, cost);
            assert!(all * 100 < best * 110, "{first} and {second} ps: {all} instead of {best}");
        }
    }

    #[test]
    fn chooser_decides_for_each_size_and_may_change() {
        let chooser = Chooser::new();
        sends(&chooser, 1 << 16, 4000, |_, way| [20, 60][way]);
        sends(&chooser, 1 << 23, 4000, |_, way| [60, 20][way]);
        assert_eq!((chooser.begin(1 << 16), chooser.begin(1 << 23)), (0, 1));
        let (all, best) = sends(&chooser, 1 << 16, 400_000, |_, way| [60, 20][way]);
        assert!(all * 100 < best * 110, "{all} instead of {best}");
    }

    #[test]
    fn chooser_ignores_runs_that_lost_their_processor() {
        let chooser = Chooser::new();
        let cost = |run: u32, way| [20u64, 60][way] * if run.is_multiple_of(3) { 50 } else { 1 };
        sends(&chooser, 1 << 16, 40_000, cost);
        let used = (0..100).filter(|_| chooser.begin(1 << 16) == 0).count();
        assert!(used >= 98, "{used} of 100");
    }

    #[test]
    fn chooser_takes_any_size_and_time() {
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
