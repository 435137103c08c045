//! Transfers that do not end: the engine is busy, its daemon was stopped, or is gone.
//!
//! ```text
//!   between two pieces          -> cancelled: the program has its buffer back, and goes on by itself
//!   the lease has hung up       -> no thread of the daemon's works for us any more, in the kernel or out of it
//!   a piece is being copied     -> waited for, as for any copy by the kernel; unless the thread is stopped: then the guard
//!                                  is taken away, the thread is seen to be stopped still, and the piece is revoked
//!   a piece takes effect        -> a few instructions; a thread that is stopped just there has ring and arena half done:
//!                                  the stream is over
//! ```
//! A thread is stopped on its way back to its program only, never inside `process_vm_writev`. So once it is seen stopped
//! after the guard was taken away, no copy is under way, and none can begin.

use crosslane_shm::guard::Guard;
use crosslane_shm::submission::{Cancelled, RequestId, SubmissionQueue, Way};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use rustix::net::sockopt;
use rustix::process::{PTracer, Pid, set_ptracer};
use std::time::Duration;

/// A transfer without progress for so long is better done by the program.
const STALL_AFTER: Duration = Duration::from_millis(60);
/// A thread that is stopped for so long is not waited for.
const STOPPED: Duration = Duration::from_millis(200);
/// The same where the stream is lost by it.
const LONG: Duration = Duration::from_secs(5);
/// The threads' names.
const NAMES: [&str; 2] = ["offload-out", "offload-in"];

/// What is to be done about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// Wait on.
    No,
    /// The buffer is the program's again.
    Back,
    /// The same, and the engine is of no use any more.
    Gone,
    /// The same, and the state of the rings is not known.
    Lost,
}

/// How the engine's threads are looked at.
#[derive(Debug)]
pub(super) struct Stall {
    /// Hangs up when they work for us no more. Nobody here can make it do so, as could be done to the session's socket.
    lease: BorrowedFd<'static>,
    daemon: Pid,
    uid: u32,
    threads: [u32; 2],
}

impl Stall {
    /// `None` if the threads cannot be seen: then a stopped one could not be told from one that copies.
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

    /// Lets the daemon reach this process where Yama would not: only one that is not root needs that.
    pub(super) fn let_in(&self) {
        let scope = std::fs::read("/proc/sys/kernel/yama/ptrace_scope");
        if self.uid != 0 && scope.is_ok_and(|scope| !scope.starts_with(b"0")) {
            // Where this fails, copies are refused, and the program goes on by itself.
            let _ = set_ptracer(PTracer::ProcessID(self.daemon));
        }
    }

    /// Looks at a transfer that has made no progress for `still`.
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

    /// Whether no thread of the daemon's is left that works for us.
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
