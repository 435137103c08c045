//! Ways through the network: breadth-first over the links that both of their hosts declare.

use crosslane_wire::control::MAX_HOPS;
use crosslane_wire::{HostId, PortId};
use std::collections::{BTreeMap, VecDeque};

/// A way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Cables on the way.
    pub hops: u8,
    /// Our port that it begins with.
    pub port: PortId,
}

/// Who is joined to whom: the links that both of their hosts declare.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// In the order of their ids; other fields name a host by its place here.
    hosts: Vec<HostId>,
    links: Vec<Vec<usize>>,
}

impl Graph {
    /// From what each host declares, and from those that are here without having declared anything yet.
    pub fn new(declared: &[(HostId, &[HostId])], here: impl IntoIterator<Item = HostId>) -> Self {
        let mut hosts: Vec<HostId> = declared.iter().map(|(host, _)| *host).chain(here).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let place = |host: &HostId| hosts.binary_search(host).ok();
        let mut known: Vec<&[HostId]> = vec![&[]; hosts.len()];
        for (host, others) in declared {
            if let Some(at) = place(host) {
                known[at] = others;
            }
        }
        let links_of = |(host, others): (&HostId, &&[HostId])| -> Vec<usize> {
            others.iter().filter_map(place).filter(|other| known[*other].contains(host)).collect()
        };
        let links = hosts.iter().zip(&known).map(links_of).collect();
        Self { hosts, links }
    }

    /// Each link once, the smaller id first.
    pub fn links(&self) -> impl Iterator<Item = (HostId, HostId)> + '_ {
        let from = self.hosts.iter().zip(&self.links);
        let all = from.flat_map(|(one, near)| near.iter().map(|other| (*one, self.hosts[*other])));
        all.filter(|(one, other)| one < other)
    }

    fn place(&self, host: HostId) -> Option<usize> {
        self.hosts.binary_search(&host).ok()
    }

    /// Cables from `me` to each host by way of `neighbour` without passing `me` again; 0 for those not reached.
    fn distances(&self, me: HostId, neighbour: usize) -> Vec<u8> {
        let mut hops = vec![0_u8; self.hosts.len()];
        hops[neighbour] = 1;
        let me = self.place(me);
        let mut queue = VecDeque::from([neighbour]);
        while let Some(host) = queue.pop_front() {
            let next = hops[host] + 1;
            if next > MAX_HOPS {
                break;
            }
            for &other in &self.links[host] {
                if hops[other] == 0 && Some(other) != me {
                    hops[other] = next;
                    queue.push_back(other);
                }
            }
        }
        hops
    }
}

/// All hosts that `me` reaches, each with its ways, shortest first; at most one way for each of our ports. In a ring
/// every host has two: both ways round.
pub fn ways(me: HostId, ports: &BTreeMap<PortId, HostId>, graph: &Graph) -> BTreeMap<HostId, Vec<Way>> {
    let mut found: Vec<Vec<Way>> = vec![Vec::new(); graph.hosts.len()];
    for (&port, &neighbour) in ports {
        let Some(neighbour) = graph.place(neighbour) else { continue };
        let distances = graph.distances(me, neighbour);
        for (list, hops) in found.iter_mut().zip(distances).filter(|(_, hops)| *hops > 0) {
            list.push(Way { hops, port });
        }
    }
    found.iter_mut().for_each(|list| list.sort_unstable());
    graph.hosts.iter().copied().zip(found).filter(|(_, list)| !list.is_empty()).collect()
}

/// The shortest way to `to` that begins with `neighbour` and does not pass `me` again: the hosts behind the neighbour,
/// `to` the last; empty if the neighbour is it.
pub fn path(me: HostId, neighbour: HostId, to: HostId, graph: &Graph) -> Option<Vec<HostId>> {
    let (neighbour, mut here) = (graph.place(neighbour)?, graph.place(to)?);
    let hops = graph.distances(me, neighbour);
    let mut path = Vec::new();
    let mut distance = hops[here];
    while here != neighbour {
        path.push(graph.hosts[here]);
        distance = distance.checked_sub(1).filter(|before| *before > 0)?;
        here = *graph.links[here].iter().find(|before| hops[**before] == distance)?;
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
        Graph::new(&declared, [])
    }

    #[test]
    fn a_ring_has_two_ways_to_every_host() {
        let graph = graph(&[(1, &[2, 4]), (2, &[1, 3]), (3, &[2, 4]), (4, &[3, 1])]);
        let ports = BTreeMap::from([(PortId(0), HostId(2)), (PortId(1), HostId(4))]);
        let ways = ways(HostId(1), &ports, &graph);
        assert_eq!(ways[&HostId(2)], [Way { hops: 1, port: PortId(0) }, Way { hops: 3, port: PortId(1) }]);
        assert_eq!(ways[&HostId(3)], [Way { hops: 2, port: PortId(0) }, Way { hops: 2, port: PortId(1) }]);
    }

    #[test]
    fn a_path_names_the_hosts_behind_the_neighbour() {
        let graph = graph(&[(1, &[2, 4]), (2, &[1, 3]), (3, &[2, 4]), (4, &[3, 1])]);
        let path = |neighbour, to| path(HostId(1), HostId(neighbour), HostId(to), &graph);
        assert_eq!(path(2, 2), Some(vec![]));
        assert_eq!(path(2, 3), Some(vec![HostId(3)]));
        assert_eq!(path(2, 4), Some(vec![HostId(3), HostId(4)]));
        assert_eq!(path(4, 2), Some(vec![HostId(3), HostId(2)]));
        assert_eq!(path(4, 7), None);
    }

    #[test]
    fn a_link_that_only_one_host_declares_is_none() {
        let graph = graph(&[(1, &[2]), (2, &[1, 3]), (3, &[])]);
        let ports = BTreeMap::from([(PortId(0), HostId(2))]);
        assert!(!ways(HostId(1), &ports, &graph).contains_key(&HostId(3)));
    }

    #[test]
    fn a_host_farther_than_a_circuit_can_reach_is_not_reached() {
        let far = u16::from(MAX_HOPS) + 10;
        let links: Vec<(HostId, Vec<HostId>)> =
            (1..=far).map(|host| (HostId(host), vec![HostId(host - 1), HostId(host + 1)])).collect();
        let declared: Vec<_> = links.iter().map(|(host, to)| (*host, to.as_slice())).collect();
        let graph = Graph::new(&declared, []);
        let found = ways(HostId(1), &BTreeMap::from([(PortId(0), HostId(2))]), &graph);
        let last = HostId(u16::from(MAX_HOPS) + 1);
        assert_eq!(found.last_key_value(), Some((&last, &vec![Way { hops: MAX_HOPS, port: PortId(0) }])));
        assert_eq!(path(HostId(1), HostId(2), last, &graph).map(|path| path.len()), Some(253));
        assert_eq!(path(HostId(1), HostId(2), HostId(far), &graph), None);
    }
}
