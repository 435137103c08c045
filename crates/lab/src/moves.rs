//! Streams that moved to another way, from the daemons' counters before and after.

use crate::query::Tool;
use crate::{Lab, LabError};
use crosslane_status::Counters;
use std::time::{Duration, Instant};

/// Pause between two looks at the counters.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// Longest watch, however often something moves: a cable may flap all the time.
const LONGEST: Duration = Duration::from_secs(10);

/// The streams whose cable was cut or mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Streams that go on over another way. Each has two ends, which may be in two hosts or in one.
    pub streams: u64,
    /// The longest time that one of them was without a circuit, us, as far as it was seen: of several streams that
    /// moved in one host between two looks, only the last move and a new longest one show.
    pub longest: Duration,
}

/// The counters of all running daemons when the watch began.
#[derive(Debug)]
pub struct Watch(Vec<(Tool, Counters)>);

impl Lab {
    /// Begins to watch how streams move; call it before the cable is touched.
    ///
    /// # Errors
    /// [`LabError::NoDaemon`] if one that runs does not answer.
    pub fn watch_moves(&mut self) -> Result<Watch, LabError> {
        self.refresh()?;
        let running = self.state.hosts.iter().filter(|host| host.daemon.is_some_and(|daemon| daemon.alive()));
        let watched = running.map(|host| {
            let tool = Tool::of(&self.folder.path, &self.state, host)?;
            let counters = tool.status()?.counters;
            Ok((tool, counters))
        });
        watched.collect::<Result<_, _>>().map(Watch)
    }
}

impl Watch {
    /// Looks until nothing has moved for `quiet`, counted from now or from the last move; for 10 s at most. Daemons
    /// that are gone are left out.
    pub fn settle(mut self, quiet: Duration) -> Moves {
        let (mut ends, mut longest) = (0, 0);
        let begin = Instant::now();
        let mut since = begin;
        while since.elapsed() < quiet && begin.elapsed() < LONGEST {
            for (tool, before) in &mut self.0 {
                let Ok(status) = tool.status() else { continue };
                let now = status.counters;
                if now.moved > before.moved {
                    ends += now.moved - before.moved;
                    longest = longest.max(slowest_of(before, &now));
                    since = Instant::now();
                }
                *before = now;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Moves { streams: ends.div_ceil(2), longest: Duration::from_micros(longest) }
    }
}

/// The longest known move between two looks, us.
fn slowest_of(before: &Counters, now: &Counters) -> u64 {
    if now.move_longest_us > before.move_longest_us { now.move_longest_us } else { now.move_last_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_prefer_the_newer_record() {
        let counters = |moved, move_last_us, move_longest_us| Counters {
            moved,
            move_last_us,
            move_longest_us,
            ..Counters::default()
        };
        let before = counters(2, 40, 90);
        assert_eq!(slowest_of(&before, &counters(4, 50, 300)), 300);
        assert_eq!(slowest_of(&before, &counters(4, 50, 90)), 50);
    }
}
