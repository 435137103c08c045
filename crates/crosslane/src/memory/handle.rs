//! Control of the agent by other threads.

use super::Error;
use crate::wait::Event;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The agent, as other threads control it.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) wakeup: Arc<Event>,
}

impl Handle {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { stop: Arc::default(), wakeup: Arc::new(Event::new()?) })
    }

    /// Wakes the agent if it sleeps.
    pub(super) fn wake(&self) {
        self.wakeup.wake();
    }

    /// Tells the agent to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}
