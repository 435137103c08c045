//! The thread that serves requesters, as other threads reach it.

use super::Error;
use crate::wait::Event;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The agent, as other threads reach it.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) wakeup: Arc<Event>,
}

impl Handle {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { stop: Arc::default(), wakeup: Arc::new(Event::new()?) })
    }

    /// Wakes it if it sleeps.
    pub(super) fn wake(&self) {
        self.wakeup.wake();
    }

    /// Tells it to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}
