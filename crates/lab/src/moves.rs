//! Streams that were taken to another way: what the daemons' counters say before and after.

use crate::query::Tool;
use crate::{Lab, LabError};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Pause between two looks at the counters.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// Longest watch, however often something moves: a cable may flap all the time.
const LONGEST: Duration = Duration::from_secs(10);

/// What became of streams whose cable was cut or mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Streams that go on over another way. Each has two ends, which may be in two hosts or in one.
    pub streams: u64,
    /// The longest time that one of them was without a circuit, as far as it was seen: of streams that moved in one
    /// host within a look's pause, only the last and a new record show.
    pub longest: Duration,
}

/// The counters of all daemons that run, from when it was made.
#[derive(Debug)]
pub struct Watch(Vec<(Tool, Counters)>);

/// A daemon's counters: ends that moved, and how long the last and the longest took, us.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    moved: u64,
    last: u64,
    longest: u64,
}

impl Lab {
    /// Begins to watch how streams move, to be called before the cable is touched.
    ///
    /// # Errors
    /// [`LabError::NoDaemon`] if one that runs does not answer.
    pub fn watch_moves(&mut self) -> Result<Watch, LabError> {
        self.refresh()?;
        let running = self.state.hosts.iter().filter(|host| host.daemon.is_some_and(|daemon| daemon.alive()));
        let look = |tool: Tool| Ok((Counters::read(&tool.status()?), tool));
        let watched = running.map(|host| look(Tool::connect(&host.control)?));
        let watched: Result<Vec<_>, LabError> = watched.collect();
        Ok(Watch(watched?.into_iter().map(|(counters, tool)| (tool, counters)).collect()))
    }
}

impl Watch {
    /// Looks until nothing has moved any more for `quiet`, counted from now or from the last move; for 10 s at most.
    /// Daemons that are gone are left out.
    pub fn settle(mut self, quiet: Duration) -> Moves {
        let (mut ends, mut longest) = (0, 0);
        let begin = Instant::now();
        let mut since = begin;
        while since.elapsed() < quiet && begin.elapsed() < LONGEST {
            for (tool, before) in &mut self.0 {
                let Ok(status) = tool.status() else { continue };
                let now = Counters::read(&status);
                if now.moved > before.moved {
                    ends += now.moved - before.moved;
                    longest = longest.max(now.slowest_since(before));
                    since = Instant::now();
                }
                *before = now;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Moves { streams: ends.div_ceil(2), longest: Duration::from_micros(longest) }
    }
}

impl Counters {
    fn read(status: &Value) -> Self {
        let counter = |name: &str| status["counters"][name].as_u64().unwrap_or(0);
        Self { moved: counter("moved"), last: counter("move_last_us"), longest: counter("move_longest_us") }
    }

    /// The longest of the moves since `before` that can be told.
    fn slowest_since(&self, before: &Self) -> u64 {
        if self.longest > before.longest { self.longest } else { self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_record_counts_before_the_last() {
        let counters = |moved: u64, last: u64, longest: u64| {
            let names = json!({"moved": moved, "move_last_us": last, "move_longest_us": longest});
            Counters::read(&json!({"counters": names}))
        };
        let before = counters(2, 40, 90);
        assert_eq!(counters(4, 50, 300).slowest_since(&before), 300);
        assert_eq!(counters(4, 50, 90).slowest_since(&before), 50);
    }
}
