//! How a snapshot is made: the daemon's packet thread copies up to 64 rows at a time, between packets, and then rests nine times as
//! long as that took. However much the programs hold, no piece takes longer than another.
//!
//! ```text
//!   head, hosts --> sessions --> listeners --> circuits --> what passes --> quotas --> whole
//!                                             ^ an end that is closed or moves on before its turn is copied first
//! ```

use super::{CircuitRow, Head, HostRow, Passing, PortRow, SessionRow, Snapshot};
use crate::cable::Cable;
use crate::end_resources::EndResources;
use crate::offload::Tally;
use crate::quota::{Books, Kind, Ledger, Payer};
use crate::session::{Session, SessionId};
use crate::transit::Through;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_fabric::circuit::{End, Far, State};
use crosslane_status::{self as status, OffloadThread};
use crosslane_wire::{CircuitId, HostId, PortId, TransitId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Rows that are copied in one piece: some 20 us in all.
const PIECE: usize = 64;
/// The rows that head and hosts count as.
const HEAD: usize = 24;

/// What is copied next: the rows after the key that is named, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Hosts and links.
    Hosts,
    /// Sessions.
    Sessions(Option<SessionId>),
    /// Listeners.
    Listeners(Option<SocketAddr>),
    /// Ends of circuits.
    Circuits(Option<CircuitId>),
    /// Circuits that pass through this host.
    Transits(Option<TransitId>),
    /// The payers of one kind of resource, by its place among the kinds.
    Books(usize, Option<Payer>),
    /// Nothing: the snapshot is complete.
    Nothing,
}

/// A snapshot that is being made.
#[derive(Debug)]
pub struct Collector {
    snapshot: Snapshot,
    kinds: Vec<Kind>,
    next: Next,
    /// Rows that may still be copied in this piece.
    rest: usize,
    /// Rows of endpoints that closed, or took another circuit, before their turn.
    early: BTreeMap<CircuitId, CircuitRow>,
}

impl Collector {
    /// A snapshot with its head only; the books of `ledger` are copied last.
    pub(crate) fn new(head: Head, ledger: &Ledger) -> Self {
        let snapshot = Snapshot {
            head,
            hosts: Vec::new(),
            links: Vec::new(),
            sessions: Vec::new(),
            listeners: Vec::new(),
            circuits: Vec::new(),
            passing: BTreeMap::new(),
            passing_bytes: 0,
            books: Books::new(ledger),
        };
        Self { snapshot, kinds: ledger.kinds(), next: Next::Hosts, rest: 0, early: BTreeMap::new() }
    }

    /// Starts a piece.
    pub(crate) fn begin_piece(&mut self) {
        self.rest = PIECE;
    }

    /// What is copied next in this piece; `None` if the piece is full or the snapshot complete.
    pub(crate) fn next(&self) -> Option<Next> {
        (self.rest > 0 && !self.is_whole()).then_some(self.next)
    }

    /// Whether the snapshot is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.next == Next::Nothing
    }

    /// The snapshot, once it is complete.
    pub fn finish(self) -> Snapshot {
        let Self { mut snapshot, early, .. } = self;
        if !early.is_empty() {
            snapshot.circuits.extend(early.into_values());
            snapshot.circuits.sort_by_key(|row| row.id);
        }
        snapshot
    }

    /// Whether the row of this endpoint has not been copied yet.
    pub(crate) fn lacks(&self, circuit: CircuitId) -> bool {
        let is_to_come = match self.next {
            Next::Hosts | Next::Sessions(_) | Next::Listeners(_) => true,
            Next::Circuits(last) => last.is_none_or(|last| circuit > last),
            _ => false,
        };
        is_to_come && !self.early.contains_key(&circuit)
    }

    /// Whether a circuit that passes through this host has not been counted yet.
    pub(crate) fn lacks_transit(&self, transit: TransitId) -> bool {
        match self.next {
            Next::Hosts | Next::Sessions(_) | Next::Listeners(_) | Next::Circuits(_) => true,
            Next::Transits(last) => last.is_none_or(|last| transit > last),
            _ => false,
        }
    }

    /// Copies the row of an endpoint that closes, or takes another circuit, before its turn.
    pub(crate) fn add_early(&mut self, row: CircuitRow) {
        self.early.insert(row.id, row);
    }

    /// Copies the reachable hosts, and which hosts a cable joins.
    pub(crate) fn add_hosts(&mut self, hosts: Vec<HostRow>, links: Vec<(HostId, HostId)>) {
        (self.snapshot.hosts, self.snapshot.links) = (hosts, links);
        self.rest = self.rest.saturating_sub(HEAD);
        self.next = Next::Sessions(None);
    }

    /// Copies the sessions after `last`, in the order of their ids.
    pub(crate) fn add_sessions<'a>(
        &mut self,
        mut last: Option<SessionId>,
        sessions: impl Iterator<Item = &'a Session>,
    ) {
        for session in sessions.take(self.rest) {
            self.snapshot.sessions.push(session_row(session));
            (last, self.rest) = (Some(session.id), self.rest - 1);
        }
        self.next = if self.rest > 0 { Next::Listeners(None) } else { Next::Sessions(last) };
    }

    /// Copies the listeners after `last`, in the order of their addresses.
    pub(crate) fn add_listeners(
        &mut self,
        mut last: Option<SocketAddr>,
        listeners: impl Iterator<Item = (SocketAddr, BTreeSet<u32>)>,
    ) {
        for (address, users) in listeners.take(self.rest) {
            self.snapshot.listeners.push((address, users));
            (last, self.rest) = (Some(address), self.rest - 1);
        }
        self.next = if self.rest > 0 { Next::Circuits(None) } else { Next::Listeners(last) };
    }

    /// Copies the endpoints after `last`, in the order of their ids; one without resources has no row.
    pub(crate) fn add_circuits(
        &mut self,
        mut last: Option<CircuitId>,
        circuits: impl Iterator<Item = (CircuitId, Option<CircuitRow>)>,
    ) {
        for (circuit, row) in circuits.take(self.rest) {
            (last, self.rest) = (Some(circuit), self.rest - 1);
            self.snapshot.circuits.extend(row.filter(|_| !self.early.contains_key(&circuit)));
        }
        self.next = if self.rest > 0 { Next::Transits(None) } else { Next::Circuits(last) };
    }

    /// Counts the circuits after `last` that pass through this host, in the order of their ids.
    pub(crate) fn add_transits(
        &mut self,
        mut last: Option<TransitId>,
        transits: impl Iterator<Item = (TransitId, Through)>,
    ) {
        for (transit, through) in transits.take(self.rest) {
            self.add_passing(through, true);
            (last, self.rest) = (Some(transit), self.rest - 1);
        }
        self.next = if self.rest > 0 { Next::Books(0, None) } else { Next::Transits(last) };
    }

    /// Copies the payers after `last` of one kind of resource.
    pub(crate) fn add_books(&mut self, ledger: &Ledger, kind: usize, last: Option<Payer>) {
        let Some(which) = self.kinds.get(kind) else {
            self.next = Next::Nothing;
            return;
        };
        // Each visit of a kind counts as a row, too.
        self.rest -= 1;
        let last = ledger.copy(*which, last, &mut self.rest, &mut self.snapshot.books);
        self.next = if self.rest > 0 { Next::Books(kind + 1, None) } else { Next::Books(kind, last) };
    }

    /// Sessions that were copied so far.
    #[cfg(test)]
    pub(crate) fn sessions(&self) -> usize {
        self.snapshot.sessions.len()
    }

    /// Adds to each port what a circuit that passes through this host has moved; `is_there`: the circuit still exists.
    pub(crate) fn add_passing(&mut self, through: Through, is_there: bool) {
        self.snapshot.passing_bytes = self.snapshot.passing_bytes.wrapping_add(through.bytes);
        for (port, (tx, rx)) in through.by_port {
            let sum = self.snapshot.passing.entry(port).or_default();
            *sum = Passing {
                circuits: sum.circuits + usize::from(is_there),
                tx_bytes: sum.tx_bytes.wrapping_add(tx),
                rx_bytes: sum.rx_bytes.wrapping_add(rx),
            };
        }
    }
}

/// The row of an endpoint on the host `me`, whose circuit leaves by `port`.
pub(crate) fn circuit_row(
    me: HostId,
    circuit: CircuitId,
    end: &End,
    resources: &EndResources,
    port: Option<PortId>,
) -> CircuitRow {
    let view = resources.view();
    let (chosen, modes, moved) =
        view.map(|view| (view.chosen(), view.modes(), view.counters())).unwrap_or_default();
    CircuitRow {
        id: circuit,
        tuple: end.tuple,
        peer: match end.far {
            Far::Here(_) => me,
            Far::Host { host, .. } => host,
        },
        role: end.role,
        state: match end.state {
            _ if end.moving.is_some() => status::State::Moving,
            State::Opening | State::Pending => status::State::Pending,
            State::Open => status::State::Open,
            State::Closing(_) => status::State::Closing,
        },
        open: end.state == State::Open,
        hops: end.hops,
        pumps: end.pumps,
        generation: end.generation,
        twin_of: end.twin_of,
        far_closed: end.far_closed,
        dead: end.death,
        program: resources.program.clone(),
        pid: resources.pid,
        uid: resources.uid,
        holders: resources.holders.iter().map(|(session, _)| *session).collect(),
        moved,
        chosen,
        modes,
        port,
        by_port: resources.port_traffic(&moved),
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

pub(crate) fn port_row(cable: &Cable, silent: bool) -> PortRow {
    PortRow {
        id: cable.id,
        name: cable.config.name.clone(),
        kind: cable.config.kind.name(),
        link: cable.link(),
        epoch: cable.epoch(),
        peer: cable.agreement().map(|agreement| agreement.peer),
        window: (cable.window().bytes(), cable.window().used_bytes()),
        traffic: cable.traffic,
        silent,
        pacing: cable.pacing(),
    }
}

pub(crate) fn worked(tally: &Tally) -> OffloadThread {
    OffloadThread {
        copy: tally.copy.get().map(|name| (*name).to_owned()),
        bytes: tally.bytes.load(Relaxed),
        registered: tally.registered.load(Relaxed),
        transfers: tally.transfers.load(Relaxed),
        refused: tally.refused.load(Relaxed),
        sleeps: tally.sleeps.load(Relaxed),
    }
}
