//! Round trips to other hosts, as `crosslane ping` measures them: from this host's daemon to the other one and back, over the control
//! channel.

use crosslane_status::Status;
use crosslane_wire::HostId;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Hosts that are asked in one round, at most; of more, each round asks the next ones.
const ROUND: usize = 16;
/// Latest round trips that are kept one by one.
const LATEST: usize = 60;
/// Longest round trip that is told from longer ones, ns; the daemon gives up sooner.
const LONGEST_NS: u64 = 4_000_000_000;
/// Significant digits of the percentiles.
const DIGITS: u8 = 2;

/// The round trips to one host since it was first asked.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    /// Probes sent.
    pub(crate) sent: u64,
    /// Cables on the way, of the last answer.
    pub(crate) hops: Option<u8>,
    /// The latest, ns, the oldest first; `None`: no answer came.
    latest: VecDeque<Option<u64>>,
    /// The longest, ns.
    longest: u64,
    /// All, ns; absent only if there is no memory for it.
    all: Option<Histogram<u64>>,
}

impl Default for RoundTrips {
    fn default() -> Self {
        let all = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok();
        Self { sent: 0, hops: None, latest: VecDeque::new(), longest: 0, all }
    }
}

impl RoundTrips {
    fn add(&mut self, time_ns: Option<u64>, hops: u8) {
        self.sent += 1;
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(time_ns);
        if let Some(ns) = time_ns {
            self.hops = Some(hops);
            self.longest = self.longest.max(ns);
            self.all.iter_mut().for_each(|all| all.saturating_record(ns.max(1)));
        }
    }

    /// Probes without an answer.
    pub(crate) fn lost(&self) -> u64 {
        self.sent - self.all.as_ref().map_or(0, Histogram::len)
    }

    /// The last one, ns, if that was answered.
    pub(crate) fn last(&self) -> Option<u64> {
        self.latest.back().copied().flatten()
    }

    /// The round trip that `percent` of all did not exceed, ns; none before the first answer.
    pub(crate) fn percentile(&self, percent: f64) -> Option<u64> {
        let all = self.all.as_ref().filter(|all| !all.is_empty())?;
        // It gives the end of a range of values.
        Some(all.value_at_percentile(percent).min(self.longest))
    }

    /// The latest round trips, ns, the oldest first; 0 without an answer.
    #[expect(clippy::cast_precision_loss, reason = "for a picture")]
    pub(crate) fn latest(&self) -> Vec<f64> {
        self.latest.iter().map(|time| time.unwrap_or(0) as f64).collect()
    }
}

/// The round trips to all hosts.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    hosts: BTreeMap<HostId, RoundTrips>,
    /// Where the next round begins, in the order of [`hosts_of`].
    next: usize,
}

impl Latencies {
    /// Counts one probe.
    pub(crate) fn add(&mut self, host: HostId, time_ns: Option<u64>, hops: u8) {
        self.hosts.entry(host).or_default().add(time_ns, hops);
    }

    /// Those of one host.
    pub(crate) fn of(&self, host: HostId) -> Option<&RoundTrips> {
        self.hosts.get(&host)
    }

    /// All hosts that were asked.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (HostId, &RoundTrips)> {
        self.hosts.iter().map(|(host, trips)| (*host, trips))
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.hosts.clear();
    }

    /// The hosts to ask in the next round, the nearest first.
    pub(crate) fn round(&mut self, status: &Status) -> Vec<HostId> {
        let all = hosts_of(status);
        let begin = if self.next < all.len() { self.next } else { 0 };
        let round: Vec<HostId> = all.into_iter().skip(begin).take(ROUND).collect();
        self.next = begin + round.len();
        round
    }

    /// All percentiles, us.
    pub(crate) fn json(&self) -> Value {
        let us = |ns: Option<u64>| ns.map(us_of);
        let row = |(host, trips): (HostId, &RoundTrips)| {
            json!({
                "host": host, "hops": trips.hops, "sent": trips.sent, "lost": trips.lost(), "last": us(trips.last()),
                "p50": us(trips.percentile(50.0)), "p90": us(trips.percentile(90.0)),
                "p99": us(trips.percentile(99.0)), "max": us(trips.percentile(100.0)),
            })
        };
        self.hosts().map(row).collect()
    }
}

fn hosts_of(status: &Status) -> Vec<HostId> {
    let mut all: Vec<_> = status.hosts.iter().map(|host| (host.hops.unwrap_or(u8::MAX), host.id)).collect();
    all.sort_unstable_by_key(|(hops, id)| (*hops, id.0));
    all.into_iter().map(|(_, id)| id).collect()
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn us_of(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// A time for people: `12.3us`, `1.20ms`.
pub(crate) fn time(ns: u64) -> String {
    match us_of(ns) {
        us if us < 100.0 => format!("{us:.1}us"),
        us if us < 1000.0 => format!("{us:.0}us"),
        us if us < 100_000.0 => format!("{:.2}ms", us / 1000.0),
        us => format!("{:.0}ms", us / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::Host;

    #[test]
    fn latency_percentiles_are_of_all_answers() {
        let mut all = Latencies::default();
        (1..=100).for_each(|us| all.add(HostId(2), Some(us * 1000), 1));
        all.add(HostId(2), None, 0);
        let trips = all.of(HostId(2)).expect("asked");
        assert_eq!((trips.sent, trips.lost(), trips.last(), trips.hops), (101, 1, None, Some(1)));
        for (percent, us) in [(50.0, 50_000), (90.0, 90_000), (99.0, 99_000), (100.0, 100_000)] {
            let value = trips.percentile(percent).expect("answers");
            assert!(value.abs_diff(us) <= us / 50, "{percent}: {value}");
        }
        assert_eq!(trips.percentile(100.0), Some(100_000), "the largest is exact");
        assert_eq!(trips.latest().len(), LATEST);
        assert_eq!(all.json()[0]["max"], 100.0);
        all.clear();
        assert_eq!(all.json(), json!([]));
    }

    #[test]
    fn latency_without_an_answer_is_none() {
        let mut all = Latencies::default();
        all.add(HostId(3), None, 0);
        assert_eq!(all.of(HostId(3)).and_then(|trips| trips.percentile(50.0)), None);
        assert_eq!(all.json()[0]["p50"], Value::Null);
    }

    #[test]
    fn latency_rounds_are_bounded_and_come_to_every_host() {
        let host = |id: u16| Host { id: HostId(id), hops: u8::try_from(id).ok(), ..Host::default() };
        let status = Status { hosts: (1..=40).rev().map(host).collect(), ..Status::default() };
        let mut all = Latencies::default();
        let rounds: Vec<Vec<HostId>> = (0..4).map(|_| all.round(&status)).collect();
        assert_eq!(rounds.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8, 16]);
        assert_eq!((rounds[0][0], rounds[2][7], rounds[3][0]), (HostId(1), HostId(40), HostId(1)));
        assert!(all.round(&Status::default()).is_empty());
    }

    #[test]
    fn latency_is_shown_in_a_unit_that_fits() {
        assert_eq!(
            [12_340, 340_000, 1_204_000, 250_000_000].map(time),
            ["12.3us", "340us", "1.20ms", "250ms"]
        );
    }
}
