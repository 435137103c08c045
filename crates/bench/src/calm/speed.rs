//! How much of its speed a processor has: how long the same work takes.
//!
//! A virtual machine's processor is mostly one of two hardware threads of a core. What another machine runs on the other one
//! takes up to half of the core, and is no steal: the hypervisor does not count it. Only the speed shows it from inside.

use crate::clock::clock;
use std::hint::black_box;

/// Steps of a batch (about a microsecond of a core that has nothing else to do), and batches, of which the fastest counts.
const STEPS: u64 = 1000;
const BATCHES: u64 = 5;
/// Chains of work that do not wait for each other: enough to keep a core busy.
const CHAINS: usize = 8;
/// Factor within which what is measured of a processor with all its speed varies; beside another machine it is 1.25 to 2.
const FULL: f64 = 1.2;

/// How long the work takes on the calling thread's processor, ns: the fastest batch.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
pub(super) fn work() -> f64 {
    let batch = |seed: u64| {
        let begin = clock();
        let mut chains = black_box([seed; CHAINS]);
        for _ in 0..STEPS {
            for (at, chain) in (1..).zip(&mut chains) {
                *chain = chain.wrapping_add(at).rotate_left(7);
            }
        }
        black_box(chains);
        clock() - begin
    };
    (0..BATCHES).map(batch).min().unwrap_or(0) as f64
}

/// What is known of the speed of processors.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// The shortest time of the work, ns.
    shortest: Option<f64>,
}

impl Speed {
    /// Whether processors that took so long, ns, have all their speed, by what has been seen until now.
    pub(super) fn is_full(&mut self, work: f64) -> bool {
        let shortest = self.shortest.map_or(work, |shortest| shortest.min(work));
        self.shortest = Some(shortest);
        work <= shortest * FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_full_near_the_best_that_was_seen() {
        let mut speed = Speed::default();
        assert!(speed.is_full(2000.0), "the only one that is known");
        assert!(speed.is_full(1200.0) && speed.is_full(1400.0));
        assert!(!speed.is_full(1800.0) && !speed.is_full(2000.0));
    }

    #[test]
    fn work_takes_some_time() {
        let time = work();
        assert!((10.0..1e8).contains(&time), "{time} ns");
    }
}
