//! Whether the daemon of this host is still there: sleepers watch the session's socket for its end.
//!
//! A daemon that was killed takes the circuits of all streams with it, and on its way to other hosts perhaps the
//! kernel's FIN. So every sleeper has the socket among what it sleeps on, and whoever sees its end first breaks the
//! streams of this process off.

use crate::hook::descriptor::streams;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{BorrowedFd, RawFd};

/// The socket of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its descriptor, one of our own.
    pub fd: RawFd,
    /// The session's number.
    pub session: u32,
}

/// The session's number, and one more than its socket's descriptor; 0 if there is none.
static PRESENT: AtomicU64 = AtomicU64::new(0);
/// How often a session ended.
static LOSSES: AtomicU32 = AtomicU32::new(0);

/// What a sleeper shall watch, if there is a daemon. In the child of `fork` it is the parent's session until the child
/// has one of its own.
#[inline]
pub fn present() -> Option<Watched> {
    let [f0, f1, f2, f3, s0, s1, s2, s3] = PRESENT.load(Ordering::Acquire).to_le_bytes();
    let fd = u32::from_le_bytes([f0, f1, f2, f3]).checked_sub(1)?;
    Some(Watched { fd: RawFd::try_from(fd).ok()?, session: u32::from_le_bytes([s0, s1, s2, s3]) })
}

/// How often a session ended so far: a circuit that was granted before the last end is dead.
pub fn losses() -> u32 {
    LOSSES.load(Ordering::Acquire)
}

/// A session begins.
pub fn begin(fd: RawFd, session: u32) {
    let fd = u64::from(fd.unsigned_abs()) + 1;
    PRESENT.store(fd | u64::from(session) << 32, Ordering::Release);
}

/// The streams that this process found at its start belong to the session of an earlier image, whose socket is `fd`.
pub fn inherit(fd: RawFd) {
    begin(fd, 0);
}

/// In the child of `fork`: the parent's session has another number here.
pub fn renumber(session: u32) {
    if let Some(watched) = present() {
        begin(watched.fd, session);
    }
}

/// Looks whether the watched session has ended, without waiting.
pub fn look() {
    let Some(watched) = present() else { return };
    let mut fds = [watched.poll()];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&zero)).is_ok() && has_ended(&fds[0]) {
        is_over(watched);
    }
}

/// A sleeper saw the end of `watched`. Whether it is the present session that ended.
pub fn is_over(watched: Watched) -> bool {
    let present = present() == Some(watched);
    if present {
        over();
    }
    present
}

/// The present session has ended, and with it the circuits of all streams. It is watched until all of them are broken off:
/// who is about to sleep meanwhile is woken by it again.
pub fn over() {
    LOSSES.fetch_add(1, Ordering::AcqRel);
    for end in streams() {
        end.break_off(libc::ECONNRESET);
    }
    PRESENT.store(0, Ordering::Release);
}

/// Whether `poll` found that the session has ended.
pub fn has_ended(polled: &PollFd<'_>) -> bool {
    polled.revents().contains(PollFlags::HUP)
}

impl Watched {
    /// For `poll`: told of nothing but its end.
    pub fn poll(self) -> PollFd<'static> {
        // SAFETY: our own descriptor; if another thread closes it meanwhile the kernel says so.
        PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(self.fd) }, PollFlags::empty())
    }
}
