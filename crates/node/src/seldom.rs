//! A line of the log that a neighbour or program can cause at will: said seldom, with how often it was left out.

use std::time::Duration;

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// One kind of line.
#[derive(Debug, Default)]
pub struct Seldom {
    next: Duration,
    left_out: u64,
}

impl Seldom {
    /// Whether to say it now: how often it was left out since it was said last.
    pub fn take(&mut self, now: Duration) -> Option<u64> {
        if now < self.next {
            self.left_out += 1;
            return None;
        }
        self.next = now + EVERY;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_comes_often_is_said_seldom_and_counted() {
        let mut line = Seldom::default();
        let said: Vec<u64> = (0..25).filter_map(|second| line.take(Duration::from_secs(second))).collect();
        assert_eq!(said, [0, 9, 9]);
    }
}
