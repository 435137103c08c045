//! How a snapshot is made: the daemon's thread copies so many rows at a time, between packets, and rests nine times as long as
//! that took. Whatever many programs hold, no piece of it takes longer than another.
//!
//! ```text
//!   head, hosts --> sessions --> listeners --> circuits --> what passes --> quotas --> whole
//!                                             ^ an end that is closed or moves on before its turn is copied first
//! ```

use super::{CircuitRow, Head, HostRow, Passing, PortRow, SessionRow, Snapshot, Worked};
use crate::cable::Cable;
use crate::end_resources::EndResources;
use crate::host::Host;
use crate::offload::Tally;
use crate::quota::{Books, Kind, Payer};
use crate::session::{Session, SessionId};
use core::ops::Bound::{Excluded, Unbounded};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_fabric::circuit::{End, Far, State};
use crosslane_wire::{CircuitId, PortId, TransitId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Rows that are copied in one piece: some 20 us.
const PIECE: usize = 64;
/// What head and hosts count for.
const HEAD: usize = 24;

/// What is copied next: what lies behind the one that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Hosts,
    Sessions(Option<SessionId>),
    Listeners(Option<SocketAddr>),
    Circuits(Option<CircuitId>),
    Transits(Option<TransitId>),
    Books(usize, Option<Payer>),
    Nothing,
}

/// A snapshot that is being made.
#[derive(Debug)]
pub struct Collector {
    snapshot: Snapshot,
    kinds: Vec<Kind>,
    next: Next,
    /// Ends that were closed, or moved on, before their turn.
    early: BTreeMap<CircuitId, CircuitRow>,
}

impl Collector {
    /// The snapshot, once it is whole.
    pub fn finish(self) -> Snapshot {
        let Self { mut snapshot, early, .. } = self;
        if !early.is_empty() {
            snapshot.circuits.extend(early.into_values());
            snapshot.circuits.sort_by_key(|row| row.id);
        }
        snapshot
    }

    fn lacks(&self, circuit: CircuitId) -> bool {
        let is_to_come = match self.next {
            Next::Hosts | Next::Sessions(_) | Next::Listeners(_) => true,
            Next::Circuits(last) => last.is_none_or(|last| circuit > last),
            _ => false,
        };
        is_to_come && !self.early.contains_key(&circuit)
    }

    fn lacks_transit(&self, transit: TransitId) -> bool {
        match self.next {
            Next::Hosts | Next::Sessions(_) | Next::Listeners(_) | Next::Circuits(_) => true,
            Next::Transits(last) => last.is_none_or(|last| transit > last),
            _ => false,
        }
    }

    /// A circuit that passes through this host has moved so much by each of its ports.
    fn add_passing(&mut self, traffic: [(PortId, (u64, u64)); 2], bytes: u64, is_there: bool) {
        self.snapshot.passing_bytes = self.snapshot.passing_bytes.wrapping_add(bytes);
        for (port, (tx, rx)) in traffic {
            let sum = self.snapshot.passing.entry(port).or_default();
            *sum = Passing {
                circuits: sum.circuits + usize::from(is_there),
                tx_bytes: sum.tx_bytes.wrapping_add(tx),
                rx_bytes: sum.rx_bytes.wrapping_add(rx),
            };
        }
    }
}

impl Host {
    /// Begins a snapshot: its head, with the counters as they are now.
    pub(crate) fn begin_snapshot(&self) -> Collector {
        let snapshot = Snapshot {
            head: self.head(),
            hosts: Vec::new(),
            links: Vec::new(),
            sessions: Vec::new(),
            listeners: Vec::new(),
            circuits: Vec::new(),
            passing: BTreeMap::new(),
            passing_bytes: 0,
            books: Books::new(&self.ledger),
        };
        let kinds = self.ledger.kinds();
        Collector { snapshot, kinds, next: Next::Hosts, early: BTreeMap::new() }
    }

    /// Copies a piece; whether it was the last one.
    pub(crate) fn copy_piece(&self, collector: &mut Collector) -> bool {
        let mut rest = PIECE;
        while rest > 0 && collector.next != Next::Nothing {
            collector.next = match collector.next {
                Next::Hosts => self.copy_hosts(collector, &mut rest),
                Next::Sessions(last) => self.copy_sessions(collector, last, &mut rest),
                Next::Listeners(last) => self.copy_listeners(collector, last, &mut rest),
                Next::Circuits(last) => self.copy_circuits(collector, last, &mut rest),
                Next::Transits(last) => self.copy_transits(collector, last, &mut rest),
                Next::Books(kind, last) => self.copy_books(collector, kind, last, &mut rest),
                Next::Nothing => Next::Nothing,
            };
        }
        collector.next == Next::Nothing
    }

    /// An end is about to be closed or to move on, which moves its counts to the totals: the snapshot that is being made has
    /// the totals already.
    pub(crate) fn copy_early(&mut self, circuit: CircuitId) {
        if self.texts.collector().is_none_or(|collector| !collector.lacks(circuit)) {
            return;
        }
        let row = self.policy.circuits.get(circuit).zip(self.resources.get(&circuit));
        let row = row.map(|(end, resources)| self.circuit_row(circuit, end, resources));
        if let (Some(row), Some(collector)) = (row, self.texts.collector_mut()) {
            collector.early.insert(circuit, row);
        }
    }

    /// The same for a circuit that passes through.
    pub(crate) fn copy_transit_early(&mut self, transit: TransitId) {
        let Some(transit_circuit) = self.transit_circuits.get(&transit) else { return };
        let moved = transit_circuit.moved(transit, &self.pumps);
        let traffic = transit_circuit.traffic(moved);
        if let Some(collector) = self.texts.collector_mut()
            && collector.lacks_transit(transit)
        {
            collector.add_passing(traffic, moved[0].wrapping_add(moved[1]), false);
        }
    }

    fn head(&self) -> Head {
        Head {
            me: self.me(),
            addresses: self.config.addresses,
            operators: self.config.operators,
            uptime: self.now,
            twin: self.policy.links.has_twin(),
            namespaces: self.knows_namespaces(),
            signing: self.signing,
            refused: self.policy.links.refused().clone(),
            ports: self.cables.iter().map(port_row).collect(),
            counters: self.counters.clone(),
            offload: self.offload.as_ref().map(|engines| engines.tallies().map(worked).collect()),
            transits: self.transit_circuits.len(),
        }
    }

    fn copy_hosts(&self, to: &mut Collector, rest: &mut usize) -> Next {
        let ways = |host| self.policy.links.ways(host).iter().map(|way| (way.hops, way.port)).collect();
        let row = |host| HostRow { id: host, signed: self.policy.links.is_signed(host), ways: ways(host) };
        to.snapshot.hosts = self.policy.links.hosts().map(|(host, _)| row(host)).collect();
        to.snapshot.links = self.policy.links.links();
        *rest -= HEAD;
        Next::Sessions(None)
    }

    fn copy_sessions(&self, to: &mut Collector, mut last: Option<SessionId>, rest: &mut usize) -> Next {
        let begin = last.map_or(Unbounded, Excluded);
        for (id, session) in self.sessions.range((begin, Unbounded)).take(*rest) {
            to.snapshot.sessions.push(session_row(session));
            (last, *rest) = (Some(*id), *rest - 1);
        }
        if *rest > 0 { Next::Listeners(None) } else { Next::Sessions(last) }
    }

    fn copy_listeners(&self, to: &mut Collector, mut last: Option<SocketAddr>, rest: &mut usize) -> Next {
        for (address, users) in self.listeners.after(last).take(*rest) {
            to.snapshot.listeners.push((address, users));
            (last, *rest) = (Some(address), *rest - 1);
        }
        if *rest > 0 { Next::Circuits(None) } else { Next::Listeners(last) }
    }

    fn copy_circuits(&self, to: &mut Collector, mut last: Option<CircuitId>, rest: &mut usize) -> Next {
        for (circuit, end) in self.policy.circuits.iter_after(last).take(*rest) {
            (last, *rest) = (Some(circuit), *rest - 1);
            if let Some(resources) = self.resources.get(&circuit)
                && !to.early.contains_key(&circuit)
            {
                to.snapshot.circuits.push(self.circuit_row(circuit, end, resources));
            }
        }
        if *rest > 0 { Next::Transits(None) } else { Next::Circuits(last) }
    }

    fn copy_transits(&self, to: &mut Collector, mut last: Option<TransitId>, rest: &mut usize) -> Next {
        let begin = last.map_or(Unbounded, Excluded);
        for (transit, transit_circuit) in self.transit_circuits.range((begin, Unbounded)).take(*rest) {
            let moved = transit_circuit.moved(*transit, &self.pumps);
            to.add_passing(transit_circuit.traffic(moved), moved[0].wrapping_add(moved[1]), true);
            (last, *rest) = (Some(*transit), *rest - 1);
        }
        if *rest > 0 { Next::Books(0, None) } else { Next::Transits(last) }
    }

    fn copy_books(&self, to: &mut Collector, kind: usize, last: Option<Payer>, rest: &mut usize) -> Next {
        let Some(which) = to.kinds.get(kind) else { return Next::Nothing };
        // Looking at one counts, too.
        *rest -= 1;
        let last = self.ledger.copy(*which, last, rest, &mut to.snapshot.books);
        if *rest > 0 { Next::Books(kind + 1, None) } else { Next::Books(kind, last) }
    }

    fn circuit_row(&self, circuit: CircuitId, end: &End, resources: &EndResources) -> CircuitRow {
        let (chosen, modes) = resources.modes();
        CircuitRow {
            id: circuit,
            tuple: end.tuple,
            peer: match end.far {
                Far::Here(_) => self.me(),
                Far::Host { host, .. } => host,
            },
            role: end.role,
            state: match end.state {
                _ if end.moving.is_some() => "moving",
                State::Opening | State::Pending => "pending",
                State::Open => "open",
                State::Closing(_) => "closing",
            },
            open: end.state == State::Open,
            hops: end.hops,
            pumps: end.pumps,
            generation: end.generation,
            far_closed: end.far_closed,
            dead: end.death,
            program: resources.program.clone(),
            pid: resources.pid,
            uid: resources.uid,
            holders: resources.holders.iter().map(|(session, _)| *session).collect(),
            moved: resources.traffic(),
            chosen,
            modes,
            port: self.port_of(circuit),
            by_port: resources.port_traffic(),
        }
    }
}

fn session_row(session: &Session) -> SessionRow {
    SessionRow {
        id: session.id,
        pid: session.pid,
        uid: session.uid,
        program: session.program.clone(),
        greeted: session.greeted,
        lost: session.is_lost(),
        waiters: session.waiters.len(),
        held: session.held.len(),
        notes: session.notes.clone(),
    }
}

fn port_row(cable: &Cable) -> PortRow {
    PortRow {
        id: cable.id,
        name: cable.config.name.clone(),
        kind: cable.config.kind.name(),
        link: cable.link(),
        epoch: cable.epoch(),
        peer: cable.agreement().map(|agreement| agreement.peer),
        window: (cable.window().bytes(), cable.window().used_bytes()),
        traffic: cable.traffic,
        silent: cable.standing.silent,
    }
}

fn worked(tally: &Tally) -> Worked {
    Worked {
        copy: tally.copy.get().copied(),
        bytes: tally.bytes.load(Relaxed),
        registered: tally.registered.load(Relaxed),
        transfers: tally.transfers.load(Relaxed),
        refused: tally.refused.load(Relaxed),
        sleeps: tally.sleeps.load(Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::texts::Text;
    use crosslane_fabric::circuit::Scope;
    use crosslane_passing::{Foreign, Owner};
    use crosslane_wire::Tuple;
    use std::os::unix::net::UnixStream;

    /// A host with so many sessions.
    fn host(sessions: u64) -> (Host, Vec<UnixStream>) {
        let config = Config::parse("host = 1\ninterface = \"\"").unwrap();
        let mut host = Host::new(config, Vec::new(), None).unwrap();
        let mut connect = |id| {
            let (near, far) = UnixStream::pair().unwrap();
            host.add_session(SessionId(id), Foreign::new(near.into(), Owner::NOBODY));
            far
        };
        let far = (1..=sessions).map(&mut connect).collect();
        (host, far)
    }

    #[test]
    fn a_snapshot_is_copied_in_pieces_and_misses_nothing() {
        let (host, _far) = host(200);
        let mut collector = host.begin_snapshot();
        let mut sizes = vec![0];
        while !host.copy_piece(&mut collector) {
            sizes.push(collector.snapshot.sessions.len());
        }
        assert!(sizes.is_sorted() && sizes.windows(2).all(|pair| pair[1] - pair[0] <= PIECE), "{sizes:?}");
        assert!(sizes.len() > 3, "{sizes:?}");
        let ids: Vec<u64> = collector.finish().sessions.iter().map(|session| session.id.0).collect();
        assert!(ids.into_iter().eq(1..=200));
    }

    #[test]
    fn an_end_that_is_closed_meanwhile_is_told_as_the_totals_have_it() {
        let (mut host, _far) = host(200);
        let address = "127.0.0.1:7".parse().unwrap();
        let (client, server) =
            host.policy.circuits.local(Tuple { client: address, server: address }, Scope(0));
        for end in [client, server] {
            let resources = EndResources::new(None, Payer::User(0), Vec::new());
            host.resources.insert(end, EndResources { holders: vec![(SessionId(1), 1)], ..resources });
        }
        host.ask_text(SessionId(1), Text::Status);
        host.tend_texts();
        let collector = host.texts.collector().expect("there is more than one piece");
        assert!(collector.lacks(client) && collector.snapshot.head.counters.streams_aborted == 0);
        host.close_end(client, false);
        assert_eq!(host.counters.streams_closed + host.counters.streams_aborted, 1);
        let row = &host.texts.collector().unwrap().early[&client];
        assert!(row.open && row.holders == [SessionId(1)], "{row:?}");
    }
}
