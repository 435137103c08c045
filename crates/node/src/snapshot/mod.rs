//! The daemon's state as plain data: copied by its packet thread, a piece at a time ([`collect`]), and made into texts by another
//! thread ([`crate::texts`]), which shows each viewer the part that it may see.

pub mod collect;

use crate::address::Addresses;
use crate::cable::Traffic;
use crate::counter::Counters;
use crate::quota::Books;
use crate::session::{Note, SessionId};
use crosslane_fabric::circuit::{Death, Role};
use crosslane_fabric::links::AllRefused;
use crosslane_port::Pacing;
use crosslane_shm::state::{Chosen, ModesSnapshot, Snapshot as Moved};
use crosslane_status::{Link, OffloadThread, State};
use crosslane_wire::{CircuitId, Epoch, HostId, PortId, Tuple};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// All that the texts need. The counters are copied first; a stream that closes during the copy has its last row.
#[derive(Debug)]
pub struct Snapshot {
    /// What exists once, or a few times.
    pub head: Head,
    /// The reachable hosts.
    pub hosts: Vec<HostRow>,
    /// Pairs of hosts that a cable joins.
    pub links: Vec<(HostId, HostId)>,
    /// Sessions, in the order of their ids.
    pub sessions: Vec<SessionRow>,
    /// Addresses at which accelerated programs listen, each with the users that do.
    pub listeners: Vec<(SocketAddr, BTreeSet<u32>)>,
    /// Endpoints of circuits, in the order of their ids.
    pub circuits: Vec<CircuitRow>,
    /// What passes through this host, by port.
    pub passing: BTreeMap<PortId, Passing>,
    /// Payload of the circuits that pass through, bytes.
    pub passing_bytes: u64,
    /// What each payer uses.
    pub books: Books,
}

/// What exists once, or a few times.
#[derive(Debug)]
pub struct Head {
    /// This host.
    pub me: HostId,
    /// Addresses of all hosts.
    pub addresses: Addresses,
    /// The group whose members see everything.
    pub operators: Option<u32>,
    /// How long the daemon has been running.
    pub uptime: Duration,
    /// Whether another host has the same id.
    pub duplicate_id: bool,
    /// Whether the kernel can tell network namespaces apart.
    pub namespaces: bool,
    /// Whether this host signs its link states, and whether it checks those of others.
    pub signing: (bool, bool),
    /// Link states that were refused.
    pub refused: AllRefused,
    /// This host's ports, in the order of their ids.
    pub ports: Vec<PortRow>,
    /// Counters.
    pub counters: Counters,
    /// What the two threads of the offload engine have done; `None` before a program asked for the engine.
    pub offload: Option<Vec<OffloadThread>>,
    /// Circuits that pass through this host now.
    pub transits: usize,
}

/// A reachable host.
#[derive(Debug)]
pub struct HostRow {
    /// Host id.
    pub id: HostId,
    /// Whether its link state was signed by it.
    pub signed: bool,
    /// Paths to it, the shortest first: number of cables, and the port by which it leaves this host.
    pub ways: Vec<(u8, PortId)>,
}

/// One of this host's ports.
#[derive(Debug)]
pub struct PortRow {
    /// Number.
    pub id: PortId,
    /// Name.
    pub name: String,
    /// Kind of its back end.
    pub kind: &'static str,
    /// State of the link, and the reason as text.
    pub link: (Link, Option<String>),
    /// Epoch of the cable.
    pub epoch: Epoch,
    /// The neighbour, if the link is up.
    pub peer: Option<HostId>,
    /// Inbound memory, bytes: total, and handed out.
    pub window: (u64, u64),
    /// What the daemon has moved, and the totals of closed circuits.
    pub traffic: Traffic,
    /// Whether the neighbour's daemon does not answer.
    pub silent: bool,
    /// How well the times of the cable that it behaves like are kept.
    pub pacing: Option<Pacing>,
}

/// What passes through this host by one port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passing {
    /// Circuits.
    pub circuits: usize,
    /// Payload sent, bytes.
    pub tx_bytes: u64,
    /// Payload received, bytes.
    pub rx_bytes: u64,
}

/// A session.
#[derive(Debug)]
pub struct SessionRow {
    /// Session id.
    pub id: SessionId,
    /// The process that opened it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// The program's name.
    pub program: String,
    /// Whether its program has sent `Hello`.
    pub greeted: bool,
    /// Whether its connection has ended.
    pub lost: bool,
    /// Its waiters.
    pub waiters: usize,
    /// Endpoints that it holds.
    pub held: usize,
    /// Connections that fell back to TCP.
    pub notes: Arc<VecDeque<Note>>,
}

/// One endpoint of a circuit.
#[derive(Debug)]
pub struct CircuitRow {
    /// Circuit id.
    pub id: CircuitId,
    /// Addresses of the connection.
    pub tuple: Tuple,
    /// The host at the other end.
    pub peer: HostId,
    /// Connecting or accepting side.
    pub role: Role,
    /// State of the circuit.
    pub state: State,
    /// Whether a program has it open, also while it fails over to another circuit.
    pub open: bool,
    /// Length of the path, cables.
    pub hops: u8,
    /// Hosts on the path that pump.
    pub pumps: u8,
    /// How many circuits the stream has had.
    pub generation: u32,
    /// The first circuit's end of the striped stream of which this is the second's.
    pub twin_of: Option<CircuitId>,
    /// Whether the far side has closed it.
    pub far_closed: bool,
    /// Why it died, if it did.
    pub dead: Option<Death>,
    /// Name of the owner's program.
    pub program: String,
    /// The owner's process.
    pub pid: i32,
    /// The owner's user.
    pub uid: u32,
    /// Sessions that hold a reference to it.
    pub holders: Vec<SessionId>,
    /// What it has moved.
    pub moved: Moved,
    /// What was chosen for how it moves data.
    pub chosen: Chosen,
    /// How it moved its data: sent, received.
    pub modes: (ModesSnapshot, ModesSnapshot),
    /// The port by which the circuit leaves this host.
    pub port: Option<PortId>,
    /// The port of its newest segments, and the payload that went by it: bytes sent, received.
    pub by_port: (Option<PortId>, (u64, u64)),
}

/// Totals of all streams, open and closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamTotals {
    /// Open endpoints.
    pub open: u64,
    /// Payload sent, bytes.
    pub tx_bytes: u64,
    /// Payload received, bytes.
    pub rx_bytes: u64,
    /// Wakes of waiters that programs sent.
    pub wakes: u64,
}

impl Snapshot {
    /// A port by its number.
    pub fn port(&self, id: PortId) -> Option<&PortRow> {
        self.head.ports.get(usize::from(id.0))
    }

    /// The endpoints that programs have open.
    pub fn open_ends(&self) -> impl Iterator<Item = &CircuitRow> {
        self.circuits.iter().filter(|end| end.open && !end.holders.is_empty())
    }

    /// Totals of all streams, open and closed. Programs write these counters themselves, so a program may write any value.
    pub fn stream_totals(&self) -> StreamTotals {
        let closed = &self.head.counters;
        let mut totals = StreamTotals {
            open: 0,
            tx_bytes: closed.closed_tx_bytes,
            rx_bytes: closed.closed_rx_bytes,
            wakes: closed.closed_wakes,
        };
        for CircuitRow { moved, twin_of, .. } in self.open_ends() {
            totals.open += u64::from(twin_of.is_none());
            totals.tx_bytes = totals.tx_bytes.wrapping_add(moved.tx_bytes);
            totals.rx_bytes = totals.rx_bytes.wrapping_add(moved.rx_bytes);
            totals.wakes = totals.wakes.wrapping_add(moved.wakes);
        }
        totals
    }

    /// Payload that passed through this host, bytes.
    pub fn transit_bytes(&self) -> u64 {
        self.head.counters.transit_bytes.wrapping_add(self.passing_bytes)
    }

    /// Bytes that each cable carried, sent and received: the daemon's own, those of streams, and those that pass through this host.
    pub fn port_bytes(&self) -> BTreeMap<PortId, (u64, u64)> {
        let mut sums: BTreeMap<PortId, (u64, u64)> = BTreeMap::new();
        let own =
            self.head.ports.iter().map(|port| (port.id, (port.traffic.tx_bytes, port.traffic.rx_bytes)));
        let past = self
            .head
            .ports
            .iter()
            .map(|port| (port.id, (port.traffic.past_tx_bytes, port.traffic.past_rx_bytes)));
        let passing =
            self.passing.iter().map(|(port, passing)| (*port, (passing.tx_bytes, passing.rx_bytes)));
        let streams = self.open_ends().filter_map(|end| Some((end.by_port.0?, end.by_port.1)));
        for (port, (sent, received)) in own.chain(past).chain(passing).chain(streams) {
            let (tx, rx) = sums.entry(port).or_default();
            (*tx, *rx) = (tx.wrapping_add(sent), rx.wrapping_add(received));
        }
        sums
    }
}
