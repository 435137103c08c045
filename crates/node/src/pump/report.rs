//! What pumps tell the daemon.

use super::TransitId;
use crate::eventfd;
use crosslane_wire::WaiterId;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// What a pump tells the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The pump cannot ring this waiter of the neighbour's: the daemon does. The first time it also looks for the wake
    /// event, and answers by [`Command::Waker`](super::Command::Waker).
    Wake {
        /// The circuit.
        transit: TransitId,
        /// The leg whose neighbour has the waiter.
        leg: usize,
        /// The waiter.
        waiter: WaiterId,
    },
    /// After [`Command::Drain`](super::Command::Drain): all that came from this leg was pumped on, or thrown away if
    /// nobody reads on the other side, and the other side was told.
    Dry {
        /// The circuit.
        transit: TransitId,
        /// The leg that was drained.
        leg: usize,
    },
    /// The mappings are gone: the segments may be freed.
    Removed {
        /// The circuit.
        transit: TransitId,
    },
    /// A side broke the ring's protocol. Nothing moves any more; [`Command::Remove`](super::Command::Remove) is still
    /// to come.
    Violated {
        /// The circuit.
        transit: TransitId,
        /// The leg whose neighbour did it.
        leg: usize,
        /// What it did.
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

    /// Readable when a report waits.
    pub(super) fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// A report that waits already is not doubled, so a daemon that is slow does not find more of them than there
    /// are waiters.
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
