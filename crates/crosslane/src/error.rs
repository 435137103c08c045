//! Why a stream cannot be had, or is over.

use crosslane_client::SessionError;
use crosslane_wire::local::Plain;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Why a native stream cannot be had, or is over.
#[derive(Debug, Error)]
pub enum Error {
    /// The daemon of this host is of no help.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The daemon of this host has ended, and with it the session and all its streams.
    #[error(
        "the daemon of this host has ended, and with it the streams of this program; connect or listen again: that opens \
         a new session as soon as a daemon runs"
    )]
    DaemonGone,
    /// The connection would be plain TCP. The far end must be a native listener, or a program under `crosslane run`
    /// whose rules say stream; and so must a client.
    #[error("the connection with {remote} cannot be a stream: {why:?}; both ends must be Crosslane's own")]
    Plain {
        /// The far address.
        remote: SocketAddr,
        /// Why.
        why: Plain,
    },
    /// A system call failed.
    #[error("system call failed: {0}")]
    System(#[from] Errno),
    /// The stream was broken off: the far program or a host or cable on the way is gone.
    #[error("the stream is broken off: {0}")]
    Broken(Errno),
    /// Nothing moved for as long as the call waits. Nothing is lost: it may be made again.
    #[error(
        "nothing moved between here and {remote} for {after:?}, after {done} bytes of this call: the program there, a \
         host or a daemon on the way is frozen or busy; call again, or give the stream up"
    )]
    TimedOut {
        /// The far end.
        remote: SocketAddr,
        /// How long the call waited.
        after: Duration,
        /// What had been moved by the call before, bytes.
        done: usize,
    },
    /// The program took it back before it was done.
    #[error("taken back by the program")]
    Cancelled,
    /// The far end sends or takes no more.
    #[error("the far end has closed the stream")]
    Closed,
    /// The far program went over to the kernel's TCP, which a native stream does not follow.
    #[error("the far program took the stream over to the kernel's TCP")]
    Downgraded,
    /// The far end broke the protocol; the stream is broken off.
    #[error("the far end broke the protocol: {0}")]
    Violated(String),
}
