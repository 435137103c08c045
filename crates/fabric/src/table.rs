//! The table of circuits: ends, circuits in transit, and the owner of each channel. [`crate::circuit`], [`crate::claim`]
//! and [`crate::transit`] change it.

use crate::channel::{self, Channels};
use crate::end::{End, Role, Scope};
use crate::output::Output;
use core::ops::Bound;
use crosslane_wire::{ChannelId, CircuitId, Epoch, HostId, PortId, TransitId, Tuple};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// The owner of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An end on this host.
    End(CircuitId),
    /// One side of a circuit in transit.
    Transit(TransitId, usize),
}

/// Limits of the state machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Most ends that each other host may have here before a program accepts them.
    pub pending: usize,
    /// How long an end may look for another circuit; zero: it dies with its circuit.
    pub patience: Duration,
}

/// A circuit over cables, requested by this host or by another one.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// This host's port.
    pub port: PortId,
    /// The cable's epoch.
    pub epoch: Epoch,
    /// Cables in all.
    pub hops: u8,
    /// Hosts between that pump, as far as known: the others pass their neighbours' segments along.
    pub pumps: u8,
}

/// The side of the host that asked for the circuit.
pub const BEFORE: usize = 0;
/// The side of the host that this host asked.
pub const BEHIND: usize = 1;

/// One circuit in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Its two channels.
    pub channels: [ChannelId; 2],
    /// Sides that have closed in order and whose last bytes are being forwarded.
    pub(crate) draining: [bool; 2],
}

/// All circuits of this host.
#[derive(Debug, Default)]
pub struct Circuits {
    pub(crate) limits: Limits,
    pub(crate) now: Duration,
    pub(crate) channels: Channels,
    pub(crate) owners: BTreeMap<ChannelId, Owner>,
    pub(crate) ends: BTreeMap<CircuitId, End>,
    pub(crate) transits: BTreeMap<TransitId, Transit>,
    pub(crate) by_stream: HashMap<u64, CircuitId>,
    /// The second circuit's end of each striped stream, by that of the first.
    pub(crate) twins: HashMap<CircuitId, CircuitId>,
    pub(crate) outputs: VecDeque<Output>,
    /// When the ends that move need attention: at most two entries for each, kept by [`Self::search`].
    pub(crate) looks: BTreeSet<(Duration, CircuitId)>,
    pub(crate) last_transit: u64,
    /// The ends of each connection, the oldest first: until it is accepted, several sockets may claim it.
    pub(crate) by_tuple: HashMap<(Tuple, Role, Scope), Vec<CircuitId>>,
    pub(crate) last: u64,
    pub(crate) pending: HashMap<HostId, usize>,
}

impl Circuits {
    /// A table without circuits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Frees memory for more than `ends` ends, or for more than there are.
    pub fn shrink_to(&mut self, ends: usize) {
        self.by_stream.shrink_to(ends);
        self.by_tuple.shrink_to(ends);
        self.twins.shrink_to(ends);
        self.outputs.shrink_to(ends);
    }

    /// An end by its id.
    pub fn get(&self, circuit: CircuitId) -> Option<&End> {
        self.ends.get(&circuit)
    }

    /// All ends, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (CircuitId, &End)> {
        self.ends.iter().map(|(id, end)| (*id, end))
    }

    /// The ends after `last`, in the order of their ids; all if `last` is `None`.
    pub fn iter_after(&self, last: Option<CircuitId>) -> impl Iterator<Item = (CircuitId, &End)> {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.ends.range((begin, Bound::Unbounded)).map(|(id, end)| (*id, end))
    }

    /// The ends of a connection on this host, the newest first. Until a program accepts it, several sockets may claim to
    /// be its client; this module does not know which is right.
    pub fn ends_of(&self, tuple: &Tuple, role: Role, scope: Scope) -> impl Iterator<Item = CircuitId> + '_ {
        self.by_tuple.get(&(*tuple, role, scope)).into_iter().flatten().rev().copied()
    }

    /// The end of the second circuit of a striped stream, by that of the first.
    pub fn twin(&self, first: CircuitId) -> Option<CircuitId> {
        self.twins.get(&first).copied()
    }

    /// The end of the other circuit of a striped stream, by that of either.
    pub fn other_of(&self, circuit: CircuitId) -> Option<CircuitId> {
        self.twin(circuit).or_else(|| self.ends.get(&circuit)?.twin_of)
    }

    /// A channel by its id.
    pub fn channel(&self, channel: ChannelId) -> Option<&channel::Channel> {
        self.channels.get(channel)
    }

    /// The owner of a channel that the neighbour at `port` names.
    pub fn owner(&self, port: PortId, channel: ChannelId) -> Option<Owner> {
        self.channels.on_port(port, channel).ok()?;
        self.owners.get(&channel).copied()
    }

    /// Number of ends that no program has accepted yet.
    pub fn pending(&self) -> usize {
        self.pending.values().sum()
    }

    /// Number of circuits that lead through the cable at `port`, whoever requested them.
    pub fn load_of(&self, port: PortId) -> usize {
        self.channels.count_on(port)
    }

    /// Number of channels.
    pub fn channel_count(&self) -> usize {
        self.channels.count()
    }
}
