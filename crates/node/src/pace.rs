//! How fast a stream moves bytes, by looks that come when they come.

use std::time::Duration;

/// Bytes a second from which on a stream counts as busy; where nobody has looked yet, bytes in all.
const BUSY: u64 = 1_000_000;
/// A look that comes sooner behind the last one tells nothing new.
const APART: Duration = Duration::from_millis(10);

/// What the last look saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    last: Option<(Duration, u64)>,
    busy: bool,
}

impl Pace {
    /// Whether a stream that has moved `bytes` by the time `now` has been busy since the look before.
    pub(crate) fn look(&mut self, now: Duration, bytes: u64) -> bool {
        let (passed, moved) = match self.last {
            None => (Duration::from_secs(1), bytes),
            Some((at, before)) => (now.saturating_sub(at), bytes.wrapping_sub(before)),
        };
        if passed >= APART {
            self.busy = u128::from(moved) * 1000 >= u128::from(BUSY) * passed.as_millis();
            self.last = Some((now, bytes));
        }
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_busy_as_long_as_it_moves_a_megabyte_a_second() {
        let (mut pace, at) = (Pace::default(), Duration::from_millis);
        assert!(!pace.look(at(5000), 37), "a greeting");
        assert!(!pace.look(at(5005), 90_000), "too soon to tell");
        assert!(pace.look(at(5020), 90_000));
        assert!(pace.look(at(5025), 90_000), "too soon to tell");
        assert!(!pace.look(at(6025), 1_000_000));
        assert!(pace.look(at(9_000), 9_000_000));
        assert!(Pace::default().look(at(1), 2_000_000), "one that nobody has looked at");
    }
}
