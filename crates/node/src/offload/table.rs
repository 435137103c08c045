//! What an engine's thread needs in order to tell a program that a transfer has ended.

use crosslane_shm::submission::{Outcome, RequestId, SubmissionQueue};
use crosslane_shm::wake::Receiver;
use std::sync::Arc;

/// A program's submission queue, and the program's wake event.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) queue: Arc<SubmissionQueue>,
    /// Woken for transfers whose program asked for it. Queues of the program poll it edge-triggered.
    pub(super) completions: Arc<Receiver>,
}

impl Table {
    /// Ends the transfer, and wakes the program.
    pub(super) fn finish(&self, request: RequestId, done: u64, outcome: Outcome) {
        if self.queue.finish(request, done, outcome) {
            self.completions.wake_anew();
        }
    }
}
