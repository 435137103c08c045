//! One end of a circuit, as its host keeps it.

use crosslane_wire::control::Closing;
use crosslane_wire::{ChannelId, CircuitId, HostId, Tuple};
use std::time::Duration;

/// Which side of the connection an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It called `connect`.
    Client,
    /// It called `listen`.
    Server,
}

/// Why an end died under its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The cable is down or in a new epoch, and there was no other way in time.
    Cable,
    /// The far end was broken off.
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
    /// On another.
    Host {
        /// Which.
        host: HostId,
        /// The channel that leads there, if there is one now.
        channel: Option<ChannelId>,
    },
}

/// State of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asked for.
    Opening,
    /// Made for a connection that no program has accepted yet.
    Pending,
    /// In use by a program.
    Open,
    /// Closed here in this way; the far side is not yet, or has not heard of it.
    Closing(Closing),
}

/// Where a connection's addresses mean what they say: a network namespace of this host, 0 for the daemon's own. What
/// comes by cable is always of the daemon's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(pub u64);

/// The search for another circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// When it is given up.
    pub until: Duration,
    /// When the connecting side tries again; `None` while a try is under way, and on the other side.
    pub retry: Option<Duration>,
}

impl Moving {
    /// When it is looked at.
    pub(crate) fn looks(self) -> impl Iterator<Item = Duration> {
        [Some(self.until), self.retry].into_iter().flatten()
    }
}

/// One end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The connection.
    pub tuple: Tuple,
    /// Where its addresses are meant.
    pub scope: Scope,
    /// Which side of it.
    pub role: Role,
    /// The other end.
    pub far: Far,
    /// A secret of the two ends, by which the stream is known again on another circuit; 0 inside a host.
    pub stream: u64,
    /// Cables of the circuit.
    pub hops: u8,
    /// Hosts between that pump; 0 until the circuit is there.
    pub pumps: u8,
    /// State.
    pub state: State,
    /// Whether the far side has closed.
    pub far_closed: bool,
    /// Why it died, if it did.
    pub death: Option<Death>,
    /// Number of the newest circuit of the stream that was tried; the first is 0.
    pub generation: u32,
    /// Its circuit is lost, another is sought.
    pub moving: Option<Moving>,
}

impl End {
    /// The channel that leads to the far end.
    pub fn channel(&self) -> Option<ChannelId> {
        match self.far {
            Far::Host { channel, .. } => channel,
            Far::Here(_) => None,
        }
    }

    /// Under which host the end counts; 0 for this host itself.
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

    /// The end has no channel from now on; the one that it had.
    pub(crate) fn take_channel(&mut self) -> Option<ChannelId> {
        match &mut self.far {
            Far::Host { channel, .. } => channel.take(),
            Far::Here(_) => None,
        }
    }
}
