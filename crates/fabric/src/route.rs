//! Ways through the network: breadth-first over the links that both of their hosts declare.

use crosslane_wire::{HostId, PortId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Cables on the way.
    pub hops: u8,
    /// Our port that it begins with.
    pub port: PortId,
}

/// Links by host: each host with those it declares as its neighbours.
pub type Graph = BTreeMap<HostId, BTreeSet<HostId>>;

/// All hosts that `me` reaches, each with its ways, shortest first; at most one way for each of our ports. In a ring
/// every host has two: both ways round.
pub fn ways(me: HostId, ports: &BTreeMap<PortId, HostId>, graph: &Graph) -> BTreeMap<HostId, Vec<Way>> {
    let mut found: BTreeMap<HostId, Vec<Way>> = BTreeMap::new();
    for (&port, &neighbour) in ports {
        for (host, hops) in distances(me, neighbour, graph) {
            found.entry(host).or_default().push(Way { hops, port });
        }
    }
    for list in found.values_mut() {
        list.sort_unstable();
    }
    found
}

/// Cables from `me` to each host that is reached by way of `neighbour` without passing `me` again.
fn distances(me: HostId, neighbour: HostId, graph: &Graph) -> BTreeMap<HostId, u8> {
    let mut hops = BTreeMap::from([(neighbour, 1_u8)]);
    let mut queue = VecDeque::from([neighbour]);
    while let Some(host) = queue.pop_front() {
        let next = hops.get(&host).copied().unwrap_or(u8::MAX).saturating_add(1);
        for &other in graph.get(&host).into_iter().flatten() {
            let mutual = graph.get(&other).is_some_and(|back| back.contains(&host));
            if other != me && mutual && !hops.contains_key(&other) {
                hops.insert(other, next);
                queue.push_back(other);
            }
        }
    }
    hops
}

/// The shortest way to `to` that begins with `neighbour` and does not pass `me` again: the hosts behind the neighbour,
/// `to` the last; empty if the neighbour is it.
pub fn path(me: HostId, neighbour: HostId, to: HostId, graph: &Graph) -> Option<Vec<HostId>> {
    let hops = distances(me, neighbour, graph);
    let mut path = Vec::new();
    let mut here = to;
    let mut distance = *hops.get(&to)?;
    while here != neighbour {
        path.push(here);
        distance -= 1;
        let before = graph.get(&here).into_iter().flatten().find(|before| {
            let mutual = graph.get(before).is_some_and(|links| links.contains(&here));
            mutual && hops.get(before) == Some(&distance)
        });
        here = *before?;
    }
    path.reverse();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(links: &[(u16, &[u16])]) -> Graph {
        links.iter().map(|(host, to)| (HostId(*host), to.iter().map(|to| HostId(*to)).collect())).collect()
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
}
