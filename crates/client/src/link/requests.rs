//! What a sleeper has asked of the far sides of its ends.

use super::WaitFor;
use crate::End;
use crosslane_shm::arm::{Armed, NextSleep};
use crosslane_wire::WaiterId;
use std::time::Instant;

/// Requests that one waiter is rung, of any number of ends, and how long they may still be under way. Made anew for each sleep, or, if
/// they stand, for several.
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
    /// Asks the far side of `end` to ring `waiter` for `what`; `false` if it will not.
    pub fn ask(&mut self, end: &End, what: WaitFor, waiter: WaiterId) -> bool {
        let asked = end.want(what, waiter);
        self.all &= asked;
        self.under_way.arm(end.in_flight_ns(), Instant::now);
        asked
    }

    /// Somebody who is to be slept for cannot be asked.
    pub fn miss(&mut self) {
        self.all = false;
    }

    /// Whether all that was to be asked was: else sleep for a short time only.
    pub fn are_all(&self) -> bool {
        self.all
    }

    /// How long the next sleep may last. **Look behind this call**, and sleep only if there is nothing.
    #[inline]
    pub fn next_sleep(&mut self) -> NextSleep {
        self.under_way.next_sleep(Instant::now)
    }

    /// Whether they may be under way, or might when that was last asked.
    pub fn are_under_way(&self) -> bool {
        self.under_way.is_under_way()
    }
}
