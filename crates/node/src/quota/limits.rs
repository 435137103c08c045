//! What is configured: limits of users, shares, reserves.

use super::{Kind, Payer, Purpose};
use std::collections::{BTreeMap, BTreeSet};

/// Most that one user may have; `u64::MAX` where only the shares bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions.
    pub sessions: u64,
    /// Listeners.
    pub listeners: u64,
    /// Descriptors of the daemon.
    pub descriptors: u64,
    /// Ends of circuits.
    pub circuits: u64,
    /// Ends that no program has accepted yet.
    pub pending: u64,
    /// Bytes of memory files.
    pub memory: u64,
    /// Bytes of each port's window.
    pub window: u64,
    /// Requests that are served in a second.
    pub requests: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            listeners: 4096,
            descriptors: u64::MAX,
            circuits: 65536,
            pending: 1024,
            memory: u64::MAX,
            window: u64::MAX,
            requests: 30_000,
        }
    }
}

impl Limits {
    /// The limit of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Sessions => self.sessions,
            Kind::Listeners => self.listeners,
            Kind::Descriptors => self.descriptors,
            Kind::Circuits => self.circuits,
            Kind::Pending => self.pending,
            Kind::Mappings | Kind::Transits | Kind::Stored => u64::MAX,
            Kind::Memory => self.memory,
            Kind::Window(_) => self.window,
        }
    }
}

/// Everything that quotas go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Limits of a user that has none of its own.
    pub user: Limits,
    /// Limits of users that have their own, by number.
    pub users: BTreeMap<u32, Limits>,
    /// Users that are bound by what there is only: root and the daemon's own.
    pub operators: BTreeSet<u32>,
    /// How much a user may have of what nobody else has, percent.
    pub share: u64,
    /// The same for the neighbour at a port.
    pub neighbour_share: u64,
    /// What is kept for streams that lost their circuit, percent of what there is.
    pub moves: u64,
    /// What is kept for root, percent of what there is.
    pub root: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self {
            user: Limits::default(),
            users: BTreeMap::new(),
            operators: [0, own].into(),
            share: 75,
            neighbour_share: 90,
            moves: 10,
            root: 5,
        }
    }
}

impl Settings {
    /// Whether a payer is bound by what there is only.
    pub fn is_operator(&self, payer: Payer) -> bool {
        matches!(payer, Payer::User(uid) if self.operators.contains(&uid))
    }

    /// Most that a payer may have of a kind, whatever is free.
    pub fn most(&self, payer: Payer, kind: Kind) -> u64 {
        match payer {
            _ if self.is_operator(payer) => u64::MAX,
            Payer::User(uid) => self.limits_of(uid).of(kind),
            Payer::Neighbour(_) => u64::MAX,
        }
    }

    /// Requests that a user is served in a second; `None`: as many as it asks for.
    pub fn requests(&self, uid: u32) -> Option<u64> {
        (!self.operators.contains(&uid)).then(|| self.limits_of(uid).requests)
    }

    fn limits_of(&self, uid: u32) -> &Limits {
        self.users.get(&uid).unwrap_or(&self.user)
    }

    /// What is kept for others than this purpose, percent of what there is.
    pub fn reserve(&self, purpose: Purpose) -> u64 {
        if purpose.is_move() { self.root } else { self.root + self.moves }
    }

    /// How much a payer may have of what is neither kept nor another's, percent. A circuit is charged on each host that
    /// it comes to: to its user, to hosts that pass it on, to its neighbour. The shares rise on that way, so that who has used
    /// up his own has not used up those of his host. Streams that move leave half as much to others.
    pub fn share(&self, payer: Payer, purpose: Purpose) -> u64 {
        let share = match (payer, purpose) {
            (Payer::User(_), _) => self.share,
            (Payer::Neighbour(_), Purpose::Passing | Purpose::PassingMove) => {
                self.share.midpoint(self.neighbour_share)
            }
            (Payer::Neighbour(_), _) => self.neighbour_share,
        };
        if purpose.is_move() { share.midpoint(100) } else { share }
    }
}
