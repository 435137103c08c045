//! The session with the daemon, and what this process has by it.

pub mod daemon_link;
pub mod fd_exhausted;
pub mod namespace;
pub mod offload_session;
pub mod pending_accepts;
pub mod pool;
pub mod process;
pub mod rules;
pub mod waiters;
pub mod watch;
