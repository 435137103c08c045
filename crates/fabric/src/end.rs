//! One end of a circuit, as its host knows it.

use crosslane_wire::control::Closing;
use crosslane_wire::{ChannelId, CircuitId, HostId, Tuple};
use std::time::Duration;

/// Which side of the connection an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end called `connect`.
    Client,
    /// The end called `listen`.
    Server,
}

/// Why an end died while its program held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The cable is down or in a new epoch, and no other path was found in time.
    Cable,
    /// The far end was aborted.
    Abort,
    /// The far daemon shuts down.
    Shutdown,
    /// The neighbour broke the protocol.
    Violation,
}

/// Where the far end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// On this host: the other end's id.
    Here(CircuitId),
    /// On another host.
    Host {
        /// The host.
        host: HostId,
        /// The channel that leads to the host, if there is one now.
        channel: Option<ChannelId>,
    },
}

/// State of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requested from the neighbour.
    Opening,
    /// Made for a connection that no program has accepted yet.
    Pending,
    /// In use by a program.
    Open,
    /// Closed here in this way; the far side is not closed yet, or does not know.
    Closing(Closing),
}

/// The scope of a connection's addresses: a network namespace of this host, 0 for the daemon's own. Connections over a
/// cable are always in the daemon's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(pub u64);

/// The search for another circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// When the search is given up.
    pub until: Duration,
    /// When the connecting side tries again; `None` during a try, and on the accepting side.
    pub retry: Option<Duration>,
}

impl Moving {
    /// The times at which the search needs attention.
    pub(crate) fn looks(self) -> impl Iterator<Item = Duration> {
        [Some(self.until), self.retry].into_iter().flatten()
    }
}

/// One end of a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Addresses and ports of the connection.
    pub tuple: Tuple,
    /// The scope of these addresses.
    pub scope: Scope,
    /// Which side of the connection.
    pub role: Role,
    /// The other end.
    pub far: Far,
    /// A secret of the two ends, by which the stream is found again when it moves to another circuit; 0 inside a host.
    pub stream: u64,
    /// Cables of the circuit.
    pub hops: u8,
    /// Hosts between that pump; 0 until the circuit exists.
    pub pumps: u8,
    /// The state.
    pub state: State,
    /// Whether the far side has closed.
    pub far_closed: bool,
    /// Why the end died, if it did.
    pub death: Option<Death>,
    /// Number of the newest circuit that was tried for the stream; the first is 0.
    pub generation: u32,
    /// The search for another circuit, if the end's circuit is lost.
    pub moving: Option<Moving>,
    /// The end of the first circuit of a striped stream, if this is the second one's.
    pub twin_of: Option<CircuitId>,
}

impl End {
    /// The channel that leads to the far end.
    pub fn channel(&self) -> Option<ChannelId> {
        match self.far {
            Far::Host { channel, .. } => channel,
            Far::Here(_) => None,
        }
    }

    /// The host under which the end counts; 0 for this host itself.
    pub fn far_host(&self) -> HostId {
        match self.far {
            Far::Here(_) => HostId(0),
            Far::Host { host, .. } => host,
        }
    }

    pub(crate) fn set_channel(&mut self, new: ChannelId) {
        if let Far::Host { channel, .. } = &mut self.far {
            *channel = Some(new);
        }
    }

    /// Removes the end's channel and returns it.
    pub(crate) fn take_channel(&mut self) -> Option<ChannelId> {
        match &mut self.far {
            Far::Host { channel, .. } => channel.take(),
            Far::Here(_) => None,
        }
    }
}
