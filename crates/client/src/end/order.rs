//! The locks of the two directions of an end.
//!
//! The one that all processes share is held for a bounded piece of a copy only ([`PIECE`]), so that a process that is stopped or
//! killed keeps others from as little as can be. A call of several pieces keeps the threads of its own process away meanwhile
//! by a lock that only these see, so that what a thread sends in one call stays together where it would have before.
//!
//! ```text
//!   short call   shared lock, look at the order (one load), work
//!   long call    order | shared lock, piece | shared lock, piece | ...
//! ```
//! Other processes may come in between two pieces, as they may between two calls.

use super::{End, note};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use crosslane_shm::lock::{Guard, Lock, NotTaken, SharedGuard, SharedLock};

/// Most bytes that are copied with a shared lock held, and one record, or one piece of announced memory, more.
pub(super) const PIECE: usize = 256 * 1024;

/// The order among the threads of this process, of each direction.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Of sending.
    pub(super) sending: Lock,
    /// Of receiving.
    pub(super) receiving: Lock,
}

/// A direction's lock, held until dropped; and the order, by whoever had to queue up.
pub(super) struct Taken<'a> {
    _shared: SharedGuard<'a>,
    _order: Option<Guard<'a>>,
}

/// The lock of sending, held until dropped. Then the direction ends, if somebody wanted that meanwhile.
pub(super) struct Sending<'a> {
    taken: Option<Taken<'a>>,
    end: &'a End,
    tid: u32,
}

impl Drop for Sending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.taken = None;
        if self.end.shared.sending.ending.load(SeqCst) != 0 {
            self.end.end_as_told(self.tid);
        }
    }
}

/// Takes a lock when no other thread of this process is in the middle of a long call.
#[inline]
fn take<'a>(shared: &'a SharedLock, order: &'a Lock, tid: u32) -> Result<Taken<'a>, NotTaken> {
    let taken = shared.lock(tid)?;
    match order.holder() {
        None => Ok(Taken { _shared: taken, _order: None }),
        Some(holder) => {
            drop(taken);
            if holder == tid {
                return Err(NotTaken::Reentered);
            }
            queue_up(shared, order, tid)
        }
    }
}

#[cold]
fn queue_up<'a>(shared: &'a SharedLock, order: &'a Lock, tid: u32) -> Result<Taken<'a>, NotTaken> {
    let order = order.lock_soon(tid)?;
    Ok(Taken { _shared: shared.lock(tid)?, _order: Some(order) })
}

impl End {
    /// Takes the lock of sending. Who has waited too long for it is told of an edge by `EPOLLOUT`.
    #[inline]
    pub(super) fn lock_sending(&self, tid: u32) -> Result<Sending<'_>, NotTaken> {
        let sending = &self.shared.sending;
        let taken = take(&sending.lock, &self.orders.sending, tid).inspect_err(|_| note(&sending.blocked))?;
        Ok(Sending { taken: Some(taken), end: self, tid })
    }

    /// The same for a piece of a call that has the order of sending.
    pub(super) fn lock_sending_on(&self, tid: u32) -> Result<Sending<'_>, NotTaken> {
        let sending = &self.shared.sending;
        let shared = sending.lock.lock(tid).inspect_err(|_| note(&sending.blocked))?;
        Ok(Sending { taken: Some(Taken { _shared: shared, _order: None }), end: self, tid })
    }

    /// Takes the lock of receiving. Who has waited too long for it is told of an edge by `EPOLLIN`.
    #[inline]
    pub(super) fn lock_receiving(&self, tid: u32) -> Result<Taken<'_>, NotTaken> {
        let receiving = &self.shared.receiving;
        take(&receiving.lock, &self.orders.receiving, tid).inspect_err(|_| note(&receiving.missed))
    }

    /// Whether the direction that is sent is to end, and does not say so yet.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.shared.sending.ending.load(Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_call_waits_for_a_long_one_of_its_process_though_the_shared_lock_is_free() {
        let (shared, order) = (SharedLock::default(), Lock::new());
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let long = order.lock(tid + 1).unwrap();
        assert_eq!(take(&shared, &order, tid).err(), Some(NotTaken::Busy));
        drop(long);
        drop(take(&shared, &order, tid).unwrap());
        // A signal handler in between two pieces.
        let _long = order.lock(tid).unwrap();
        assert_eq!(take(&shared, &order, tid).err(), Some(NotTaken::Reentered));
        assert!(shared.try_lock(tid).is_some());
    }
}
