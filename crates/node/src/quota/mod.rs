//! Who has how much of what this daemon can run out of, and how much of it he may have.
//!
//! ```text
//!   capacity  |<---- new circuits, descriptors ... of users and neighbours ---->|<- moves ->|<- root ->|
//!             |  A has  |  B has  |  A may have a share of what B leaves  | a rest |
//! ```
//! What is taken is *charged* to a [`Payer`]: a user of this host, all of whose sessions share, or the neighbour at a
//! port. A [`Charge`] gives back what it stands for when it is dropped, so it lives in the struct that holds the
//! descriptor, the segment or the listener, and no path can forget it. `pool::Pool` has the arithmetic,
//! [`Settings`] what is configured, [`Ledger`] the books.

mod accounts;
mod ledger;
mod limits;
mod pool;
mod rate;
mod report;
mod said;

pub use accounts::Accounts;
pub use ledger::{Charge, Denied, Ledger, SHELF_OWN, SHELVES, descriptor_limit, here_of};
pub use limits::{Limits, Settings};
pub use rate::{HEAVY, May, Rates, TEXT};
pub use report::Books;
pub use said::Said;

use crosslane_wire::PortId;
use std::fmt;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Sessions, those that have not said `Hello` among them.
    Sessions,
    /// Accelerated listeners.
    Listeners,
    /// Descriptors that the daemon holds in its own table.
    Descriptors,
    /// Descriptors that it keeps for streams, here or on shelves ([`crate::shelves`]).
    Stored,
    /// Ends of circuits.
    Circuits,
    /// Ends that were asked for and that no program has accepted yet.
    Pending,
    /// Mappings of the daemon's, of which the kernel allows a process a number.
    Mappings,
    /// Circuits that pass through this host.
    Transits,
    /// Bytes of the memory files that the daemon makes: segments and what is kept of what was sent.
    Memory,
    /// Bytes of a port's inbound memory.
    Window(PortId),
}

impl Kind {
    /// The kinds that do not belong to a port.
    pub const OF_HOST: [Self; 9] = [
        Self::Sessions,
        Self::Listeners,
        Self::Descriptors,
        Self::Stored,
        Self::Circuits,
        Self::Pending,
        Self::Mappings,
        Self::Transits,
        Self::Memory,
    ];

    /// The name of its key in the configuration and in `status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Listeners => "listeners",
            Self::Descriptors => "descriptors",
            Self::Stored => "stored",
            Self::Circuits => "circuits",
            Self::Pending => "pending",
            Self::Mappings => "mappings",
            Self::Transits => "transits",
            Self::Memory => "memory",
            Self::Window(_) => "window",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(port) => write!(f, "window of port {}", port.0),
            other => f.write_str(other.name()),
        }
    }
}

/// To whom something is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payer {
    /// A user of this host, by number.
    User(u32),
    /// The neighbour at a port: circuits that it asks for, whoever began them.
    Neighbour(PortId),
}

impl Payer {
    /// The user, if it is one.
    pub fn user(self) -> Option<u32> {
        if let Self::User(uid) = self { Some(uid) } else { None }
    }

    /// The number of the neighbour's port, if it is a neighbour.
    pub fn port(self) -> Option<u8> {
        if let Self::Neighbour(port) = self { Some(port.0) } else { None }
    }
}

impl fmt::Display for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Neighbour(port) => write!(f, "neighbour at port {}", port.0),
        }
    }
}

/// What it is charged for: how much must stay free then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Something new.
    New,
    /// A circuit that passes through this host.
    Passing,
    /// A stream that lost its circuit goes on by another.
    Move,
    /// The same through this host.
    PassingMove,
}

impl Purpose {
    /// For an end of this host.
    pub fn of_end(purpose: crosslane_policy::Purpose) -> Self {
        match purpose {
            crosslane_policy::Purpose::New => Self::New,
            crosslane_policy::Purpose::Move => Self::Move,
        }
    }

    /// For a circuit that passes through, new or of a stream that goes on.
    pub fn of_transit(moves: bool) -> Self {
        if moves { Self::PassingMove } else { Self::Passing }
    }

    /// Whether a stream that was there before needs it to go on.
    pub fn is_move(self) -> bool {
        matches!(self, Self::Move | Self::PassingMove)
    }
}
