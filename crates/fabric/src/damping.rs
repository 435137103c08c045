//! Damping of a flapping cable: each loss shortly after the one before doubles the time that the cable must stay up
//! before any path uses it, unless it is the only path to the host behind it. So a flapping cable costs streams two
//! moves, not a hundred a second, and its link states do not flood the network.

use std::time::Duration;

/// Losses farther apart than this do not count together.
const FORGET: Duration = Duration::from_secs(10);
/// How long a cable must stay up after the second loss.
const HOLD_MIN: Duration = Duration::from_millis(50);
/// The longest such time.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// What is remembered about a cable's losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damping {
    losses: u32,
    last: Duration,
}

impl Damping {
    /// The cable was lost.
    pub fn lost(&mut self, now: Duration) {
        if now.saturating_sub(self.last) > FORGET {
            self.losses = 0;
        }
        self.losses = self.losses.saturating_add(1);
        self.last = now;
    }

    /// How long the cable that is up now must stay up before it is used.
    pub fn hold(&self) -> Duration {
        match self.losses.checked_sub(2) {
            None => Duration::ZERO,
            Some(times) => (HOLD_MIN * 2_u32.saturating_pow(times.min(16))).min(HOLD_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damping_forgives_the_first_loss_and_not_a_row_of_them() {
        let mut damping = Damping::default();
        let mut holds = Vec::new();
        for loss in 1..9 {
            damping.lost(Duration::from_millis(20 * loss));
            holds.push(damping.hold().as_millis());
        }
        assert_eq!(holds, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        damping.lost(Duration::from_secs(20));
        assert_eq!(damping.hold(), Duration::ZERO);
    }
}
