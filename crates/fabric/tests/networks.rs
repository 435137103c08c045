//! Networks of several hosts in one process: cables go up and down in any order, everybody ends up knowing the same.

use crosslane_fabric::Links;
use crosslane_fabric::route::Way;
use crosslane_wire::control::LinkState;
use crosslane_wire::{HostId, PortId};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// Hosts, the cables between their ports, and what is under way on them.
struct Network {
    hosts: Vec<Links>,
    cables: Vec<Cable>,
}

struct Cable {
    ends: [(usize, PortId); 2],
    up: bool,
    /// Messages under way, towards each end.
    queues: [VecDeque<Vec<LinkState>>; 2],
}

fn id(index: usize) -> HostId {
    HostId(u16::try_from(index + 1).unwrap())
}

impl Network {
    fn new(hosts: usize, ring: bool) -> Self {
        let host = |index: usize| Links::new(id(index), 1000 + index as u64);
        let mut cables: Vec<Cable> = (0..hosts - 1).map(|left| Cable::new(left, left + 1)).collect();
        if ring && hosts > 2 {
            cables.push(Cable::new(hosts - 1, 0));
        }
        Self { hosts: (0..hosts).map(host).collect(), cables }
    }

    fn set(&mut self, cable: usize, up: bool) {
        let cable = &mut self.cables[cable];
        if cable.up == up {
            return;
        }
        cable.up = up;
        cable.queues = [VecDeque::new(), VecDeque::new()];
        for side in 0..2 {
            let ((host, port), peer) = (cable.ends[side], cable.ends[1 - side].0);
            if up {
                self.hosts[host].handle_cable_up(port, id(peer));
            } else {
                self.hosts[host].handle_cable_down(port);
            }
        }
    }

    /// Carries one message over one cable, one way; false if there was none.
    fn step(&mut self, cable: usize, side: usize) -> bool {
        let cable = &mut self.cables[cable];
        if !cable.up {
            return false;
        }
        let ((from, out), (to, port)) = (cable.ends[side], cable.ends[1 - side]);
        if let Some(message) = self.hosts[from].poll_output(out) {
            cable.queues[1 - side].push_back(message);
        }
        let Some(message) = cable.queues[1 - side].pop_front() else { return false };
        self.hosts[to].handle_link_states(port, message).expect("hosts do not lie");
        true
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut moved = false;
            for cable in 0..self.cables.len() {
                moved |= self.step(cable, 0) | self.step(cable, 1);
            }
            if !moved {
                return;
            }
        }
        panic!("the flood does not end");
    }

    /// Hops between all hosts by Floyd and Warshall, to hold the hosts' own view against.
    fn distances(&self) -> Vec<Vec<Option<u8>>> {
        let count = self.hosts.len();
        let mut table: Vec<Vec<Option<u8>>> = vec![vec![None; count]; count];
        for cable in self.cables.iter().filter(|cable| cable.up) {
            let (a, b) = (cable.ends[0].0, cable.ends[1].0);
            table[a][b] = Some(1);
            table[b][a] = Some(1);
        }
        for via in 0..count {
            for a in 0..count {
                for b in 0..count {
                    if let (Some(x), Some(y)) = (table[a][via], table[via][b]) {
                        table[a][b] = Some(table[a][b].map_or(x + y, |old| old.min(x + y)));
                    }
                }
            }
        }
        table
    }

    fn check(&self) {
        let table = self.distances();
        for (index, host) in self.hosts.iter().enumerate() {
            let known: BTreeMap<HostId, Way> = host.hosts().collect();
            for (other, distance) in table[index].iter().enumerate().filter(|(other, _)| *other != index) {
                let found = known.get(&id(other)).map(|way| way.hops);
                assert_eq!(found, *distance, "host {} to {}", id(index), id(other));
            }
            assert!(!host.has_duplicate());
        }
    }
}

impl Cable {
    fn new(left: usize, right: usize) -> Self {
        Self { ends: [(left, PortId(1)), (right, PortId(0))], up: false, queues: Default::default() }
    }
}

#[test]
fn network_converges_as_pair_chain_and_ring() {
    for hosts in [2, 3, 4, 8, 100] {
        for ring in [false, true] {
            let mut network = Network::new(hosts, ring);
            for cable in 0..network.cables.len() {
                network.set(cable, true);
            }
            network.settle();
            network.check();
        }
    }
}

#[test]
fn network_ring_gives_every_host_both_ways() {
    let mut network = Network::new(8, true);
    for cable in 0..8 {
        network.set(cable, true);
    }
    network.settle();
    for host in 1..8 {
        let hops: u8 = network.hosts[0].ways(id(host)).iter().map(|way| way.hops).sum();
        assert_eq!((network.hosts[0].ways(id(host)).len(), hops), (2, 8));
    }
}

#[test]
fn network_believes_a_restarted_host_whatever_its_clock() {
    let mut network = Network::new(4, true);
    for cable in 0..4 {
        network.set(cable, true);
    }
    network.settle();
    for cable in [0, 1] {
        network.set(cable, false);
    }
    network.settle();
    network.hosts[1] = Links::new(id(1), 3);
    for cable in [0, 1] {
        network.set(cable, true);
    }
    network.settle();
    network.check();
}

#[test]
fn network_detects_a_duplicate_id_and_the_flood_ends() {
    let mut network = Network::new(4, false);
    network.hosts[3] = Links::new(id(0), 77);
    network.set(0, true);
    network.set(1, true);
    network.cables[2].up = true;
    network.hosts[2].handle_cable_up(PortId(1), id(0));
    network.hosts[3].handle_cable_up(PortId(0), id(2));
    network.settle();
    assert!(network.hosts[0].has_duplicate() || network.hosts[3].has_duplicate());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cables go up and down while records are under way in any order; once at rest, all know the truth.
    #[test]
    fn network_converges_in_any_order_of_events(
        hosts in prop_oneof![Just(2_usize), Just(3), Just(4), Just(8)],
        ring: bool,
        events in prop::collection::vec((any::<u8>(), any::<u8>(), 0_u8..6), 0..200),
    ) {
        let mut network = Network::new(hosts, ring);
        for (cable, side, what) in events {
            let cable = usize::from(cable) % network.cables.len();
            match what {
                0 => network.set(cable, true),
                1 => network.set(cable, false),
                _ => { network.step(cable, usize::from(side % 2)); }
            }
        }
        network.settle();
        network.check();
    }

    /// Whatever a neighbour sends, nothing panics, and tables stay bounded.
    #[test]
    fn network_survives_hostile_records(
        records in prop::collection::vec(
            (any::<u16>(), any::<u64>(), any::<u64>(), prop::collection::vec(any::<u16>(), 0..20), any::<bool>()),
            0..100),
    ) {
        let mut links = Links::new(HostId(1), 5);
        links.handle_cable_up(PortId(0), HostId(2));
        links.handle_cable_up(PortId(1), HostId(3));
        for (origin, incarnation, sequence, neighbours, in_order) in records {
            let mut neighbours: Vec<HostId> = neighbours.into_iter().map(|host| HostId(host % 300)).collect();
            if in_order {
                neighbours.sort_unstable();
                neighbours.dedup();
            }
            let record = LinkState { origin: HostId(origin % 300), incarnation, sequence, neighbours, age: 0, seal: None };
            let _ = links.handle_link_states(PortId(0), vec![record]);
        }
        prop_assert!(links.hosts().count() <= 254);
    }
}
