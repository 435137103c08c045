//! The wake events of all sessions, by the ids under which far programs name them.

use crate::quota::Charge;
use crate::session::SessionId;
use crosslane_shm::wake::Receiver;
use crosslane_wire::WaiterId;
use std::collections::HashMap;

/// A wake event of a session.
#[derive(Debug)]
pub struct Waiter {
    /// Whose it is.
    pub session: SessionId,
    /// What wakes it.
    pub event: Receiver,
    /// What its user pays for it.
    pub charge: Charge,
}

/// All of them.
#[derive(Debug)]
pub struct Waiters {
    all: HashMap<WaiterId, Waiter>,
    last: u32,
}

impl Waiters {
    /// None yet. Ids follow `last`: neighbours and programs may still name waiters of an earlier life of the daemon.
    pub fn new(last: u32) -> Self {
        Self { all: HashMap::new(), last }
    }

    /// An id for a new waiter, which is not `taken` by a pump's either.
    pub fn new_id(&mut self, taken: impl Fn(WaiterId) -> bool) -> WaiterId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = WaiterId(self.last);
            if self.last != 0 && !self.all.contains_key(&id) && !taken(id) {
                return id;
            }
        }
    }

    /// Enters a waiter.
    pub fn add(&mut self, id: WaiterId, waiter: Waiter) {
        self.all.insert(id, waiter);
    }

    /// A waiter.
    pub fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.all.get(&id)
    }

    /// Ends a waiter; the word of its wakes.
    pub fn remove(&mut self, id: WaiterId) -> Option<u64> {
        let waiter = self.all.remove(&id)?;
        let word = waiter.event.word();
        waiter.event.discard();
        Some(word)
    }

    /// Keeps room for about so many.
    pub fn shrink_to(&mut self, kept: usize) {
        self.all.shrink_to(kept);
    }
}
