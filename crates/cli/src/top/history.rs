//! The traffic of the last minute, second by second.

use std::time::Duration;

/// How many seconds are shown.
pub(crate) const SECONDS: usize = 60;
/// How many are kept: the one that is under way too.
const KEPT: usize = SECONDS + 2;

/// How much came in each of the last seconds. Its memory is fixed, whatever the time between looks.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The amount of second `s` is at `s % KEPT`.
    bins: [f64; KEPT],
    /// The latest second that has a place.
    newest: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { bins: [0.0; KEPT], newest: 0 }
    }
}

impl History {
    /// Adds an amount that came between two times, evenly. Times do not go backwards.
    pub(crate) fn add(&mut self, from: Duration, to: Duration, amount: f64) {
        self.advance(to.as_secs());
        let span = to.saturating_sub(from).as_secs_f64();
        if span <= 0.0 || !amount.is_finite() {
            return;
        }
        let oldest = self.newest.saturating_sub(KEPT as u64 - 1);
        for second in from.as_secs().max(oldest)..=to.as_secs() {
            let (begin, end) = (Duration::from_secs(second), Duration::from_secs(second + 1));
            let part = end.min(to).saturating_sub(begin.max(from)).as_secs_f64();
            self.bins[place(second)] += amount * part / span;
        }
    }

    /// The whole seconds of the last minute, the oldest first, each with the amount that came in it.
    pub(crate) fn last_minute(&self, now: Duration) -> Vec<f64> {
        let now = now.as_secs();
        let amount = |ago: u64| {
            let second = now.checked_sub(ago)?;
            (second <= self.newest && second + KEPT as u64 > self.newest).then(|| self.bins[place(second)])
        };
        (1..=SECONDS as u64).rev().map(|ago| amount(ago).unwrap_or(0.0)).collect()
    }

    fn advance(&mut self, second: u64) {
        let missing = second.saturating_sub(self.newest).min(KEPT as u64);
        for second in second + 1 - missing..=second {
            self.bins[place(second)] = 0.0;
        }
        self.newest = self.newest.max(second);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below 100")]
fn place(second: u64) -> usize {
    (second % KEPT as u64) as usize
}

/// The values in `columns` columns at most: each is the largest of those that it stands for, so that no peak is lost.
pub(crate) fn columns(values: &[f64], columns: usize) -> Vec<f64> {
    let columns = columns.min(values.len());
    let part = |at: usize| &values[at * values.len() / columns..(at + 1) * values.len() / columns];
    (0..columns).map(|at| part(at).iter().copied().fold(0.0, f64::max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn history_spreads_what_came_over_the_seconds_between_two_looks() {
        let mut history = History::default();
        history.add(at(0.0), at(0.5), 10.0);
        history.add(at(0.5), at(3.0), 100.0);
        let minute = history.last_minute(at(3.2));
        assert_eq!(minute.len(), SECONDS);
        assert_eq!(minute[57..], [30.0, 40.0, 40.0]);
        assert_eq!(minute[..57].iter().sum::<f64>(), 0.0);
    }

    #[test]
    fn history_forgets_what_is_older_than_a_minute() {
        let mut history = History::default();
        for second in 0..500_u32 {
            history.add(at(second.into()), at(f64::from(second) + 1.0), f64::from(second));
        }
        let minute = history.last_minute(at(500.0));
        assert_eq!((minute[0], minute[59]), (440.0, 499.0));
        history.add(at(500.0), at(10_000.0), 9500.0);
        assert!(history.last_minute(at(10_000.0)).iter().all(|value| (value - 1.0).abs() < 1e-9));
        assert!(history.last_minute(at(20_000.0)).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn history_in_few_columns_keeps_its_peaks() {
        let mut values = vec![0.0; SECONDS];
        values[31] = 7.0;
        assert_eq!(columns(&values, 4), [0.0, 0.0, 7.0, 0.0]);
        assert_eq!(columns(&values, 100), values);
        assert!(columns(&values, 0).is_empty() && columns(&[], 9).is_empty());
    }
}
