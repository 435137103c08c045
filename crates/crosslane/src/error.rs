//! Errors of native streams.

use crosslane_client::SessionError;
use crosslane_wire::local::Plain;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Why a native stream cannot be made, or is over.
#[derive(Debug, Error)]
pub enum Error {
    /// A request to this host's daemon failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The daemon of this host has ended, and with it the session and all its streams.
    #[error(
        "the daemon of this host has ended, and with it the streams of this program; connect or listen again: that opens \
         a new session as soon as a daemon runs"
    )]
    DaemonGone,
    /// The connection would fall back to plain TCP. Each end must be native, or a program under `crosslane run` whose rules say stream.
    #[error("the connection with {remote} cannot be a stream: {why:?}; both ends must be Crosslane's own")]
    Plain {
        /// The far address.
        remote: SocketAddr,
        /// The reason.
        why: Plain,
    },
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] Errno),
    /// The stream was aborted: the far program, or a host or cable on the path, is gone.
    #[error("the stream is broken off: {0}")]
    Broken(Errno),
    /// There was no progress for as long as the call may wait. Nothing is lost: the call may be repeated.
    #[error(
        "nothing moved between here and {remote} for {after:?}, after {done} bytes of this call: the program there, a \
         host or a daemon on the way is frozen or busy; call again, or give the stream up"
    )]
    TimedOut {
        /// The far end.
        remote: SocketAddr,
        /// The limit that the call had.
        after: Duration,
        /// Bytes that the call had moved before.
        done: usize,
    },
    /// The program cancelled it.
    #[error("taken back by the program")]
    Cancelled,
    /// The far end has ended its direction, or does not receive any more.
    #[error("the far end has closed the stream")]
    Closed,
    /// The far program fell back to the kernel's TCP, which a native stream does not support.
    #[error("the far program took the stream over to the kernel's TCP")]
    Downgraded,
    /// The far end broke the protocol; the stream is aborted.
    #[error("the far end broke the protocol: {0}")]
    Violated(String),
}
