//! Reports of the pumps to the daemon.

use super::TransitId;
use crate::eventfd;
use crosslane_wire::WaiterId;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// A report of a pump to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The pump cannot wake this waiter of the neighbour: the daemon must. The first time the daemon also looks up its
    /// waker, and answers by [`Command::Waker`](super::Command::Waker).
    Wake {
        /// The circuit.
        transit: TransitId,
        /// The leg whose neighbour has the waiter.
        leg: usize,
        /// The waiter.
        waiter: WaiterId,
    },
    /// After [`Command::Drain`](super::Command::Drain): all records from this leg were forwarded, or discarded if the
    /// other side does not read any more, and the other side was told of the end.
    Dry {
        /// The circuit.
        transit: TransitId,
        /// The leg that was drained.
        leg: usize,
    },
    /// The segments are unmapped: they may be freed.
    Removed {
        /// The circuit.
        transit: TransitId,
    },
    /// A side broke the ring's protocol. Nothing is forwarded any more; the daemon must send [`Command::Remove`](super::Command::Remove).
    Violated {
        /// The circuit.
        transit: TransitId,
        /// The leg whose neighbour broke it.
        leg: usize,
        /// The violation.
        why: String,
    },
}

/// Reports on their way from the pumps to the daemon.
#[derive(Debug)]
pub(super) struct Reports {
    queue: Mutex<VecDeque<Report>>,
    event: OwnedFd,
}

impl Reports {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { queue: Mutex::default(), event: eventfd::new()? })
    }

    /// Readable while a report waits.
    pub(super) fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Adds a report, unless an equal one waits: so a slow daemon finds at most as many as there are waiters.
    pub(super) fn push(&self, report: Report) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.contains(&report) {
            queue.push_back(report);
            eventfd::wake(self.event.as_fd());
        }
    }

    pub(super) fn pop(&self) -> Option<Report> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let report = queue.pop_front();
        if report.is_none() {
            eventfd::drain(self.event.as_fd());
        }
        report
    }
}
