//! Paths through the network: breadth-first search over the links that both of their hosts declare.

use crosslane_wire::control::MAX_HOPS;
use crosslane_wire::{HostId, PortId};

/// A path to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Cables on the path.
    pub hops: u8,
    /// This host's port at which it begins.
    pub port: PortId,
}

/// Over which paths a host's circuits are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The shortest ones; between several of one length the cable with the fewest circuits is chosen.
    #[default]
    Shortest,
    /// All: that whose first cable has the fewest circuits, the shortest of several.
    All,
}

/// The graph of the links that both of their hosts declare.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Hosts in ascending order of their ids; other fields refer to a host by its index here.
    hosts: Vec<HostId>,
    /// Neighbours of all hosts, by index, concatenated in the order of `hosts`.
    links: Vec<usize>,
    /// Index in `links` at which each host's neighbours end.
    ends: Vec<usize>,
}

impl Graph {
    /// The graph of what each host declares (in ascending order of ids), and of hosts that are here but have not declared any links yet.
    pub fn new(mut declared: Vec<(HostId, &[HostId])>, here: impl IntoIterator<Item = HostId>) -> Self {
        for host in here {
            if let Err(at) = declared.binary_search_by_key(&host, |(host, _)| *host) {
                declared.insert(at, (host, &[]));
            }
        }
        let hosts: Vec<HostId> = declared.iter().map(|(host, _)| *host).collect();
        let places = Places::new(&hosts);
        let (mut links, mut ends) = (Vec::with_capacity(4 * hosts.len()), Vec::with_capacity(hosts.len()));
        for (host, others) in &declared {
            let places = others.iter().filter_map(|other| places.get(*other));
            links.extend(places.filter(|other| declared[*other].1.contains(host)));
            ends.push(links.len());
        }
        Self { hosts, links, ends }
    }

    /// Each link once, the smaller id first.
    pub fn links(&self) -> impl Iterator<Item = (HostId, HostId)> + '_ {
        let links_of = |place: usize| self.of(place).iter().map(move |other| (place, *other));
        let all = (0..self.hosts.len()).flat_map(links_of).filter(|(one, other)| one < other);
        all.map(|(one, other)| (self.hosts[one], self.hosts[other]))
    }

    fn place(&self, host: HostId) -> Option<usize> {
        self.hosts.binary_search(&host).ok()
    }

    /// The neighbours of this host.
    fn of(&self, host: usize) -> &[usize] {
        let begin = host.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.links[begin..self.ends[host]]
    }

    /// Cables on the shortest path from `me` to `host` that begins with `neighbour` and does not pass `me` again.
    pub fn distance(&self, me: HostId, neighbour: HostId, host: HostId) -> Option<u8> {
        let hops = self.distances(me, self.place(neighbour)?);
        hops.get(self.place(host)?).copied().filter(|hops| *hops > 0)
    }

    /// Cables on the shortest paths from `me` to each host that begin with `neighbour` and do not pass `me` again; 0 for
    /// hosts not reached.
    fn distances(&self, me: HostId, neighbour: usize) -> Vec<u8> {
        let mut hops = vec![0_u8; self.hosts.len()];
        hops[neighbour] = 1;
        let me = self.place(me);
        let mut queue = Vec::with_capacity(self.hosts.len());
        queue.push(neighbour);
        let mut next = 0;
        while let Some(&host) = queue.get(next) {
            next += 1;
            let far = hops[host] + 1;
            if far > MAX_HOPS {
                break;
            }
            for &other in self.of(host) {
                if hops[other] == 0 && Some(other) != me {
                    hops[other] = far;
                    queue.push(other);
                }
            }
        }
        hops
    }
}

/// Index of each host in ascending order of ids, by its id.
struct Places(Vec<u16>);

impl Places {
    const NOWHERE: u16 = u16::MAX;

    /// The indexes of these hosts, which are in ascending order of ids.
    fn new(hosts: &[HostId]) -> Self {
        let mut places = vec![Self::NOWHERE; hosts.last().map_or(0, |last| usize::from(last.0) + 1)];
        for (place, host) in (0..).zip(hosts) {
            places[usize::from(host.0)] = place;
        }
        Self(places)
    }

    fn get(&self, host: HostId) -> Option<usize> {
        self.0
            .get(usize::from(host.0))
            .filter(|place| **place != Self::NOWHERE)
            .map(|place| usize::from(*place))
    }
}

/// The paths to all reachable hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// In ascending order of ids.
    hosts: Vec<HostId>,
    /// Paths of all hosts, concatenated in the order of `hosts`; those of one host shortest first.
    all: Vec<Way>,
    /// Index in `all` at which each host's paths end.
    ends: Vec<usize>,
}

impl Ways {
    /// The paths from `me`, at most one for each port. In a ring there are two to every host: both ways round.
    pub fn new(me: HostId, ports: impl IntoIterator<Item = (PortId, HostId)>, graph: &Graph) -> Self {
        let by = |(port, neighbour)| Some((port, graph.distances(me, graph.place(neighbour)?)));
        let ports: Vec<(PortId, Vec<u8>)> = ports.into_iter().filter_map(by).collect();
        let mut ways = Self::default();
        for (place, host) in graph.hosts.iter().enumerate() {
            let begin = ways.all.len();
            let to = ports.iter().map(|(port, hops)| Way { hops: hops[place], port: *port });
            ways.all.extend(to.filter(|way| way.hops > 0));
            if ways.all.len() > begin {
                ways.all[begin..].sort_unstable();
                ways.hosts.push(*host);
                ways.ends.push(ways.all.len());
            }
        }
        ways
    }

    /// The paths to a host, shortest first; none to `me`.
    pub fn to(&self, host: HostId) -> &[Way] {
        self.hosts.binary_search(&host).map_or(&[], |place| self.at(place))
    }

    /// All reachable hosts, in ascending order of ids.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// The shortest path to each host, in the same order.
    pub fn shortest(&self) -> impl Iterator<Item = Way> + '_ {
        (0..self.hosts.len()).map(|place| self.at(place)[0])
    }

    fn at(&self, place: usize) -> &[Way] {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[begin..self.ends[place]]
    }
}

/// The shortest paths from a host that begin with one of its neighbours and do not pass it again, to all hosts: one search.
#[derive(Clone, Debug)]
pub struct Paths<'a> {
    graph: &'a Graph,
    neighbour: usize,
    hops: Vec<u8>,
}

impl<'a> Paths<'a> {
    /// Those from `me` behind `neighbour`; `None` if there is no such neighbour.
    pub fn new(me: HostId, neighbour: HostId, graph: &'a Graph) -> Option<Self> {
        let neighbour = graph.place(neighbour)?;
        Some(Self { graph, neighbour, hops: graph.distances(me, neighbour) })
    }

    /// The host before `host` on the path to it; `None` if `host` is the neighbour, or is not reached.
    pub fn before(&self, host: HostId) -> Option<HostId> {
        let place = self.graph.place(host).filter(|place| *place != self.neighbour)?;
        self.step(place).map(|before| self.graph.hosts[before])
    }

    fn step(&self, here: usize) -> Option<usize> {
        let distance = self.hops[here].checked_sub(1).filter(|before| *before > 0)?;
        self.graph.of(here).iter().copied().find(|before| self.hops[*before] == distance)
    }
}

/// The shortest path to `to` that begins with `neighbour` and does not pass `me` again: the hosts behind the neighbour,
/// `to` last; empty if `to` is the neighbour.
pub fn path(me: HostId, neighbour: HostId, to: HostId, graph: &Graph) -> Option<Vec<HostId>> {
    let (paths, mut here) = (Paths::new(me, neighbour, graph)?, graph.place(to)?);
    let mut path = Vec::new();
    while here != paths.neighbour {
        path.push(graph.hosts[here]);
        here = paths.step(here)?;
    }
    path.reverse();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(links: &[(u16, &[u16])]) -> Graph {
        let links: Vec<(HostId, Vec<HostId>)> = links
            .iter()
            .map(|(host, to)| (HostId(*host), to.iter().map(|to| HostId(*to)).collect()))
            .collect();
        let declared: Vec<_> = links.iter().map(|(host, to)| (*host, to.as_slice())).collect();
        Graph::new(declared, [])
    }

    #[test]
    fn route_ring_has_two_ways_to_every_host() {
        let graph = graph(&[(1, &[2, 4]), (2, &[1, 3]), (3, &[2, 4]), (4, &[3, 1])]);
        let ports = [(PortId(0), HostId(2)), (PortId(1), HostId(4))];
        let ways = Ways::new(HostId(1), ports, &graph);
        assert_eq!(ways.to(HostId(2)), [Way { hops: 1, port: PortId(0) }, Way { hops: 3, port: PortId(1) }]);
        assert_eq!(ways.to(HostId(3)), [Way { hops: 2, port: PortId(0) }, Way { hops: 2, port: PortId(1) }]);
    }

    #[test]
    fn route_path_names_the_hosts_behind_the_neighbour() {
        let graph = graph(&[(1, &[2, 4]), (2, &[1, 3]), (3, &[2, 4]), (4, &[3, 1])]);
        let path = |neighbour, to| path(HostId(1), HostId(neighbour), HostId(to), &graph);
        assert_eq!(path(2, 2), Some(vec![]));
        assert_eq!(path(2, 3), Some(vec![HostId(3)]));
        assert_eq!(path(2, 4), Some(vec![HostId(3), HostId(4)]));
        assert_eq!(path(4, 2), Some(vec![HostId(3), HostId(2)]));
        assert_eq!(path(4, 7), None);
    }

    #[test]
    fn route_paths_of_one_search_are_those_of_a_search_each() {
        let graph = graph(&[(1, &[2, 4]), (2, &[1, 3]), (3, &[2, 4]), (4, &[3, 1]), (5, &[])]);
        let paths = Paths::new(HostId(1), HostId(2), &graph).expect("a neighbour");
        let before = [1, 2, 3, 4, 5, 9].map(|host| paths.before(HostId(host)).map(|before| before.0));
        assert_eq!(before, [None, None, Some(2), Some(3), None, None]);
        assert!(Paths::new(HostId(1), HostId(9), &graph).is_none());
    }

    #[test]
    fn route_ignores_a_link_that_one_host_alone_declares() {
        let graph = graph(&[(1, &[2]), (2, &[1, 3]), (3, &[])]);
        assert_eq!(Ways::new(HostId(1), [(PortId(0), HostId(2))], &graph).hosts(), [HostId(2)]);
    }

    #[test]
    fn route_ends_where_a_circuit_cannot_reach() {
        let far = u16::from(MAX_HOPS) + 10;
        let links: Vec<(HostId, Vec<HostId>)> =
            (1..=far).map(|host| (HostId(host), vec![HostId(host - 1), HostId(host + 1)])).collect();
        let declared: Vec<_> = links.iter().map(|(host, to)| (*host, to.as_slice())).collect();
        let graph = Graph::new(declared, []);
        let found = Ways::new(HostId(1), [(PortId(0), HostId(2))], &graph);
        let last = HostId(u16::from(MAX_HOPS) + 1);
        assert_eq!(
            (found.hosts().last(), found.shortest().last()),
            (Some(&last), Some(Way { hops: MAX_HOPS, port: PortId(0) }))
        );
        assert_eq!(path(HostId(1), HostId(2), last, &graph).map(|path| path.len()), Some(253));
        assert_eq!(path(HostId(1), HostId(2), HostId(far), &graph), None);
    }
}
