//! What an engine's thread needs to tell a program that a transfer has ended.

use crosslane_shm::submission::{Outcome, RequestId, SubmissionQueue};
use crosslane_shm::wake::Receiver;
use std::sync::Arc;

/// A program's submission queue, and how the program is woken.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) queue: Arc<SubmissionQueue>,
    /// Rung for transfers whose program wants that. Queues of the program hear it by edges.
    pub(super) completions: Arc<Receiver>,
}

impl Table {
    /// The transfer has ended.
    pub(super) fn finish(&self, request: RequestId, done: u64, outcome: Outcome) {
        if self.queue.finish(request, done, outcome) {
            self.completions.wake_anew();
        }
    }
}
