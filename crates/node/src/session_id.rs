//! The name of a session, for whoever keeps something of one.

/// A session, unique within one life of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);
