//! Who is joined to whom: numbered link-state records, flooded from neighbour to neighbour.
//!
//! ```text
//!   cable up/down ---> own record, sequence + 1 ---> owed to every port
//!   record arrives --+- newer than ours ----> kept, owed to every other port
//!                    +- older than ours ----> ours is owed to that port
//!                    +- equal --------------> nothing
//!                    +- about us, not ours -> our incarnation goes above it; again and again: two hosts of our id
//! ```
//! What is owed to a port is a set of origins, not a queue: however slow a channel is, it is never more than one
//! record for each host. The newer record is the one with the greater (incarnation, sequence).

use crate::HOST_MAX;
use crate::route::{Graph, Way, Ways, path};
use core::cell::OnceCell;
use crosslane_wire::control::{LinkState, MAX_LINKS};
use crosslane_wire::{HostId, PortId};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Most records in one message.
pub const BATCH: usize = 64;
/// So many times we go above a record about us before we call it another host of our id.
const RETORTS: u32 = 4;

/// What a neighbour sent that it must not.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum LinksError {
    /// A host id out of range, or a host that is its own neighbour.
    #[error("link state of host {0} names a host that cannot be")]
    Host(HostId),
    /// Links that are not in the order of their hosts' ids, each once.
    #[error("link state of host {0} has its links out of order, or one twice")]
    Order(HostId),
    /// More links than a host can have.
    #[error("link state of host {0} has {1} links")]
    Links(HostId, usize),
    /// More records than a message may hold.
    #[error("message with {0} link states")]
    Records(usize),
}

/// What follows from the link states.
#[derive(Debug)]
struct Found {
    graph: Graph,
    /// Those that begin with a port that leads on.
    ways: Ways,
    /// Those that begin with any port, if not all lead on.
    all: Option<Ways>,
}

/// What one host knows of the network.
#[derive(Debug)]
pub struct Links {
    me: HostId,
    ports: BTreeMap<PortId, HostId>,
    states: BTreeMap<HostId, LinkState>,
    owed: BTreeMap<PortId, BTreeSet<HostId>>,
    /// Found when they are asked for: many records come at once.
    found: OnceCell<Found>,
    /// The ways as somebody was told of them last, if links have changed since then.
    told: Option<Ways>,
    retorts: u32,
    twin: bool,
    reborn: BTreeSet<HostId>,
    /// The ports that ways may begin with; `None`: all.
    onward: Option<BTreeSet<PortId>>,
    highest: u16,
}

impl Links {
    /// A host without cables. `incarnation` must be greater than those of the host's earlier lives (wall clock above
    /// random bits); if it is not, the host goes above them when it hears of them.
    pub fn new(me: HostId, incarnation: u64) -> Self {
        let own = LinkState { origin: me, incarnation, sequence: 1, neighbours: vec![] };
        Self {
            me,
            ports: BTreeMap::new(),
            states: BTreeMap::from([(me, own)]),
            owed: BTreeMap::new(),
            found: OnceCell::new(),
            told: Some(Ways::default()),
            retorts: 0,
            twin: false,
            reborn: BTreeSet::new(),
            onward: None,
            highest: HOST_MAX,
        }
    }

    /// Hosts may have ids up to `highest`, which is all that bounds what we remember of a neighbour's stories.
    pub fn allow_hosts(&mut self, highest: u16) {
        self.highest = highest;
    }

    /// All ways begin with one of these ports: traffic goes one way round, as in the ring study.
    pub fn go_one_way(&mut self, onward: impl IntoIterator<Item = PortId>) {
        self.onward = Some(onward.into_iter().collect());
        self.forget_ways();
    }

    /// A cable is up; `host` is at its other end.
    pub fn handle_cable_up(&mut self, port: PortId, host: HostId) {
        self.ports.insert(port, host);
        self.owed.insert(port, self.states.keys().copied().collect());
        self.retorts = 0;
        self.twin = false;
        self.renew();
    }

    /// A cable is down.
    pub fn handle_cable_down(&mut self, port: PortId) {
        self.owed.remove(&port);
        if self.ports.remove(&port).is_some() {
            self.renew();
        }
    }

    /// Records came by a cable. On an error none of them was taken.
    pub fn handle_link_states(&mut self, port: PortId, records: Vec<LinkState>) -> Result<(), LinksError> {
        if records.len() > BATCH {
            return Err(LinksError::Records(records.len()));
        }
        records.iter().try_for_each(|record| check(record, self.highest))?;
        for record in records {
            self.handle_record(port, record);
        }
        Ok(())
    }

    /// Records that shall be sent by `port` now, if any. Ask only when the channel has room.
    pub fn poll_output(&mut self, port: PortId) -> Option<Vec<LinkState>> {
        let owed = self.owed.get_mut(&port)?;
        let mut records = Vec::with_capacity(owed.len().min(BATCH));
        while records.len() < BATCH
            && let Some(origin) = owed.pop_first()
        {
            records.extend(self.states.get(&origin).cloned());
        }
        (!records.is_empty()).then_some(records)
    }

    /// Whether anything is owed to `port`.
    pub fn owes(&self, port: PortId) -> bool {
        self.owed.get(&port).is_some_and(|owed| !owed.is_empty())
    }

    /// Whether links have changed since [`Self::poll_changed`] was asked last, so that it may be worth asking.
    pub fn may_have_changed(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the reachable hosts or ways changed since this was asked last.
    pub fn poll_changed(&mut self) -> bool {
        self.told.take().is_some_and(|told| told != self.found().ways)
    }

    /// Whether another host in the network has our id.
    pub fn has_twin(&self) -> bool {
        self.twin
    }

    /// The shortest way to `host`; none to ourselves.
    pub fn next_hop(&self, host: HostId) -> Option<Way> {
        self.ways(host).first().copied()
    }

    /// All ways to `host`, shortest first, at most one for each port.
    pub fn ways(&self, host: HostId) -> &[Way] {
        self.found().ways.to(host)
    }

    /// Whether there is a way to `host` that begins with `port`, also if no traffic of ours goes by it: what `host` sends
    /// may come by this port.
    pub fn is_behind(&self, host: HostId, port: PortId) -> bool {
        let Found { ways, all, .. } = self.found();
        all.as_ref().unwrap_or(ways).to(host).iter().any(|way| way.port == port)
    }

    /// All paths to `host`, shortest first, at most one for each port: its way, and the hosts behind the neighbour.
    pub fn paths(&self, host: HostId) -> impl Iterator<Item = (Way, Vec<HostId>)> + '_ {
        self.ways(host).iter().filter_map(move |way| {
            let neighbour = *self.ports.get(&way.port)?;
            Some((*way, path(self.me, neighbour, host, &self.found().graph)?))
        })
    }

    /// The port that leads to a neighbour.
    pub fn port_to(&self, neighbour: HostId) -> Option<PortId> {
        self.ports.iter().find(|(_, host)| **host == neighbour).map(|(port, _)| *port)
    }

    /// The number of a host's life; 0 if nothing is known of it.
    pub fn incarnation(&self, host: HostId) -> u64 {
        self.states.get(&host).map_or(0, |state| state.incarnation)
    }

    /// Hosts that began a new life since this was asked last.
    pub fn poll_new_life(&mut self) -> Option<HostId> {
        self.reborn.pop_first()
    }

    /// The links among us and the hosts that can be reached, each once, the smaller id first: those that both hosts
    /// declare.
    pub fn links(&self) -> Vec<(HostId, HostId)> {
        let Found { graph, ways, .. } = self.found();
        let reached = |host: &HostId| *host == self.me || !ways.to(*host).is_empty();
        graph.links().filter(|(one, other)| reached(one) && reached(other)).collect()
    }

    /// Hosts that can be reached, ourselves not among them.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, Way)> + '_ {
        let ways = &self.found().ways;
        ways.hosts().iter().copied().zip(ways.shortest())
    }

    /// How many hosts can be reached: no way that passes none twice is longer, cables.
    pub fn reach(&self) -> u8 {
        u8::try_from(self.found().ways.hosts().len()).unwrap_or(u8::MAX)
    }

    fn handle_record(&mut self, port: PortId, record: LinkState) {
        let age = |state: &LinkState| (state.incarnation, state.sequence);
        let known = self.states.get(&record.origin);
        match known.map(age) {
            Some(known) if known == age(&record) => {}
            Some(known) if known > age(&record) => self.owe(port, record.origin),
            _ if record.origin == self.me => self.retort(record.incarnation),
            _ => {
                let origin = record.origin;
                let is_other = known.is_none_or(|known| known.neighbours != record.neighbours);
                if known.is_some_and(|known| known.incarnation != record.incarnation) {
                    self.reborn.insert(origin);
                }
                self.states.insert(origin, record);
                self.owe_others(port, origin);
                if is_other {
                    self.forget_ways();
                }
            }
        }
    }

    /// Somebody spreads a newer record about us than ours is: of our own earlier life, or of a twin.
    fn retort(&mut self, incarnation: u64) {
        self.retorts += 1;
        let above = incarnation.checked_add(1);
        if self.retorts > RETORTS || above.is_none() {
            self.twin = true;
            return;
        }
        if let (Some(own), Some(above)) = (self.states.get_mut(&self.me), above) {
            own.incarnation = above;
        }
        self.renew();
    }

    fn owe(&mut self, port: PortId, origin: HostId) {
        if let Some(owed) = self.owed.get_mut(&port) {
            owed.insert(origin);
        }
    }

    fn owe_others(&mut self, port: PortId, origin: HostId) {
        for (other, owed) in &mut self.owed {
            if *other != port {
                owed.insert(origin);
            }
        }
    }

    /// Our links changed: a new record of ours, owed to all.
    fn renew(&mut self) {
        let neighbours: BTreeSet<HostId> = self.ports.values().copied().collect();
        if let Some(own) = self.states.get_mut(&self.me) {
            own.sequence = own.sequence.saturating_add(1);
            own.neighbours = neighbours.into_iter().take(MAX_LINKS).collect();
        }
        for owed in self.owed.values_mut() {
            owed.insert(self.me);
        }
        self.forget_ways();
    }

    /// Links have changed: ways are found again when they are asked for.
    fn forget_ways(&mut self) {
        if let Some(found) = self.found.take() {
            self.told.get_or_insert(found.ways);
        }
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let declared: Vec<(HostId, &[HostId])> =
                self.states.values().map(|state| (state.origin, state.neighbours.as_slice())).collect();
            let graph = Graph::new(declared, self.ports.values().copied());
            let ports = || self.ports.iter().map(|(port, host)| (*port, *host));
            let all = Ways::new(self.me, ports(), &graph);
            let Some(onward) = &self.onward else { return Found { graph, ways: all, all: None } };
            let leading = ports().filter(|(port, _)| onward.contains(port));
            Found { ways: Ways::new(self.me, leading, &graph), all: Some(all), graph }
        })
    }
}

fn check(record: &LinkState, highest: u16) -> Result<(), LinksError> {
    if record.neighbours.len() > MAX_LINKS {
        return Err(LinksError::Links(record.origin, record.neighbours.len()));
    }
    let host_ok = |host: &HostId| (1..=highest).contains(&host.0);
    let bad = |host: &HostId| !host_ok(host) || *host == record.origin;
    if !host_ok(&record.origin) || record.neighbours.iter().any(bad) {
        return Err(LinksError::Host(record.origin));
    }
    if !record.neighbours.is_sorted_by(|one, next| one < next) {
        return Err(LinksError::Order(record.origin));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(origin: u16, incarnation: u64, sequence: u64, to: &[u16]) -> LinkState {
        let neighbours = to.iter().map(|to| HostId(*to)).collect();
        LinkState { origin: HostId(origin), incarnation, sequence, neighbours }
    }

    #[test]
    fn stale_records_are_ignored_and_answered_with_the_newer_one() {
        let mut links = Links::new(HostId(1), 10);
        links.handle_cable_up(PortId(0), HostId(2));
        while links.poll_output(PortId(0)).is_some() {}
        links.handle_link_states(PortId(0), vec![record(2, 5, 2, &[1, 3])]).unwrap();
        links.handle_link_states(PortId(0), vec![record(3, 5, 2, &[2])]).unwrap();
        assert_eq!(links.next_hop(HostId(3)), Some(Way { hops: 2, port: PortId(0) }));
        links.handle_link_states(PortId(0), vec![record(3, 5, 1, &[])]).unwrap();
        assert!(links.next_hop(HostId(3)).is_some());
        assert_eq!(links.poll_output(PortId(0)), Some(vec![record(3, 5, 2, &[2])]));
    }

    #[test]
    fn links_are_those_that_both_hosts_declare_and_that_can_be_reached() {
        let mut links = Links::new(HostId(1), 10);
        assert!(links.links().is_empty());
        links.handle_cable_up(PortId(0), HostId(2));
        let records = vec![
            record(2, 5, 2, &[1, 3, 4]),
            record(3, 5, 2, &[2]),
            record(7, 5, 1, &[8]),
            record(8, 5, 1, &[7]),
        ];
        links.handle_link_states(PortId(0), records).unwrap();
        assert_eq!(links.links(), [(HostId(1), HostId(2)), (HostId(2), HostId(3))]);
        links.handle_cable_down(PortId(0));
        assert!(links.links().is_empty());
    }

    #[test]
    fn a_twin_is_told_from_our_own_earlier_life() {
        let mut links = Links::new(HostId(1), 10);
        links.handle_cable_up(PortId(0), HostId(2));
        links.handle_link_states(PortId(0), vec![record(1, 50, 9, &[3])]).unwrap();
        assert!(!links.has_twin());
        let sent = links.poll_output(PortId(0)).unwrap();
        assert!(sent.iter().any(|own| own.origin == HostId(1) && own.incarnation == 51));
        for round in 0..10 {
            links.handle_link_states(PortId(0), vec![record(1, 60 + round, 1, &[3])]).unwrap();
        }
        assert!(links.has_twin());
    }

    #[test]
    fn one_way_round_takes_the_long_way_too() {
        let mut links = Links::new(HostId(1), 10);
        links.go_one_way([PortId(0)]);
        links.handle_cable_up(PortId(0), HostId(2));
        links.handle_cable_up(PortId(1), HostId(3));
        links
            .handle_link_states(PortId(0), vec![record(2, 5, 2, &[1, 3]), record(3, 5, 2, &[1, 2])])
            .unwrap();
        assert_eq!(links.next_hop(HostId(3)), Some(Way { hops: 2, port: PortId(0) }));
        let paths: Vec<_> = links.paths(HostId(3)).collect();
        assert_eq!(paths, [(Way { hops: 2, port: PortId(0) }, vec![HostId(3)])]);
        assert!(links.is_behind(HostId(3), PortId(0)) && links.is_behind(HostId(3), PortId(1)));
        assert!(!links.is_behind(HostId(1), PortId(0)) && !links.is_behind(HostId(4), PortId(1)));
    }

    #[test]
    fn lies_are_refused_whole() {
        let mut links = Links::new(HostId(1), 10);
        links.handle_cable_up(PortId(0), HostId(2));
        let many = vec![3; MAX_LINKS + 1];
        for bad in [
            record(0, 1, 1, &[]),
            record(3, 1, 1, &[3]),
            record(3, 1, 1, &[0]),
            record(3, 1, 1, &[2, 2]),
            record(3, 1, 1, &[4, 2]),
            record(3, 1, 1, &many),
        ] {
            let records = vec![record(2, 1, 1, &[1]), bad];
            assert!(links.handle_link_states(PortId(0), records).is_err());
        }
        assert!(links.handle_link_states(PortId(0), vec![record(2, 1, 1, &[]); BATCH + 1]).is_err());
        assert!(!links.states.contains_key(&HostId(2)));
        links.handle_link_states(PortId(0), vec![record(1, u64::MAX, u64::MAX, &[])]).unwrap();
        assert!(links.has_twin());
    }
}
