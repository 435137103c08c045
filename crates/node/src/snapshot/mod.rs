//! What the daemon tells about itself, as plain data: copied from what its thread holds, a piece at a time ([`collect`]), and
//! made into texts by another thread ([`crate::texts`]), which shows each viewer its part.

pub mod collect;

use crate::address::Addresses;
use crate::cable::Traffic;
use crate::counter::Counters;
use crate::quota::Books;
use crate::session::{Note, SessionId};
use crosslane_fabric::circuit::{Death, Role};
use crosslane_fabric::links::AllRefused;
use crosslane_shm::state::{Chosen, ModesSnapshot, Snapshot as Moved};
use crosslane_status::{Link, OffloadThread, State};
use crosslane_wire::{CircuitId, Epoch, HostId, PortId, Tuple};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Everything that texts tell. Its counters are older than its streams: what was closed meanwhile is in it as it was before.
#[derive(Debug)]
pub struct Snapshot {
    /// What there is once, or a few times.
    pub head: Head,
    /// Hosts in reach.
    pub hosts: Vec<HostRow>,
    /// Who is joined to whom.
    pub links: Vec<(HostId, HostId)>,
    /// Sessions, in the order of their ids.
    pub sessions: Vec<SessionRow>,
    /// Where accelerated programs listen, and the users that do.
    pub listeners: Vec<(SocketAddr, BTreeSet<u32>)>,
    /// Ends of circuits, in the order of their ids.
    pub circuits: Vec<CircuitRow>,
    /// What passes through this host, by port.
    pub passing: BTreeMap<PortId, Passing>,
    /// Payload of the circuits that pass through, bytes.
    pub passing_bytes: u64,
    /// Who has how much.
    pub books: Books,
}

/// What there is once, or a few times.
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
    /// Whether link states are signed, and whether they are checked.
    pub signing: (bool, bool),
    /// Link states that were not believed.
    pub refused: AllRefused,
    /// Our ports, in the order of their ids.
    pub ports: Vec<PortRow>,
    /// Counters.
    pub counters: Counters,
    /// What the engine's two threads have done; none before anybody wanted it.
    pub offload: Option<Vec<OffloadThread>>,
    /// Circuits that pass through this host.
    pub transits: usize,
}

/// A host in reach.
#[derive(Debug)]
pub struct HostRow {
    /// Which.
    pub id: HostId,
    /// Whether what is known of it was signed by it.
    pub signed: bool,
    /// Ways there, the shortest first: cables, and our port.
    pub ways: Vec<(u8, PortId)>,
}

/// One of our ports.
#[derive(Debug)]
pub struct PortRow {
    /// Number.
    pub id: PortId,
    /// Name.
    pub name: String,
    /// What kind of port it is.
    pub kind: &'static str,
    /// State of the link, and why, for people.
    pub link: (Link, Option<String>),
    /// Epoch of the cable.
    pub epoch: Epoch,
    /// Who is at the other end, if it is up.
    pub peer: Option<HostId>,
    /// Inbound memory, bytes: all of it, and what is given out.
    pub window: (u64, u64),
    /// What the daemon moved, and circuits that are no more.
    pub traffic: Traffic,
    /// Whether the neighbour does not answer.
    pub silent: bool,
}

/// What passes through this host by a port.
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
    /// Its name.
    pub id: SessionId,
    /// The process that opened it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// The program's name.
    pub program: String,
    /// Whether `Hello` was said.
    pub greeted: bool,
    /// Whether its connection has ended.
    pub lost: bool,
    /// Its wake events.
    pub waiters: usize,
    /// Circuit ends that it holds.
    pub held: usize,
    /// Connections that went by TCP.
    pub notes: Arc<VecDeque<Note>>,
}

/// One end of a circuit.
#[derive(Debug)]
pub struct CircuitRow {
    /// Which.
    pub id: CircuitId,
    /// The connection.
    pub tuple: Tuple,
    /// The host at the other end.
    pub peer: HostId,
    /// Which side of it.
    pub role: Role,
    /// What becomes of it.
    pub state: State,
    /// Whether it is open, also if it moves.
    pub open: bool,
    /// Cables.
    pub hops: u8,
    /// Hosts between that pump.
    pub pumps: u8,
    /// Circuits of the stream so far.
    pub generation: u32,
    /// Whether the far side has closed.
    pub far_closed: bool,
    /// Why it died, if it did.
    pub dead: Option<Death>,
    /// Name of the owner's program.
    pub program: String,
    /// The owner's process.
    pub pid: i32,
    /// The owner's user.
    pub uid: u32,
    /// Sessions that hold it.
    pub holders: Vec<SessionId>,
    /// What it has moved.
    pub moved: Moved,
    /// What was chosen for it.
    pub chosen: Chosen,
    /// How it moved its data, sent and received.
    pub modes: (ModesSnapshot, ModesSnapshot),
    /// The port that the circuit leaves by.
    pub port: Option<PortId>,
    /// The port of its newest segments, and the payload that went by it, sent and received, bytes.
    pub by_port: (Option<PortId>, (u64, u64)),
}

/// All streams, open and closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamTotals {
    /// Ends that programs hold.
    pub open: u64,
    /// Payload sent, bytes.
    pub tx_bytes: u64,
    /// Payload received, bytes.
    pub rx_bytes: u64,
    /// Wakes of waiters by programs.
    pub wakes: u64,
}

impl Snapshot {
    /// A port by its number.
    pub fn port(&self, id: PortId) -> Option<&PortRow> {
        self.head.ports.get(usize::from(id.0))
    }

    /// Ends of streams that programs hold.
    pub fn open_ends(&self) -> impl Iterator<Item = &CircuitRow> {
        self.circuits.iter().filter(|end| end.open && !end.holders.is_empty())
    }

    /// All streams, open and closed. A program keeps its counts itself, and may write anything there.
    pub fn stream_totals(&self) -> StreamTotals {
        let closed = &self.head.counters;
        let mut totals = StreamTotals {
            open: 0,
            tx_bytes: closed.closed_tx_bytes,
            rx_bytes: closed.closed_rx_bytes,
            wakes: closed.closed_wakes,
        };
        for CircuitRow { moved, .. } in self.open_ends() {
            totals.open += 1;
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

    /// Bytes that went over each cable: the daemon's own, those of streams, and those that pass through this host. Sent,
    /// received.
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
