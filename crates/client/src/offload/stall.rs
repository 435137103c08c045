//! Transfers that do not end: the engine is busy, or its daemon is stopped or has ended.
//!
//! ```text
//!   between two pieces          -> cancelled: the program has its buffer back, and goes on by itself
//!   the lease has hung up       -> no thread of the daemon works for this process any more, in the kernel or out of it
//!   a piece is being copied     -> waited for, as for any copy by the kernel; unless the thread is stopped: then the guard
//!                                  page is unmapped, the thread is checked to be stopped still, and the piece is revoked
//!   a piece takes effect        -> a few instructions; a thread that is stopped there leaves ring and state half changed:
//!                                  the stream is over
//! ```
//! A thread stops only on its way back to user space, never inside `process_vm_writev`. So once it is seen stopped after
//! the guard page was unmapped, no copy is under way, and none can begin.

use crosslane_shm::guard::Guard;
use crosslane_shm::submission::{Cancelled, RequestId, SubmissionQueue, Way};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use rustix::net::sockopt;
use rustix::process::{PTracer, Pid, set_ptracer};
use std::time::Duration;

/// After this time without progress the program moves the rest of a transfer by itself.
const STALL_AFTER: Duration = Duration::from_millis(60);
/// A thread that has been stopped for this long is not waited for.
const STOPPED: Duration = Duration::from_millis(200);
/// The same where not waiting loses the stream.
const LONG: Duration = Duration::from_secs(5);
/// Names of the daemon's threads.
const NAMES: [&str; 2] = ["offload-out", "offload-in"];

/// What to do about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// Wait longer.
    No,
    /// The transfer was cancelled: the program has its buffer back.
    Back,
    /// The same, and the engine must not be used any more.
    Gone,
    /// The same, and the state of the rings is unknown.
    Lost,
}

/// How the engine's threads are observed.
#[derive(Debug)]
pub(super) struct Stall {
    /// Hangs up when the threads do not work for this process any more. Unlike the session's socket, this process cannot hang it up.
    lease: BorrowedFd<'static>,
    daemon: Pid,
    uid: u32,
    threads: [u32; 2],
}

impl Stall {
    /// `None` if the threads are not visible in `/proc`: then a stopped thread could not be told from one that copies.
    pub(super) fn new(
        session: BorrowedFd<'_>,
        lease: BorrowedFd<'static>,
        threads: [u32; 2],
    ) -> Option<Self> {
        let peer = sockopt::socket_peercred(session).ok()?;
        let stall = Self { lease, daemon: peer.pid, uid: peer.uid.as_raw(), threads };
        let named = |way: usize| stall.read(way, "comm").is_some_and(|name| name.trim_end() == NAMES[way]);
        (named(0) && named(1)).then_some(stall)
    }

    /// Permits the daemon to access this process where Yama would not; only needed if this process is not root's.
    pub(super) fn let_in(&self) {
        let scope = std::fs::read("/proc/sys/kernel/yama/ptrace_scope");
        if self.uid != 0 && scope.is_ok_and(|scope| !scope.starts_with(b"0")) {
            // If this fails, the kernel refuses copies, and the program goes on by itself.
            let _ = set_ptracer(PTracer::ProcessID(self.daemon));
        }
    }

    /// Checks a transfer that has made no progress for `still`.
    pub(super) fn look(
        &self,
        queue: &SubmissionQueue,
        request: RequestId,
        way: Way,
        still: Duration,
        guard: &Guard,
    ) -> Stalled {
        if self.is_gone() {
            return Stalled::Gone;
        }
        if still < STALL_AFTER {
            return Stalled::No;
        }
        match queue.cancel(request) {
            Cancelled::Yes => Stalled::Back,
            Cancelled::Ended => Stalled::No,
            Cancelled::Busy { copying } if still >= STOPPED && self.is_stopped(way) => {
                if copying {
                    guard.revoke();
                    if self.is_stopped(way) && queue.revoke(request) { Stalled::Gone } else { Stalled::No }
                } else if still >= LONG {
                    Stalled::Lost
                } else {
                    Stalled::No
                }
            }
            Cancelled::Busy { .. } => Stalled::No,
        }
    }

    /// Whether no thread of the daemon works for this process any more.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.lease, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Whether a thread is stopped, by a signal or a tracer.
    fn is_stopped(&self, way: Way) -> bool {
        let stat = self.read(way as usize, "stat");
        let state = stat.as_deref().and_then(|stat| stat.rsplit_once(')')).map(|(_, rest)| rest.trim_start());
        state.is_some_and(|state| state.starts_with(['T', 't']))
    }

    fn read(&self, way: usize, file: &str) -> Option<String> {
        std::fs::read_to_string(format!(
            "/proc/{}/task/{}/{file}",
            self.daemon.as_raw_nonzero(),
            self.threads[way]
        ))
        .ok()
    }
}
