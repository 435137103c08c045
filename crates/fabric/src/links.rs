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
//! record for each host. `order` says which record is newer. One that may have crossed ours on the cable is owed to its own port,
//! too, since "newer" is no order where somebody forges.
//!
//! A neighbour may lie about others. So records are taken at a bounded rate (`pace`), an origin can always go above what
//! was forged in its name, each renews its record every [`RENEW`], and one that is older than [`LIFE`] is forgotten. Where
//! there are keys (`trust`), records are signed by their origins, and others are not believed.

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
/// How often a host makes its record anew though nothing has changed.
pub const RENEW: Duration = Duration::from_secs(600);
/// How old a record becomes before it is forgotten: a host that is out of reach does not renew it.
pub const LIFE: Duration = Duration::from_secs(1800);
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

/// A record, and since when we have it.
#[derive(Debug)]
struct Held {
    record: LinkState,
    since: Duration,
}

impl Held {
    /// How old the record is by now, s.
    fn age(&self, now: Duration) -> u16 {
        let held = now.saturating_sub(self.since).as_secs();
        u16::try_from(u64::from(self.record.age).saturating_add(held)).unwrap_or(u16::MAX)
    }
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
    states: BTreeMap<HostId, Held>,
    owed: BTreeMap<PortId, BTreeSet<HostId>>,
    /// Of whom we have told a port's neighbour since we heard of them there: what comes next may have crossed that.
    sent: BTreeMap<PortId, BTreeSet<HostId>>,
    intakes: BTreeMap<PortId, Intake>,
    keys: Box<dyn Keys>,
    refused: AllRefused,
    /// Found when they are asked for: many records come at once.
    found: OnceCell<Found>,
    /// The ways as somebody was told of them last, if links have changed since then.
    told: Option<Ways>,
    retorts: Budget,
    /// The incarnation to go above as soon as we may.
    above: Option<u64>,
    /// When somebody spread more records in our name than we may go above.
    duplicate_seen_at: Option<Duration>,
    reborn: BTreeSet<HostId>,
    /// The ports that ways may begin with; `None`: all.
    onward: Option<BTreeSet<PortId>>,
    highest: u16,
    now: Duration,
    /// When something is to be done.
    due: Duration,
    look_at: Duration,
    renew_at: Duration,
}

impl Links {
    /// A host without cables. `incarnation` must be greater than those of the host's earlier lives (wall clock above
    /// random bits); if it is not, the host goes above them when it hears of them.
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

    /// Signs and checks with these keys from now on. What is known and not good by them is forgotten.
    pub fn use_keys(&mut self, keys: Box<dyn Keys>) {
        self.keys = keys;
        self.refused.clear();
        let (me, keys) = (self.me, &self.keys);
        self.states.retain(|origin, held| *origin == me || keys.check(&held.record).is_ok());
        self.forget_ways();
        self.renew();
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

    /// Records came by a cable. On an error none of them was taken.
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

    /// Records that shall be sent by `port` now, if any. Ask only when the channel has room.
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

    /// Whether another host in the network has our id, or somebody forges records in our name.
    pub fn has_duplicate(&self) -> bool {
        self.duplicate_seen_at.is_some()
    }

    /// Records that were not believed since the keys were given, by origin.
    pub fn refused(&self) -> &AllRefused {
        &self.refused
    }

    /// Whether what we know of `host` was signed by it, as far as anybody looked.
    pub fn is_signed(&self, host: HostId) -> bool {
        self.states.get(&host).is_some_and(|held| held.record.seal.is_some())
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

    /// Whether something that came over `hops` cables, the last of them `neighbour`'s, can come from `host`: the graph has
    /// a way that is no longer and does not pass us.
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

    /// The number of a host's life; 0 if nothing is known of it.
    pub fn incarnation(&self, host: HostId) -> u64 {
        self.states.get(&host).map_or(0, |held| held.record.incarnation)
    }

    /// How many hosts we know anything of, also out of reach; ourselves among them.
    pub fn known(&self) -> usize {
        self.states.len()
    }

    /// The number of our own newest record: incarnation and sequence.
    pub fn own_number(&self) -> (u64, u64) {
        self.states.get(&self.me).map_or((0, 0), |held| (held.record.incarnation, held.record.sequence))
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

    /// A record came by a port: it is handled now or waits for its turn. What is known already costs nothing.
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

    /// How a record stands to what is known of its origin, if anything is.
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

    /// We heard of this origin there. Whether we had told the neighbour of it since we did so last.
    fn note_heard(&mut self, port: PortId, origin: HostId) -> bool {
        self.sent.get_mut(&port).is_some_and(|sent| sent.remove(&origin))
    }

    fn believe(&mut self, port: PortId, record: LinkState) {
        let origin = record.origin;
        if self.note_heard(port, origin) {
            // It may have crossed ours. Of three records in a circle it may have taken one of ours for newer than this one by now.
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

    /// Links have changed: ways are found again when they are asked for.
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
