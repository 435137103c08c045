//! The paths that daemons take: those of `crosslane-fabric`, from every host to every other.

use crate::network::{DirectionId, Network};
use crosslane_fabric::route::{Graph, Paths, Ways};
use crosslane_wire::{HostId, PortId};

const NONE: u16 = u16::MAX;

/// Paths between all pairs of hosts. A host takes the shortest one, of several that at the lower port, and hosts between follow it.
#[derive(Clone, Debug)]
pub struct Routes<'a> {
    network: &'a Network,
    /// For each host, and each other one: the host before that on the path to it.
    before: Vec<u16>,
    /// For each host, and each other one: cables on the path; 0 if there is none.
    hops: Vec<u8>,
}

/// Ids of hosts begin with 1.
fn id(host: u16) -> HostId {
    HostId(host + 1)
}

impl<'a> Routes<'a> {
    /// The paths in this network.
    pub fn new(network: &'a Network) -> Self {
        let count = usize::from(network.hosts());
        let mut routes = Self { network, before: vec![NONE; count * count], hops: vec![0; count * count] };
        let neighbours = |host| network.ports(host).iter().map(|(other, _)| id(*other)).collect::<Vec<_>>();
        let declared: Vec<(HostId, Vec<HostId>)> =
            (0..network.hosts()).map(|host| (id(host), neighbours(host))).collect();
        let declared = declared.iter().map(|(host, others)| (*host, others.as_slice())).collect();
        let graph = Graph::new(declared, []);
        (0..network.hosts()).for_each(|host| routes.enter(host, &graph));
        routes
    }

    /// Enters the paths from `me`.
    fn enter(&mut self, me: u16, graph: &Graph) {
        let ports: Vec<(PortId, HostId)> =
            (0..).map(PortId).zip(self.network.ports(me).iter().map(|(other, _)| id(*other))).collect();
        let ways = Ways::new(id(me), ports.iter().copied(), graph);
        let paths: Vec<_> =
            ports.iter().map(|(_, neighbour)| Paths::new(id(me), *neighbour, graph)).collect();
        for (&to, way) in ways.hosts().iter().zip(ways.shortest()).filter(|(to, _)| **to != id(me)) {
            let before = paths[usize::from(way.port.0)].as_ref().and_then(|paths| paths.before(to));
            let at = self.at(me, to.0 - 1);
            self.before[at] = before.map_or(me, |host| host.0 - 1);
            self.hops[at] = way.hops;
        }
    }

    fn at(&self, from: u16, to: u16) -> usize {
        usize::from(from) * usize::from(self.network.hosts()) + usize::from(to)
    }

    /// The network.
    pub fn network(&self) -> &'a Network {
        self.network
    }

    /// Cables between two hosts; `None` if they are one, or have no path.
    pub fn hops(&self, from: u16, to: u16) -> Option<u8> {
        Some(self.hops[self.at(from, to)]).filter(|hops| *hops > 0)
    }

    /// The directions on the path between two hosts; empty if there is none.
    pub fn path(&self, from: u16, to: u16) -> Vec<DirectionId> {
        let mut path: Vec<DirectionId> = self.backwards(from, to).collect();
        path.reverse();
        path
    }

    /// The same, the last first.
    pub fn backwards(&self, from: u16, to: u16) -> impl Iterator<Item = DirectionId> + '_ {
        let mut here = to;
        std::iter::from_fn(move || {
            let before = Some(self.before[self.at(from, here)]).filter(|before| *before != NONE)?;
            let direction = self.network.direction(before, here);
            here = before;
            direction
        })
    }

    /// All ordered pairs of hosts that have a path.
    pub fn pairs(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let hosts = self.network.hosts();
        let all = (0..hosts).flat_map(move |from| (0..hosts).map(move |to| (from, to)));
        all.filter(|(from, to)| self.hops(*from, *to).is_some())
    }

    /// How many ordered pairs of hosts are so many cables apart, by the number of cables.
    pub fn distances(&self) -> Vec<u64> {
        let mut counts = vec![0; usize::from(self.hops.iter().copied().max().unwrap_or(0)) + 1];
        for hops in self.hops.iter().filter(|hops| **hops > 0) {
            counts[usize::from(*hops)] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;
    use crosslane_fabric::route::path;

    fn routed(text: &str, hosts: u16, check: impl Fn(&Routes<'_>)) {
        let network = Network::new(text.parse().unwrap(), hosts).unwrap();
        check(&Routes::new(&network));
    }

    #[test]
    fn plan_routes_are_those_of_the_daemons() {
        for (text, hosts) in
            [("ring", 7), ("ring", 8), ("chain", 5), ("torus", 12), ("torus", 25), ("mesh", 6)]
        {
            routed(text, hosts, |routes| {
                let network = routes.network();
                let links: Vec<(HostId, Vec<HostId>)> = (0..hosts)
                    .map(|host| (id(host), network.ports(host).iter().map(|(other, _)| id(*other)).collect()))
                    .collect();
                let graph = Graph::new(links.iter().map(|(host, to)| (*host, to.as_slice())).collect(), []);
                for (from, to) in routes.pairs() {
                    let ports = (0..).map(PortId).zip(links[usize::from(from)].1.iter().copied());
                    let way = Ways::new(id(from), ports, &graph).to(id(to))[0];
                    let neighbour = links[usize::from(from)].1[usize::from(way.port.0)];
                    let mut theirs = vec![id(from), neighbour];
                    theirs.extend(path(id(from), neighbour, id(to), &graph).unwrap());
                    let mut ours = vec![id(from)];
                    ours.extend(routes.path(from, to).iter().map(|direction| id(network.ends(*direction).1)));
                    assert_eq!(ours, theirs, "{text} of {hosts}");
                    assert_eq!(routes.hops(from, to), Some(way.hops));
                }
            });
        }
    }

    #[test]
    fn plan_distances_count_all_pairs() {
        routed("ring", 6, |routes| assert_eq!(routes.distances(), [0, 12, 12, 6]));
        routed("chain", 4, |routes| assert_eq!(routes.distances(), [0, 6, 4, 2]));
        routed("torus", 9, |routes| assert_eq!(routes.distances(), [0, 36, 36]));
        routed("chain", 512, |routes| {
            assert_eq!(routes.distances().len(), 255, "a circuit has 254 cables at most")
        });
    }

    #[test]
    fn plan_pairs_without_a_path_are_left_out() {
        let chain = Network::new(Topology::Chain, 4).unwrap().without(&[(1, 2)]).unwrap();
        let routes = Routes::new(&chain);
        assert_eq!(routes.pairs().count(), 4);
        assert!(routes.path(0, 2).is_empty() && routes.hops(0, 0).is_none());
    }
}
