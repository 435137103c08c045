//! Whether the connection with the daemon of this host is still there: sleepers watch the session's socket for its end.
//!
//! A daemon that was killed takes the circuits of all streams with it, and on its way to other hosts perhaps the
//! kernel's FIN. So every sleeper has the socket among what it sleeps on, and whoever sees its end first has the session go on
//! by another connection, or, if the daemon is gone, breaks the streams of this process off ([`crate::daemon::process::lost`]).

use crate::kernel::fd;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::RawFd;

/// The socket of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its descriptor, one of our own.
    pub fd: RawFd,
    /// The connection's number.
    pub connection: u32,
}

/// The connection's number, and one more than its socket's descriptor; 0 if there is none.
static PRESENT: AtomicU64 = AtomicU64::new(0);
/// Connections so far.
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
/// How often the daemon was lost.
static LOSSES: AtomicU32 = AtomicU32::new(0);

/// What a sleeper shall watch. `None`: nobody tells of the daemon's end, so it sleeps for a short time only, after
/// [`crate::daemon::process::tend`].
#[inline]
pub fn present() -> Option<Watched> {
    let [f0, f1, f2, f3, s0, s1, s2, s3] = PRESENT.load(Ordering::Acquire).to_le_bytes();
    let fd = u32::from_le_bytes([f0, f1, f2, f3]).checked_sub(1)?;
    Some(Watched { fd: RawFd::try_from(fd).ok()?, connection: u32::from_le_bytes([s0, s1, s2, s3]) })
}

/// How often the daemon was lost so far: a circuit that was granted before the last time is dead.
pub fn losses() -> u32 {
    LOSSES.load(Ordering::Acquire)
}

/// A connection begins.
pub fn begin(fd: RawFd) {
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let fd = u64::from(fd.unsigned_abs()) + 1;
    PRESENT.store(fd | u64::from(number) << 32, Ordering::Release);
}

/// The connection has ended, and it is not known yet what becomes of the streams.
pub fn forget() {
    PRESENT.store(0, Ordering::Release);
}

/// The daemon was lost.
pub fn count_loss() {
    LOSSES.fetch_add(1, Ordering::AcqRel);
}

/// Whether `poll` found that the session has ended.
pub fn has_ended(polled: &PollFd<'_>) -> bool {
    polled.revents().contains(PollFlags::HUP)
}

impl Watched {
    /// For `poll`: told of nothing but its end.
    pub fn poll(self) -> PollFd<'static> {
        PollFd::from_borrowed_fd(fd::borrow(self.fd), PollFlags::empty())
    }
}
