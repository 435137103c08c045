//! Spin for a bounded time, then sleep. The bound adapts to how long earlier waits took.

use crate::clock::now_ns;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the next wait for one event source spins. Belongs to that source: all threads that wait for the source share it.
///
/// ```text
///   event came while spinning       -> back up to the limit
///   event came soon after sleeping  -> twice as long: a longer spin would have seen it
///   event came long after           -> half as long, down to no spin
/// ```
#[repr(C)]
#[derive(Debug, Default)]
pub struct Budget(AtomicU32);

/// Shortest spin worth beginning, ns.
const LEAST_NS: u32 = 2_000;
/// Pause between two looks of [`look_until`].
const LOOK: Duration = Duration::from_micros(50);

impl Budget {
    /// A budget of whatever limit the next wait has.
    pub const fn new() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }

    /// Starts out at `limit_ns`.
    pub fn reset(&self, limit_ns: u32) {
        self.0.store(limit_ns, Relaxed);
    }

    /// How long to spin now, ns; at most `limit_ns`.
    pub fn ns(&self, limit_ns: u32) -> u32 {
        let budget = self.0.load(Relaxed).min(limit_ns);
        if budget < LEAST_NS { 0 } else { budget }
    }

    /// The event came during the spin.
    pub fn spun(&self, limit_ns: u32) {
        self.0.store(limit_ns, Relaxed);
    }

    /// The event came, or the wait timed out, after the thread had slept `slept_ns`.
    pub fn slept(&self, slept_ns: u64, limit_ns: u32) {
        let budget = self.0.load(Relaxed).min(limit_ns);
        let next = if slept_ns < 2 * u64::from(limit_ns) {
            (budget * 2).max(2 * LEAST_NS).min(limit_ns)
        } else {
            budget / 2
        };
        self.0.store(next, Relaxed);
    }
}

/// Calls `ready` until it returns `true` or `budget_ns` have passed; reads the clock every 32 calls. Returns whether `ready`
/// returned `true`.
#[inline]
pub fn spin(budget_ns: u32, ready: impl FnMut() -> bool) -> bool {
    spin_with(budget_ns, ready, || {})
}

/// As [`spin`], and yields the processor every 32 calls: for events that another thread of this machine must cause,
/// perhaps on the same processor.
pub fn spin_and_yield(budget_ns: u32, ready: impl FnMut() -> bool) -> bool {
    spin_with(budget_ns, ready, let_others_run)
}

/// Calls `between` before each look at the clock.
#[inline]
fn spin_with(budget_ns: u32, mut ready: impl FnMut() -> bool, between: impl Fn()) -> bool {
    if budget_ns == 0 {
        return ready();
    }
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        between();
        if start.elapsed().as_nanos() >= u128::from(budget_ns) {
            return ready();
        }
    }
}

/// Yields the processor. If the thread that then ran kept the processor for more than 200 us, it was not the one that
/// this thread waits for: this process then does not yield for 20 ms.
pub fn let_others_run() {
    let before = now_ns();
    if before < NO_YIELDS_UNTIL.load(Relaxed) {
        return;
    }
    std::thread::yield_now();
    let now = now_ns();
    if now.saturating_sub(before) > LONG_YIELD_NS {
        NO_YIELDS_UNTIL.store(now + NO_YIELDS_NS, Relaxed);
    }
}

/// Time until which this process does not yield while it spins, ns of [`now_ns`].
static NO_YIELDS_UNTIL: AtomicU64 = AtomicU64::new(0);
/// Longest time, ns, for which a thread that only forwards something runs.
const LONG_YIELD_NS: u64 = 200_000;
/// How long the process does not yield after another thread kept the processor longer, ns.
const NO_YIELDS_NS: u64 = 20_000_000;

/// Calls `ready` every 50 us, and sleeps in between, until it returns `true` or the time `until` is reached. Returns
/// whether `ready` returned `true`.
pub fn look_until(until: Instant, mut ready: impl FnMut() -> bool) -> bool {
    while Instant::now() < until {
        if ready() {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    ready()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spin_budget_shrinks_when_spinning_does_not_pay() {
        let budget = Budget::default();
        budget.reset(50_000);
        for _ in 0..10 {
            budget.slept(1_000_000_000, 50_000);
        }
        assert_eq!(budget.ns(50_000), 0);
    }

    #[test]
    fn spin_budget_grows_after_short_sleeps() {
        let budget = Budget::default();
        for _ in 0..10 {
            budget.slept(30_000, 50_000);
        }
        assert_eq!(budget.ns(50_000), 50_000);
    }

    #[test]
    fn spin_until_ready_or_late() {
        let mut left = 3;
        let ready = || {
            left -= 1;
            left == 0
        };
        assert!(look_until(Instant::now() + Duration::from_secs(10), ready));
        assert!(!look_until(Instant::now() + Duration::from_millis(1), || false));
    }

    #[test]
    fn spin_is_bounded() {
        assert!(!spin_and_yield(1000, || false));
        assert!(spin_and_yield(0, || true) && spin_and_yield(1000, || true));
        assert!(!spin(1000, || false));
        assert!(spin(0, || true));
    }
}
