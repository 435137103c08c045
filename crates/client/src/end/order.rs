//! The locks of the two directions of an end.
//!
//! All processes that hold the end share one lock for each direction. A thread holds it only for a bounded piece of a copy ([`PIECE`]),
//! so that a process that is stopped or killed delays others as little as possible. A call of several pieces also holds a lock that
//! only the threads of its own process see (the *order*), so that the bytes of one call stay together among these threads.
//!
//! ```text
//!   short call   take the shared lock, check that the order is free (one load), work
//!   long call    take the order | shared lock, piece | shared lock, piece | ...
//! ```
//! Other processes may move bytes between two pieces, as they may between two calls.

use super::{CircuitEnd, Failure, note};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use crosslane_shm::lock::{Lock, NotTaken, SharedGuard, SharedLock, forget_busy};
use crosslane_shm::ring::Violation;
use std::time::{Duration, Instant};

/// Most bytes that are copied while a shared lock is held, plus one record or one piece of announced memory.
pub(super) const PIECE: usize = 256 * 1024;

/// How long another process that shares the end may keep a lock from a call that cannot end without it, because the call's memory is
/// announced or offered. After that the call aborts the stream: otherwise the far side could read bytes that the program did not send.
const KEPT: Duration = Duration::from_secs(5);

/// The order among the threads of this process, for each direction.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// For sending.
    pub(super) sending: Lock,
    /// For receiving.
    pub(super) receiving: Lock,
    /// Pid of the process of which a thread waits to end the sending direction, 0 if none: in a child of `fork` it is another one.
    ender: AtomicU32,
}

/// The lock of sending, held until dropped. After that the direction ends, if a thread asked for it meanwhile: fields are
/// dropped in their order.
pub(super) struct Sending<'a> {
    _taken: SharedGuard<'a>,
    _then: EndAsTold<'a>,
}

struct EndAsTold<'a> {
    end: &'a CircuitEnd,
    tid: u32,
}

impl Drop for EndAsTold<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.end.shared.sending.ending.load(SeqCst) != 0 {
            self.end.end_as_told(self.tid);
        }
    }
}

/// Takes the shared lock once no other thread of this process is in the middle of a long call.
#[inline(always)]
fn take<'a>(shared: &'a SharedLock, order: &'a Lock, tid: u32) -> Result<SharedGuard<'a>, NotTaken> {
    let taken = shared.lock(tid)?;
    match order.holder() {
        None => Ok(taken),
        Some(holder) => {
            drop(taken);
            queue_up(shared, (order, holder), tid)
        }
    }
}

#[cold]
fn queue_up<'a>(
    shared: &'a SharedLock,
    (order, holder): (&'a Lock, u32),
    tid: u32,
) -> Result<SharedGuard<'a>, NotTaken> {
    if holder == tid {
        return Err(NotTaken::Reentered);
    }
    // When this call has the order, the long call is over; a later one waits for the shared lock like all others.
    let _order = order.lock_soon(tid)?;
    shared.lock(tid)
}

impl CircuitEnd {
    /// Takes the lock of sending. A caller that has waited too long gets an edge (`EPOLLOUT`) later.
    #[inline(always)]
    pub(super) fn lock_sending(&self, tid: u32) -> Result<Sending<'_>, NotTaken> {
        let sending = &self.shared.sending;
        let taken = take(&sending.lock, &self.orders.sending, tid).inspect_err(|_| note(&sending.blocked))?;
        self.finish_for_others();
        Ok(Sending { _taken: taken, _then: EndAsTold { end: self, tid } })
    }

    /// As [`Self::lock_sending`], for a piece of a call that holds the order of sending.
    pub(super) fn lock_sending_on(&self, tid: u32) -> Result<Sending<'_>, NotTaken> {
        let sending = &self.shared.sending;
        let taken = sending.lock.lock(tid).inspect_err(|_| note(&sending.blocked))?;
        self.finish_for_others();
        Ok(Sending { _taken: taken, _then: EndAsTold { end: self, tid } })
    }

    /// Takes the lock of sending if it is free.
    pub(super) fn try_lock_sending(&self, tid: u32) -> Option<SharedGuard<'_>> {
        let taken = self.shared.sending.lock.try_lock(tid);
        if taken.is_some() {
            self.finish_for_others();
        }
        taken
    }

    /// With the lock of sending: finishes the record of a former holder that was killed in the middle of it.
    #[inline(always)]
    pub(super) fn finish_for_others(&self) {
        if self.shared.producer.is_unfinished() {
            self.finish_record();
        }
    }

    #[cold]
    fn finish_record(&self) {
        let (producer, tx) = (&self.shared.producer, self.generations.tx());
        // The segments of another ring may be unmapped, and whether the record counted there cannot be known.
        let finished = if producer.generation() == tx.number() {
            producer.finish(&tx.segments.outbound)
        } else {
            Err(Violation::state("a record of another ring"))
        };
        let _ = self.guarded(finished.map_err(Failure::from));
    }

    /// As [`Self::lock_sending`], for a call that cannot end without the lock, since the far side may read its memory: see [`KEPT`].
    pub(super) fn lock_sending_surely(&self, tid: u32) -> Result<Sending<'_>, Failure> {
        self.surely(|| self.lock_sending(tid))
    }

    /// The same for receiving, since the far side may write into the call's memory.
    pub(super) fn lock_receiving_surely(&self, tid: u32) -> Result<SharedGuard<'_>, Failure> {
        self.surely(|| self.lock_receiving(tid))
    }

    fn surely<T>(&self, take: impl Fn() -> Result<T, NotTaken>) -> Result<T, Failure> {
        let mut since = None;
        loop {
            match take() {
                Err(NotTaken::Busy) => forget_busy(),
                outcome => return outcome.map_err(Failure::from),
            }
            if since.get_or_insert_with(Instant::now).elapsed() > KEPT {
                self.give_up("a process that shares the stream keeps it locked");
            }
            if self.shared.status.reset.load(Relaxed) != 0 {
                return Err(Failure::Reset);
            }
        }
    }

    /// Takes the lock of receiving. A caller that has waited too long gets an edge (`EPOLLIN`) later.
    #[inline(always)]
    pub(super) fn lock_receiving(&self, tid: u32) -> Result<SharedGuard<'_>, NotTaken> {
        let receiving = &self.shared.receiving;
        take(&receiving.lock, &self.orders.receiving, tid).inspect_err(|_| note(&receiving.missed))
    }

    /// Whether the program has ended the sending direction, and the record that says so is not sent yet.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.shared.sending.ending.load(Relaxed) != 0
    }

    /// Makes the caller the one thread of process `pid` that waits to end the direction, until [`Self::resign_as_ender`].
    /// `false` if there is such a thread already.
    pub fn become_ender(&self, pid: u32) -> bool {
        self.orders.ender.swap(pid, Relaxed) != pid
    }

    /// The caller does not wait any more.
    pub fn resign_as_ender(&self) {
        self.orders.ender.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_has_a_short_call_wait_for_a_long_one_of_its_process() {
        let (shared, order) = (SharedLock::default(), Lock::new());
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let long = order.lock(tid + 1).unwrap();
        assert_eq!(take(&shared, &order, tid).err(), Some(NotTaken::Busy));
        drop(long);
        drop(take(&shared, &order, tid).unwrap());
        // As a signal handler between two pieces would.
        let _long = order.lock(tid).unwrap();
        assert_eq!(take(&shared, &order, tid).err(), Some(NotTaken::Reentered));
        assert!(shared.try_lock(tid).is_some());
    }
}
