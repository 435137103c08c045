//! What `top` knows: the last two looks at the status, and what they say over time.

use super::events::Events;
use super::history::{History, SECONDS};
use super::latency::Latencies;
use super::rates::{self, Moved, Rates};
use crate::picture::{self, Link};
use crosslane_status::{Circuit, Port, Status};
use crosslane_wire::{CircuitId, HostId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

/// All of it. Times are since the first look.
#[derive(Debug)]
pub(crate) struct State {
    now: Status,
    at: Duration,
    /// The look before that; none at first, and when the daemon was started again.
    before: Option<(Status, Duration)>,
    /// Traffic out and in of each port, by name.
    ports: BTreeMap<String, [History; 2]>,
    /// Traffic out and in of this host's streams and packets.
    host: [History; 2],
    /// All links since the first look.
    seen: BTreeSet<Link>,
    /// When each circuit was first seen; `None`: it was there at the first look.
    born: HashMap<CircuitId, Option<Duration>>,
    /// Round trips to other hosts.
    pub(crate) latencies: Latencies,
    events: Events,
}

impl State {
    /// The state of the first look.
    pub(crate) fn new(status: Status) -> Self {
        let born = status.circuits.iter().map(|circuit| (circuit.id, None)).collect();
        Self {
            seen: picture::links(&status),
            at: Duration::ZERO,
            before: None,
            ports: BTreeMap::new(),
            host: Default::default(),
            born,
            latencies: Latencies::default(),
            events: Events::default(),
            now: status,
        }
    }

    /// Takes in another look, that of the time `at`, which the clock calls `clock`.
    pub(crate) fn look(&mut self, status: Status, at: Duration, clock: SystemTime) {
        let before = std::mem::replace(&mut self.now, status);
        let then = std::mem::replace(&mut self.at, at);
        self.events.compare(&before, &self.now, at, clock);
        // Its counters and numbers of circuits began anew.
        let restarted = self.now.uptime_s < before.uptime_s;
        self.before = (!restarted).then_some((before, then));
        if restarted {
            self.born = self.now.circuits.iter().map(|circuit| (circuit.id, None)).collect();
        }
        self.remember(then);
        self.seen.extend(picture::links(&self.now));
    }

    fn remember(&mut self, then: Duration) {
        let Some((before, _)) = &self.before else { return };
        let host = [&before.counters, &self.now.counters].map(rates::of_host);
        add(&mut self.host, host, then, self.at);
        self.ports.retain(|name, _| self.now.port(name).is_some());
        for port in &self.now.ports {
            let was = before.port(&port.name).map(rates::of_port).unwrap_or_default();
            let history = self.ports.entry(port.name.clone()).or_default();
            add(history, [was, rates::of_port(port)], then, self.at);
        }
        let (mut born, at) = (std::mem::take(&mut self.born), self.at);
        let first = |circuit: &Circuit| (circuit.id, born.remove(&circuit.id).unwrap_or(Some(at)));
        self.born = self.now.circuits.iter().map(first).collect();
    }

    /// The last look.
    pub(crate) fn status(&self) -> &Status {
        &self.now
    }

    /// When that was.
    pub(crate) fn at(&self) -> Duration {
        self.at
    }

    /// The difference from the look before; none after the first one.
    pub(crate) fn rates(&self) -> Option<Rates<'_>> {
        let (before, then) = self.before.as_ref()?;
        let seconds = self.at.saturating_sub(*then).as_secs_f64();
        Some(Rates { before, now: &self.now, seconds })
    }

    /// All links since the first look.
    pub(crate) fn seen(&self) -> &BTreeSet<Link> {
        &self.seen
    }

    /// The hosts to probe in the next round.
    pub(crate) fn round(&mut self) -> Vec<HostId> {
        self.latencies.round(&self.now)
    }

    /// What happened, as far as the looks show it.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// All ports, each with its rates out and in, if there are any yet.
    pub(crate) fn ports(&self) -> Vec<(&Port, Option<[f64; 2]>)> {
        match self.rates() {
            Some(rates) => rates.ports().map(|(port, both)| (port, Some(both))).collect(),
            None => self.now.ports.iter().map(|port| (port, None)).collect(),
        }
    }

    /// All circuits, each with its rates out and in, if there are any yet.
    pub(crate) fn circuits(&self) -> Vec<(&Circuit, Option<[f64; 2]>)> {
        match self.rates() {
            Some(rates) => rates.circuits().map(|(circuit, both)| (circuit, Some(both))).collect(),
            None => self.now.circuits.iter().map(|circuit| (circuit, None)).collect(),
        }
    }

    /// Bytes out and in of a port in each second of the last minute.
    pub(crate) fn port_minute(&self, name: &str) -> [Vec<f64>; 2] {
        let history = self.ports.get(name);
        [0, 1].map(|way| match history {
            Some(both) => both[way].last_minute(self.at),
            None => vec![0.0; SECONDS],
        })
    }

    /// The same of this host's streams and packets.
    pub(crate) fn host_minute(&self) -> [Vec<f64>; 2] {
        [0, 1].map(|way| self.host[way].last_minute(self.at))
    }

    /// Most bytes a second that a port had in the last minute, in either direction.
    pub(crate) fn busiest(&self) -> f64 {
        let all = self.now.ports.iter().flat_map(|port| self.port_minute(&port.name)).flatten();
        all.fold(0.0, f64::max)
    }

    /// How old a circuit is, and whether it may be older: it was there before the first look.
    pub(crate) fn age(&self, circuit: CircuitId) -> (Duration, bool) {
        match self.born.get(&circuit) {
            Some(Some(born)) => (self.at.saturating_sub(*born), false),
            _ => (self.at, true),
        }
    }

    /// Rates out and in of this host's cables, by the host at the other end.
    pub(crate) fn cables(&self) -> BTreeMap<HostId, [f64; 2]> {
        let mut all: BTreeMap<HostId, [f64; 2]> = BTreeMap::new();
        for (port, rates) in self.ports() {
            if let (Some(peer), Some([tx, rx])) = (port.peer, rates) {
                let sum = all.entry(peer).or_default();
                *sum = [sum[0] + tx, sum[1] + rx];
            }
        }
        all
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn add(history: &mut [History; 2], [was, is]: [Moved; 2], from: Duration, to: Duration) {
    history[0].add(from, to, rates::increase(was.0, is.0) as f64);
    history[1].add(from, to, rates::increase(was.1, is.1) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::Counters;

    fn status(uptime_s: f64, tx_bytes: u64, circuits: &[u64]) -> Status {
        let circuit = |id: &u64| Circuit {
            id: CircuitId(*id),
            ..Circuit::between(([10, 86, 0, 1], 1).into(), ([10, 86, 0, 2], 2).into())
        };
        let port = Port { name: "right".to_owned(), peer: Some(HostId(2)), tx_bytes, ..Port::default() };
        Status {
            uptime_s,
            ports: vec![port],
            circuits: circuits.iter().map(circuit).collect(),
            counters: Counters { stream_tx_bytes: tx_bytes, ..Counters::default() },
            ..Status::default()
        }
    }

    fn look(state: &mut State, status: Status, second: u64) {
        state.look(status, Duration::from_secs(second), SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn state_has_no_rates_before_the_second_look() {
        let mut state = State::new(status(10.0, 500, &[1]));
        assert!(state.rates().is_none() && state.ports()[0].1.is_none() && state.circuits()[0].1.is_none());
        look(&mut state, status(11.0, 700, &[1]), 1);
        assert_eq!(state.ports()[0].1, Some([200.0, 0.0]));
        assert_eq!(state.cables()[&HostId(2)], [200.0, 0.0]);
    }

    #[test]
    fn state_keeps_the_last_minute_of_each_port() {
        let mut state = State::new(status(10.0, 0, &[]));
        (1..=90).for_each(|second| look(&mut state, status(10.0, second * 100, &[]), second));
        let [tx, rx] = state.port_minute("right");
        assert!(tx.len() == SECONDS && tx.iter().all(|amount| (amount - 100.0).abs() < 1e-6), "{tx:?}");
        assert!(rx.iter().all(|amount| *amount == 0.0) && (state.busiest() - 100.0).abs() < 1e-6);
        assert_eq!(state.host_minute()[0], tx);
        assert_eq!(state.port_minute("none")[0], vec![0.0; SECONDS]);
    }

    #[test]
    fn state_tells_ages_of_streams_that_came_after_it() {
        let mut state = State::new(status(10.0, 0, &[1]));
        look(&mut state, status(12.0, 0, &[1, 2]), 2);
        look(&mut state, status(15.0, 0, &[1, 2]), 5);
        assert_eq!(state.age(CircuitId(1)), (Duration::from_secs(5), true));
        assert_eq!(state.age(CircuitId(2)), (Duration::from_secs(3), false), "it came after the first look");
        look(&mut state, status(16.0, 0, &[]), 6);
        assert!(state.born.is_empty(), "what is gone takes no memory");
    }

    #[test]
    fn state_begins_anew_with_another_daemon() {
        let mut state = State::new(status(1000.0, 5000, &[1]));
        look(&mut state, status(1001.0, 6000, &[1]), 1);
        look(&mut state, status(0.5, 10, &[1]), 2);
        assert!(state.rates().is_none());
        look(&mut state, status(1.5, 30, &[1]), 3);
        assert_eq!(state.ports()[0].1, Some([20.0, 0.0]));
        assert!(state.busiest() <= 1000.0);
    }
}
