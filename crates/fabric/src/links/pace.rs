//! The rate at which records are accepted from a port: a number of each origin at once, and then one at intervals. Of
//! records that come faster the newest of each origin waits, so that a neighbour cannot make this host or the network
//! work without end, and no origin's newest record is lost.

use super::order::{Recency, compare};
use crosslane_wire::HostId;
use crosslane_wire::control::LinkState;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// A token bucket: `most` at once, and one more every `every`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    every: Duration,
    most: u32,
    /// When the bucket is full again.
    whole_at: Duration,
}

impl Budget {
    pub(super) const fn new(every: Duration, most: u32) -> Self {
        Self { every, most, whole_at: Duration::ZERO }
    }

    /// Takes one token; `false` if there is none now.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let may = self.ready_at() <= now;
        if may {
            self.whole_at = self.whole_at.max(now) + self.every;
        }
        may
    }

    /// When there is a token again.
    pub(super) fn ready_at(&self) -> Duration {
        (self.whole_at + self.every).saturating_sub(self.every * self.most)
    }
}

/// Budget for records of one origin from one port.
const ORIGIN: Budget = Budget::new(Duration::from_millis(250), 16);

/// A record that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) record: LinkState,
    /// Whether an older record arrived after it and was dropped: that record's sender must get this one.
    pub(super) has_dropped: bool,
}

/// The records that arrive at one port.
#[derive(Debug, Default)]
pub(super) struct Intake {
    budgets: BTreeMap<HostId, Budget>,
    waiting: BTreeMap<HostId, Waiting>,
}

impl Intake {
    /// The record, if it may be taken now; else it waits, until the returned time.
    pub(super) fn offer(&mut self, record: LinkState, now: Duration) -> Result<LinkState, Duration> {
        let budget = self.budgets.entry(record.origin).or_insert(ORIGIN);
        if budget.take(now) {
            return Ok(record);
        }
        let until = budget.ready_at();
        match self.waiting.entry(record.origin) {
            Entry::Vacant(place) => drop(place.insert(Waiting { record, has_dropped: false })),
            Entry::Occupied(mut waits) => match compare(&record, &waits.get().record, 0) {
                Recency::Newer => drop(waits.insert(Waiting { record, has_dropped: false })),
                Recency::Older => waits.get_mut().has_dropped = true,
                Recency::Same | Recency::Younger => {}
            },
        }
        Err(until)
    }

    /// A record whose turn has come.
    pub(super) fn poll(&mut self, now: Duration) -> Option<Waiting> {
        let ready = self
            .waiting
            .keys()
            .copied()
            .find(|origin| self.budgets.get_mut(origin).is_none_or(|budget| budget.take(now)));
        self.waiting.remove(&ready?)
    }

    /// When [`Self::poll`] returns a record.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let ready = |origin| self.budgets.get(origin).map_or(Duration::ZERO, Budget::ready_at);
        self.waiting.keys().map(ready).min()
    }

    /// Drops budgets that are full.
    pub(super) fn tidy(&mut self, now: Duration) {
        self.budgets.retain(|_, budget| budget.whole_at > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_budget_is_full_at_first_and_refills_slowly() {
        let mut budget = Budget::new(Duration::from_secs(1), 3);
        let mut taken = |second| {
            let now = Duration::from_secs(second);
            (0..9).filter(|_| budget.take(now)).count()
        };
        assert_eq!([taken(0), taken(0), taken(1), taken(3), taken(100)], [3, 0, 1, 2, 3]);
    }
}
