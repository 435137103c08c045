//! What an engine's thread needs to tell a program that a transfer has ended.

use crosslane_shm::desk::{Desk, Outcome, Ticket};
use crosslane_shm::wake::Receiver;
use std::sync::Arc;

/// A program's desk, and how the program is woken.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) desk: Arc<Desk>,
    /// Rung for transfers whose program wants that. Queues of the program hear it by edges.
    pub(super) bell: Arc<Receiver>,
}

impl Table {
    /// The transfer has ended.
    pub(super) fn finish(&self, ticket: Ticket, done: u64, outcome: Outcome) {
        if self.desk.finish(ticket, done, outcome) {
            self.bell.ring_anew();
        }
    }
}
