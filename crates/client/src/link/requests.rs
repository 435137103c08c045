//! The wake requests that a sleeper has stored at the far sides of its ends.

use super::WaitFor;
use crate::End;
use crosslane_shm::arm::{Armed, NextSleep};
use crosslane_wire::WaiterId;
use std::time::Instant;

/// Requests to wake one waiter, for any number of ends, and how long they may still be under way. Made for each sleep, or
/// for several while they stay stored.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    under_way: Armed<Instant>,
    all: bool,
}

impl Default for Requests {
    fn default() -> Self {
        Self { under_way: Armed::NOTHING, all: true }
    }
}

impl Requests {
    /// Asks the far side of `end` to wake `waiter` for `what`; `false` if another waiter is registered there.
    pub fn ask(&mut self, end: &End, what: WaitFor, waiter: WaiterId) -> bool {
        let asked = end.want(what, waiter);
        self.all &= asked;
        self.under_way.arm(end.in_flight_ns(), Instant::now);
        asked
    }

    /// Notes that some end cannot be asked.
    pub fn miss(&mut self) {
        self.all = false;
    }

    /// Whether all ends were asked; else sleep for a short time only.
    pub fn are_all(&self) -> bool {
        self.all
    }

    /// How long the next sleep may last. **Look after this call**, and sleep only if the look finds nothing.
    #[inline]
    pub fn next_sleep(&mut self) -> NextSleep {
        self.under_way.next_sleep(Instant::now)
    }

    /// Whether requests were still under way when [`Self::next_sleep`] was last called.
    pub fn are_under_way(&self) -> bool {
        self.under_way.is_under_way()
    }
}
