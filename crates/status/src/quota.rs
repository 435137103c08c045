//! Shares of the resources that the daemon can run out of.

use serde::{Deserialize, Serialize};

/// Limits, reserves, and who has how much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// How much a user may have of what nobody else has, percent.
    pub share_percent: u64,
    /// The same for the neighbour at a port, percent.
    pub neighbour_share_percent: u64,
    /// What is kept for streams that lost their circuit, percent.
    pub moves_percent: u64,
    /// What is kept for root, percent.
    pub root_percent: u64,
    /// What there is of each kind.
    pub pools: Vec<Pool>,
    /// Who has how much; the viewer alone, if it may not see others.
    pub payers: Vec<Payer>,
}

/// What there is of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The kind: a field of [`Holds`].
    pub kind: String,
    /// The number of the port, of a `window`.
    pub port: Option<u8>,
    /// How much there is; absent if there is no bound.
    pub capacity: Option<u64>,
    /// How much of that is taken.
    pub used: u64,
    /// Times that a request exceeded its share.
    pub refused: u64,
}

/// What a user or a neighbour has: one of the first two fields is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payer {
    /// The user.
    pub user: Option<u32>,
    /// The number of the neighbour's port.
    pub neighbour_at_port: Option<u8>,
    /// What it has.
    pub holds: Holds,
}

/// What a user or a neighbour has, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// Sessions.
    pub sessions: Use,
    /// Listeners that take streams.
    pub listeners: Use,
    /// Descriptors in the daemon's own table.
    pub descriptors: Use,
    /// Descriptors that are kept for streams, in that table or on shelves.
    pub stored: Use,
    /// Ends of circuits.
    pub circuits: Use,
    /// Ends that no program has accepted yet.
    pub pending: Use,
    /// The daemon's mappings.
    pub mappings: Use,
    /// Circuits through this host.
    pub transits: Use,
    /// Memory that the daemon made, bytes.
    pub memory: Use,
    /// Of each port's window.
    pub window: Vec<WindowUse>,
    /// Requests to the daemon; nothing of a neighbour.
    pub requests: Option<Requests>,
}

/// How much is taken, and how much may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Taken.
    pub used: u64,
    /// Present limit, given the use of others; absent if there is no bound.
    pub limit: Option<u64>,
}

/// How much of a port's window is taken, and how much may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowUse {
    /// The port's number.
    pub port: u8,
    /// Taken, bytes.
    pub used: u64,
    /// Present limit, bytes; absent if there is no bound.
    pub limit: Option<u64>,
}

/// How many requests a user is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Requests of the smallest kind a second; absent if there is no bound.
    pub a_second: Option<u64>,
}
