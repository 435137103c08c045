//! The state of the lab's cables and daemons, and since when two hosts can reach each other.

use super::HOSTS;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So long after it was mended, or its daemon started, a cable may not be up yet: a connecting port tries again after at
/// most 1 s, and a cable that flaps must stay up for up to 1 s before it is used.
const UP_AGAIN: Duration = Duration::from_millis(2500);

/// Since when something works; `None` while it does not.
type Since = Option<Instant>;

/// Cables and daemons.
#[derive(Debug)]
pub(super) struct Network {
    /// By the numbers of their hosts, the smaller first.
    cables: BTreeMap<(usize, usize), Since>,
    daemons: Vec<Since>,
    /// When a daemon of each host was killed last.
    killed: Vec<Since>,
    /// When each two hosts were apart last.
    apart: BTreeMap<(usize, usize), Instant>,
}

impl Network {
    /// A ring that is up.
    pub(super) fn ring() -> Self {
        let long_ago = Instant::now().checked_sub(UP_AGAIN);
        let hosts = HOSTS.len();
        let cable = |host: usize| (host.min((host + 1) % hosts), host.max((host + 1) % hosts));
        Self {
            cables: (0..hosts).map(|host| (cable(host), long_ago)).collect(),
            daemons: vec![long_ago; hosts],
            killed: vec![None; hosts],
            apart: BTreeMap::new(),
        }
    }

    /// The cables that are whole, or those that are cut.
    pub(super) fn cables(&self, whole: bool) -> Vec<(usize, usize)> {
        self.cables.iter().filter(|(_, since)| since.is_some() == whole).map(|(cable, _)| *cable).collect()
    }

    pub(super) fn set_cable(&mut self, cable: (usize, usize), whole: bool) {
        self.cables.insert(cable, whole.then(Instant::now));
        self.note();
    }

    pub(super) fn set_daemon(&mut self, host: usize, runs: bool) {
        self.daemons[host] = runs.then(Instant::now);
        if !runs {
            self.killed[host] = Some(Instant::now());
        }
        self.note();
    }

    pub(super) fn runs(&self, host: usize) -> bool {
        self.daemons[host].is_some()
    }

    /// Notes which hosts cannot be sure to reach each other now. To be called often: cables come up in time.
    pub(super) fn note(&mut self) {
        let now = Instant::now();
        for one in 0..HOSTS.len() {
            let reached = self.reached_from(one, now);
            for other in (one + 1..HOSTS.len()).filter(|other| !reached[*other]) {
                self.apart.insert((one, other), now);
            }
        }
    }

    /// Whether the network's faults may have reset a stream between two hosts that began at that time.
    pub(super) fn excuses(&self, one: usize, other: usize, begun: Instant) -> bool {
        let killed = [one, other].into_iter().filter_map(|host| self.killed[host]);
        let apart = self.apart.get(&(one.min(other), one.max(other))).copied();
        killed.chain(apart).any(|at| at + UP_AGAIN >= begun)
    }

    fn reached_from(&self, one: usize, now: Instant) -> Vec<bool> {
        let steady = |since: &Since| since.is_some_and(|since| since + UP_AGAIN <= now);
        let mut reached = vec![false; HOSTS.len()];
        let mut next = vec![one];
        while let Some(host) = next.pop() {
            if std::mem::replace(&mut reached[host], true) || !steady(&self.daemons[host]) {
                continue;
            }
            let cables = self.cables.iter().filter(|(_, since)| steady(since)).map(|(cable, _)| *cable);
            next.extend(cables.filter_map(|(a, b)| match host {
                _ if host == a => Some(b),
                _ if host == b => Some(a),
                _ => None,
            }));
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_excuses_nothing_and_two_cuts_the_hosts_apart() {
        let mut network = Network::ring();
        let begun = Instant::now();
        network.set_cable((0, 1), false);
        assert!(!network.excuses(0, 1, begun));
        network.set_cable((2, 3), false);
        assert!(network.excuses(0, 1, begun) && !network.excuses(1, 2, begun));
    }

    #[test]
    fn daemon_killed_excuses_streams_of_its_host_alone() {
        let mut network = Network::ring();
        let begun = Instant::now();
        network.set_daemon(3, false);
        assert!(network.excuses(3, 1, begun) && !network.excuses(0, 2, begun));
    }
}
