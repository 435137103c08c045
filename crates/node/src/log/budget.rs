//! How often each place in the source may log.

use std::collections::HashMap;
use std::time::Duration;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// How many lines may come at once, and how many a second after that.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    second: u32,
}

/// What anybody reads.
const NEWS: Rate = Rate { burst: 50, second: 2 };
/// `debug` and `trace`, which somebody has asked for.
const DETAILS: Rate = Rate { burst: 2000, second: 50 };

/// The budget of one place.
#[derive(Debug)]
struct Budget {
    rate: Rate,
    /// Lines, in nanoseconds of their worth.
    saved: Duration,
    at: Duration,
    left_out: u64,
    place: String,
}

/// All places that have logged.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    places: HashMap<Identifier, Budget>,
    left_out: bool,
}

impl Budget {
    fn new(metadata: &Metadata<'_>, now: Duration) -> Self {
        let rate = if *metadata.level() <= Level::INFO { NEWS } else { DETAILS };
        let place = format!("{}:{}", metadata.target(), metadata.line().unwrap_or(0));
        Self { rate, saved: rate.worth() * rate.burst, at: now, left_out: 0, place }
    }

    fn take(&mut self, now: Duration) -> bool {
        let earned = now.saturating_sub(self.at);
        self.saved = (self.saved + earned).min(self.rate.worth() * self.rate.burst);
        self.at = now;
        let left = self.saved.checked_sub(self.rate.worth());
        self.saved = left.unwrap_or(self.saved);
        self.left_out += u64::from(left.is_none());
        left.is_some()
    }
}

impl Rate {
    fn worth(self) -> Duration {
        Duration::from_secs(1) / self.second
    }
}

impl Budgets {
    /// Whether the place may log now.
    pub(super) fn take(&mut self, metadata: &Metadata<'_>, now: Duration) -> bool {
        let new = || Budget::new(metadata, now);
        let may = self.places.entry(metadata.callsite()).or_insert_with(new).take(now);
        self.left_out |= !may;
        may
    }

    /// Whether lines were left out of which nobody has been told.
    pub(super) fn has_left_out(&self) -> bool {
        self.left_out
    }

    /// What was left out since this was asked last: places with numbers of lines.
    pub(super) fn left_out(&mut self) -> Vec<(String, u64)> {
        self.left_out = false;
        let places = self.places.values_mut().filter(|budget| budget.left_out > 0);
        places.map(|budget| (budget.place.clone(), std::mem::take(&mut budget.left_out))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(rate: Rate) -> Budget {
        Budget {
            rate,
            saved: rate.worth() * rate.burst,
            at: Duration::ZERO,
            left_out: 0,
            place: String::new(),
        }
    }

    #[test]
    fn a_burst_passes_and_then_so_many_a_second() {
        let mut news = budget(NEWS);
        assert_eq!((0..1000).filter(|_| news.take(Duration::ZERO)).count(), 50);
        let later = |ms| Duration::from_millis(ms);
        assert_eq!((0..10_000).filter(|ms| news.take(later(*ms))).count(), 19);
        assert_eq!(news.left_out, 950 + 9981);
        assert_eq!((0..1000).filter(|_| news.take(Duration::from_secs(10_000))).count(), 50);
    }
}
