//! How long the engine spins before it sleeps.

use std::time::Duration;

/// How long it has lately paid to spin before a sleep.
#[derive(Debug)]
pub(super) struct Spin {
    most: Duration,
    /// How long the next spin may last.
    pub(super) budget: Duration,
}

impl Spin {
    /// Spins of at most `most`; the first budget is zero.
    pub(super) fn new(most: Duration) -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Self { most: if alone { Duration::ZERO } else { most }, budget: Duration::ZERO }
    }

    /// Whether spinning pays now: then the engine reads the interface without waiting for epoll.
    pub(super) fn is_hot(&self) -> bool {
        !self.budget.is_zero()
    }

    /// Notes the end of a spin; `hit`: something came.
    pub(super) fn spun(&mut self, hit: bool) {
        self.budget = if hit { self.most } else { self.budget / 2 };
        if self.budget < Duration::from_micros(2) {
            self.budget = Duration::ZERO;
        }
    }

    /// Notes a sleep that lasted `slept`: instead of a short one, spinning would have been better.
    pub(super) fn slept(&mut self, slept: Duration) {
        if slept < self.most * 2 {
            self.budget = self.most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_stops_when_it_does_not_pay_and_begins_again_when_it_would() {
        let most = Duration::from_micros(50);
        let mut spin = Spin { most, budget: most };
        (0..10).for_each(|_| spin.spun(false));
        assert_eq!(spin.budget, Duration::ZERO);
        spin.slept(Duration::from_millis(3));
        assert_eq!(spin.budget, Duration::ZERO);
        spin.slept(Duration::from_micros(60));
        assert_eq!(spin.budget, most);
    }
}
