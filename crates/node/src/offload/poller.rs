//! What an engine's thread sleeps on: one wake event, for which each program has its own waker.

use crosslane_shm::wake::Receiver;
use std::sync::Arc;

/// The wake event of one engine thread.
#[derive(Debug)]
pub(super) struct Poller(Arc<Receiver>);

impl Poller {
    pub(super) fn new(receiver: Arc<Receiver>) -> Self {
        Self(receiver)
    }

    /// Sleeps until a waker wakes the thread.
    pub(super) fn sleep(&self) {
        self.0.sleep(None);
        self.0.clear();
    }
}
