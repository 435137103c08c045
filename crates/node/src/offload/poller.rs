//! What an engine's thread sleeps on: one wake event, for which each program has a waker of its own.

use crosslane_shm::wake::Receiver;
use std::sync::Arc;

/// What wakes one thread of the engine.
#[derive(Debug)]
pub(super) struct Poller(Arc<Receiver>);

impl Poller {
    pub(super) fn new(receiver: Arc<Receiver>) -> Self {
        Self(receiver)
    }

    /// Sleeps until somebody rings.
    pub(super) fn sleep(&self) {
        self.0.sleep(None);
        self.0.clear();
    }
}
