//! What must hold when all is over.

use crate::program::Outcome;
use crate::world::World;
use crosslane_wire::HostId;
use std::collections::{BTreeMap, VecDeque};

impl World {
    /// Holds everything against what must be.
    pub(crate) fn check(&mut self) {
        for stream in 0..self.streams.len() {
            self.check_stream(stream);
        }
        self.check_leaks();
        self.check_ways();
        self.check_flood();
    }

    /// Both ends closed in order, or both had an error.
    fn check_stream(&mut self, stream: usize) {
        let outcome = |program: Option<usize>| program.map(|program| self.programs[program].outcome);
        let outcomes = self.streams[stream].programs.map(outcome);
        if outcomes.contains(&Some(None)) {
            let programs = self.streams[stream].programs.map(|program| program.map(|it| &self.programs[it]));
            let why = format!("stream {stream} does not end: {programs:#?}");
            return self.fail_stream(stream, why);
        }
        let [client, server] = outcomes.map(Option::flatten);
        for (one, other) in [(client, server), (server, client)] {
            let closed = one == Some(Outcome::Closed);
            if closed && matches!(other, None | Some(Outcome::Failed | Outcome::Refused)) {
                self.fail_stream(
                    stream,
                    format!("stream {stream} ended in two ways: {client:?}, {server:?}"),
                );
            }
        }
    }

    /// Nothing is left of streams that are over.
    fn check_leaks(&mut self) {
        for host in 0..self.hosts.len() {
            let (here, policy) = (&self.hosts[host], &self.policies[host]);
            let rings: usize = here.ports.iter().map(|port| port.window.len()).sum();
            let left = [
                policy.circuits.iter().count(),
                policy.circuits.pending(),
                policy.circuits.channel_count(),
                policy.circuits.transits().count(),
                here.parts.len(),
                here.memory.len(),
                here.passages.len(),
                rings,
                policy.decided(),
            ];
            if here.alive && left != [0; 9] {
                self.fail(format!(
                    "host {host} has [ends, pending, channels, transits, parts, segments, passages, rings, decided] {left:?}: \
                     {:?}",
                    self.policies[host].circuits
                ));
            }
        }
    }

    /// Every host knows the shortest ways.
    pub(crate) fn check_ways(&mut self) {
        for host in 0..self.hosts.len() {
            if !self.hosts[host].alive {
                continue;
            }
            let known: BTreeMap<HostId, u8> =
                self.policies[host].links.hosts().map(|(host, way)| (host, way.hops)).collect();
            let truth = self.distances(host);
            if known != truth {
                self.fail(format!("host {host} knows ways {known:?}, and there are {truth:?}"));
            }
        }
    }

    fn distances(&self, from: usize) -> BTreeMap<HostId, u8> {
        let mut hops: Vec<Option<u8>> = vec![None; self.hosts.len()];
        hops[from] = Some(0);
        let mut queue = VecDeque::from([from]);
        while let Some(host) = queue.pop_front() {
            let next = hops[host].map(|hops| hops + 1);
            for &(cable, side) in self.hosts[host].plugs.iter().flatten() {
                let other = self.cables[cable].ends[1 - side].0;
                if self.cables[cable].up && hops[other].is_none() {
                    hops[other] = next;
                    queue.push_back(other);
                }
            }
        }
        hops[from] = None;
        self.hosts.iter().zip(hops).filter_map(|(host, hops)| Some((host.id, hops?))).collect()
    }

    /// Link states do not storm: `docs/protocol.md` has the bound.
    pub(crate) fn check_flood(&mut self) {
        let cables = u64::try_from(self.cables.len()).unwrap();
        let counts = &self.counts;
        let most = 2 * (2 * cables * counts.versions + counts.tables);
        if counts.records > most {
            self.fail(format!("more than {most} link states: {counts:?}"));
        }
    }
}
