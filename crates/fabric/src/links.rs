//! Link states: numbered records of each host's links, flooded from neighbour to neighbour.
//!
//! ```text
//!   cable up/down ---> own record, sequence + 1 ---> queued for every port
//!   record arrives --+- newer than the known ----> kept, queued for every other port
//!                    +- older than the known ----> the known one is queued for that port
//!                    +- equal -------------------> nothing
//!                    +- of this host, but not made by it -> own incarnation goes above it; repeatedly: a duplicate id
//! ```
//! The queue of a port is a set of origins: however slow a channel is, it never has more than one record for each host.
//! `order` decides which record is newer. A record that may have crossed the known one on the cable is queued for its own
//! port too, since "newer" is not transitive if a host forges records.
//!
//! A neighbour may forge records of others. So records are accepted at a limited rate (`pace`), an origin can always go
//! above records forged in its name, each host renews its record every [`RENEW`], and a record older than [`LIFE`] is
//! dropped. If there are keys (`trust`), origins sign their records, and unsigned ones are refused.

mod order;
mod pace;
mod trust;
mod upkeep;

pub use trust::{AllRefused, Distrust, Keys, NoKeys, Refused};

use crate::HOST_MAX;
use crate::route::{Graph, Way, Ways, path};
use core::cell::OnceCell;
use crosslane_wire::control::{LinkState, MAX_LINKS};
use crosslane_wire::{HostId, PortId};
use order::{Recency, compare};
use pace::{Budget, Intake};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thiserror::Error;
use upkeep::{LOOK, RETORTS};

/// Most records in one message.
pub const BATCH: usize = 32;
/// How often a host makes a new record although nothing has changed.
pub const RENEW: Duration = Duration::from_secs(600);
/// Age at which a record is dropped: a host that is out of reach does not renew its record.
pub const LIFE: Duration = Duration::from_secs(1800);
/// Why a neighbour's message of records is refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum LinksError {
    /// A host id out of range, or a host that is its own neighbour.
    #[error("link state of host {0} names a host that cannot be")]
    Host(HostId),
    /// Neighbours that are not in ascending order of ids, each once.
    #[error("link state of host {0} has its links out of order, or one twice")]
    Order(HostId),
    /// More links than a host may have.
    #[error("link state of host {0} has {1} links")]
    Links(HostId, usize),
    /// More records than one message may have.
    #[error("message with {0} link states")]
    Records(usize),
}

/// A record, and when it arrived here.
#[derive(Debug)]
struct Held {
    record: LinkState,
    since: Duration,
}

impl Held {
    /// The record's present age, s.
    fn age(&self, now: Duration) -> u16 {
        let held = now.saturating_sub(self.since).as_secs();
        u16::try_from(u64::from(self.record.age).saturating_add(held)).unwrap_or(u16::MAX)
    }
}

/// Results computed from the link states.
#[derive(Debug)]
struct Found {
    graph: Graph,
    /// The paths that begin with an onward port.
    ways: Ways,
    /// The paths that begin with any port, if not all are onward ports.
    all: Option<Ways>,
}

/// The link states that one host knows.
#[derive(Debug)]
pub struct Links {
    me: HostId,
    ports: BTreeMap<PortId, HostId>,
    states: BTreeMap<HostId, Held>,
    owed: BTreeMap<PortId, BTreeSet<HostId>>,
    /// Per port: origins of which this host has sent a record there since it last received one: the next one may have crossed it.
    sent: BTreeMap<PortId, BTreeSet<HostId>>,
    intakes: BTreeMap<PortId, Intake>,
    keys: Box<dyn Keys>,
    refused: AllRefused,
    /// Computed on demand, since many records arrive at once.
    found: OnceCell<Found>,
    /// The paths at the last [`Self::poll_changed`], if links have changed since then.
    told: Option<Ways>,
    retorts: Budget,
    /// The incarnation above which this host must go as soon as its budget allows.
    above: Option<u64>,
    /// When more records in this host's name arrived than its budget allows to go above.
    duplicate_seen_at: Option<Duration>,
    reborn: BTreeSet<HostId>,
    /// The ports at which paths may begin; `None`: all.
    onward: Option<BTreeSet<PortId>>,
    highest: u16,
    now: Duration,
    /// When [`Self::handle_time`] has something to do.
    due: Duration,
    look_at: Duration,
    renew_at: Duration,
}

impl Links {
    /// A host without cables. `incarnation` should be greater than those of the host's earlier lives (wall clock above
    /// random bits); if it is not, the host goes above them when it receives one of their records.
    pub fn new(me: HostId, incarnation: u64) -> Self {
        let record =
            LinkState { origin: me, incarnation, sequence: 1, neighbours: vec![], age: 0, seal: None };
        let own = Held { record, since: Duration::ZERO };
        Self {
            me,
            ports: BTreeMap::new(),
            states: BTreeMap::from([(me, own)]),
            owed: BTreeMap::new(),
            sent: BTreeMap::new(),
            intakes: BTreeMap::new(),
            keys: Box::new(NoKeys),
            refused: AllRefused::new(),
            found: OnceCell::new(),
            told: Some(Ways::default()),
            retorts: RETORTS,
            above: None,
            duplicate_seen_at: None,
            reborn: BTreeSet::new(),
            onward: None,
            highest: HOST_MAX,
            now: Duration::ZERO,
            due: LOOK,
            look_at: LOOK,
            renew_at: RENEW,
        }
    }

    /// From now on signs and checks records with these keys. Drops known records that do not pass the check.
    pub fn use_keys(&mut self, keys: Box<dyn Keys>) {
        self.keys = keys;
        self.refused.clear();
        let (me, keys) = (self.me, &self.keys);
        self.states.retain(|origin, held| *origin == me || keys.check(&held.record).is_ok());
        self.forget_ways();
        self.renew();
    }

    /// Allows host ids up to `highest`: the only limit on how many hosts a neighbour can make this one remember.
    pub fn allow_hosts(&mut self, highest: u16) {
        self.highest = highest;
    }

    /// All paths begin at one of these ports: traffic goes round in one direction, as in the ring study.
    pub fn go_one_way(&mut self, onward: impl IntoIterator<Item = PortId>) {
        self.onward = Some(onward.into_iter().collect());
        self.forget_ways();
    }

    /// A cable is up; `host` is at its other end.
    pub fn handle_cable_up(&mut self, port: PortId, host: HostId) {
        self.ports.insert(port, host);
        self.owed.insert(port, self.states.keys().copied().collect());
        self.duplicate_seen_at = None;
        self.renew();
    }

    /// A cable is down.
    pub fn handle_cable_down(&mut self, port: PortId) {
        self.owed.remove(&port);
        self.sent.remove(&port);
        self.intakes.remove(&port);
        if self.ports.remove(&port).is_some() {
            self.renew();
        }
    }

    /// Records arrived on a cable. After an error none of them was taken.
    pub fn handle_link_states(&mut self, port: PortId, records: Vec<LinkState>) -> Result<(), LinksError> {
        if records.len() > BATCH {
            return Err(LinksError::Records(records.len()));
        }
        records.iter().try_for_each(|record| check(record, self.highest))?;
        for record in records {
            self.take_in(port, record);
        }
        Ok(())
    }

    /// Records to send to `port` now, if any. Call this only while the channel has room.
    pub fn poll_output(&mut self, port: PortId) -> Option<Vec<LinkState>> {
        let owed = self.owed.get_mut(&port)?;
        let mut records = Vec::with_capacity(owed.len().min(BATCH));
        while records.len() < BATCH
            && let Some(origin) = owed.pop_first()
        {
            let held = self.states.get(&origin);
            records.extend(held.map(|held| {
                let age = held.age(self.now).saturating_add(u16::from(origin != self.me));
                LinkState { age, ..held.record.clone() }
            }));
        }
        self.sent.entry(port).or_default().extend(records.iter().map(|record| record.origin));
        (!records.is_empty()).then_some(records)
    }

    /// Whether records are queued for `port`.
    pub fn owes(&self, port: PortId) -> bool {
        self.owed.get(&port).is_some_and(|owed| !owed.is_empty())
    }

    /// Whether links have changed since the last [`Self::poll_changed`], so that another call may be worth it.
    pub fn may_have_changed(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the reachable hosts or the paths have changed since the last call.
    pub fn poll_changed(&mut self) -> bool {
        self.told.take().is_some_and(|told| told != self.found().ways)
    }

    /// Whether another host in the network has this host's id, or a host forges records in its name.
    pub fn has_duplicate(&self) -> bool {
        self.duplicate_seen_at.is_some()
    }

    /// Records that were refused since the keys were given, by origin.
    pub fn refused(&self) -> &AllRefused {
        &self.refused
    }

    /// Whether the known record of `host` was signed by it, as far as it was checked.
    pub fn is_signed(&self, host: HostId) -> bool {
        self.states.get(&host).is_some_and(|held| held.record.seal.is_some())
    }

    /// The shortest path to `host`; none to this host.
    pub fn next_hop(&self, host: HostId) -> Option<Way> {
        self.ways(host).first().copied()
    }

    /// All paths to `host`, shortest first, at most one for each port.
    pub fn ways(&self, host: HostId) -> &[Way] {
        self.found().ways.to(host)
    }

    /// Whether a path to `host` begins at `port`, even if this host sends no traffic on it: packets of `host` may arrive there.
    pub fn is_behind(&self, host: HostId, port: PortId) -> bool {
        let Found { ways, all, .. } = self.found();
        all.as_ref().unwrap_or(ways).to(host).iter().any(|way| way.port == port)
    }

    /// All paths to `host`, shortest first, at most one for each port: first port and length, and the hosts behind the neighbour.
    pub fn paths(&self, host: HostId) -> impl Iterator<Item = (Way, Vec<HostId>)> + '_ {
        self.ways(host).iter().filter_map(move |way| {
            let neighbour = *self.ports.get(&way.port)?;
            Some((*way, path(self.me, neighbour, host, &self.found().graph)?))
        })
    }

    /// Whether a message that came over `hops` cables, the last of them from `neighbour`, can be from `host`: the graph
    /// has a path that is not longer and does not pass this host.
    pub fn can_come(&self, host: HostId, neighbour: HostId, hops: u8) -> bool {
        if host == neighbour || hops <= 1 {
            return host == neighbour && hops == 1;
        }
        self.found().graph.distance(self.me, neighbour, host).is_some_and(|least| least <= hops)
    }

    /// The port that leads to a neighbour.
    pub fn port_to(&self, neighbour: HostId) -> Option<PortId> {
        self.ports.iter().find(|(_, host)| **host == neighbour).map(|(port, _)| *port)
    }

    /// The incarnation of a host; 0 if no record of it is known.
    pub fn incarnation(&self, host: HostId) -> u64 {
        self.states.get(&host).map_or(0, |held| held.record.incarnation)
    }

    /// Number of hosts of which a record is known, also unreachable ones, including this host.
    pub fn known(&self) -> usize {
        self.states.len()
    }

    /// Incarnation and sequence of this host's newest record.
    pub fn own_number(&self) -> (u64, u64) {
        self.states.get(&self.me).map_or((0, 0), |held| (held.record.incarnation, held.record.sequence))
    }

    /// A host whose incarnation has changed since the last call.
    pub fn poll_new_life(&mut self) -> Option<HostId> {
        self.reborn.pop_first()
    }

    /// The links among this host and the reachable hosts, each once, the smaller id first: those that both hosts declare.
    pub fn links(&self) -> Vec<(HostId, HostId)> {
        let Found { graph, ways, .. } = self.found();
        let reached = |host: &HostId| *host == self.me || !ways.to(*host).is_empty();
        graph.links().filter(|(one, other)| reached(one) && reached(other)).collect()
    }

    /// The reachable hosts, without this one.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, Way)> + '_ {
        let ways = &self.found().ways;
        ways.hosts().iter().copied().zip(ways.shortest())
    }

    /// Number of reachable hosts: the longest path that passes no host twice, in cables.
    pub fn reach(&self) -> u8 {
        u8::try_from(self.found().ways.hosts().len()).unwrap_or(u8::MAX)
    }

    /// Handles a record from a port, or lets it wait for its turn. A record that is known already costs nothing.
    fn take_in(&mut self, port: PortId, record: LinkState) {
        if self.recency(&record) == Some(Recency::Same) {
            self.note_heard(port, record.origin);
            return;
        }
        if u64::from(record.age) >= LIFE.as_secs() {
            return;
        }
        match self.intakes.entry(port).or_default().offer(record, self.now) {
            Ok(record) => self.handle_record(port, record),
            Err(until) => self.due = self.due.min(until),
        }
    }

    /// How a record compares with the known one of its origin, if there is one.
    fn recency(&self, record: &LinkState) -> Option<Recency> {
        let known = self.states.get(&record.origin)?;
        Some(compare(record, &known.record, known.age(self.now)))
    }

    fn handle_record(&mut self, port: PortId, record: LinkState) {
        let origin = record.origin;
        match self.recency(&record) {
            Some(Recency::Same) => {}
            Some(Recency::Younger) if origin == self.me => {}
            Some(Recency::Older) => self.owe(port, origin),
            _ => match self.keys.check(&record) {
                Err(why) => {
                    let refused = self.refused.entry(origin).or_insert(Refused { count: 0, why });
                    *refused = Refused { count: refused.count + 1, why };
                }
                Ok(()) if origin == self.me => self.retort(record.incarnation),
                Ok(()) => self.believe(port, record),
            },
        }
    }

    /// A record of this origin arrived at `port`. Returns whether this host had sent one there since the last arrival.
    fn note_heard(&mut self, port: PortId, origin: HostId) -> bool {
        self.sent.get_mut(&port).is_some_and(|sent| sent.remove(&origin))
    }

    fn believe(&mut self, port: PortId, record: LinkState) {
        let origin = record.origin;
        if self.note_heard(port, origin) {
            // It may have crossed this host's. If three records are each newer than the next, the neighbour may now take
            // an older one of this host for newer than this one.
            self.owe(port, origin);
        }
        let known = self.states.get(&origin).map(|held| &held.record);
        let is_other = known.is_none_or(|known| known.neighbours != record.neighbours);
        if known.is_some_and(|known| known.incarnation != record.incarnation) {
            self.reborn.insert(origin);
        }
        self.states.insert(origin, Held { record, since: self.now });
        self.owe_others(port, origin);
        if is_other {
            self.forget_ways();
        }
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

    /// Links have changed: paths are computed again on demand.
    fn forget_ways(&mut self) {
        if let Some(found) = self.found.take() {
            self.told.get_or_insert(found.ways);
        }
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let declared: Vec<(HostId, &[HostId])> = self
                .states
                .values()
                .map(|held| (held.record.origin, held.record.neighbours.as_slice()))
                .collect();
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
mod tests;
