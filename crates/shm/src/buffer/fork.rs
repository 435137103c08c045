//! `fork`: a child has its own copy of the memory that `malloc` returned.
//!
//! A shared mapping stays shared after `fork`. So before it every such buffer becomes a *private* mapping of its memfd,
//! which no process writes from then on: parent and child each copy the pages that they change, as with all private
//! memory. Far programs that have the memfd mapped keep the bytes as they were; this program exports the buffer no more.

use super::slots::{self, ALL, Slot, State};
use super::{Kind, announce_end, close, drop_cached};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Threads in `fork`.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Threads that make a buffer.
static MAKING: AtomicU32 = AtomicU32::new(0);
/// How long `fork` waits for those threads. If it takes longer, `fork` was called in a signal handler that interrupted one.
const FORK_TIMEOUT: Duration = Duration::from_millis(50);

/// Held by a thread that makes a buffer, while no thread forks.
pub(super) struct Gate;

impl Gate {
    pub(super) fn enter() -> Result<Self, Errno> {
        MAKING.fetch_add(1, SeqCst);
        let gate = Self;
        if FORKING.load(SeqCst) == 0 { Ok(gate) } else { Err(Errno::AGAIN) }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        MAKING.fetch_sub(1, SeqCst);
    }
}

/// Before `fork`: makes the buffers of `malloc` private; no new one is made until the `fork` is done.
pub fn before_fork() {
    FORKING.fetch_add(1, SeqCst);
    if !slots::in_use() {
        return;
    }
    let since = Instant::now();
    while MAKING.load(SeqCst) > 0 && since.elapsed() < FORK_TIMEOUT {
        std::thread::yield_now();
    }
    for slot in &ALL {
        if slot.kind() == Kind::Malloc && slot.change(State::Live, State::Busy) {
            freeze(slot);
        } else if slot.change(State::Cached, State::Busy) {
            drop_cached(slot);
        }
    }
}

/// In the parent, when the `fork` is done or has failed.
pub fn after_fork_in_parent() {
    FORKING.fetch_sub(1, SeqCst);
}

/// Makes the buffers of `malloc` private without a `fork`.
pub fn make_private() {
    before_fork();
    after_fork_in_parent();
}

/// In the child, which has one thread: frees the buffers that other threads of the parent were about to free.
pub fn after_fork_in_child() {
    for slot in &ALL {
        // The lines were held by threads of the parent.
        slot.lines.clear();
        match slot.state() {
            State::Busy => {
                slot.vacate();
                slot.set(State::Lost);
            }
            // The buffer could not be made private before the `fork`.
            State::Live if slot.kind() == Kind::Malloc && slot.copy_out().is_ok() => {
                close(slot);
                slot.set(State::Frozen);
            }
            // The buffer was freed after `before_fork` had looked at it, and its memory is the parent's to use again.
            State::Cached => drop_cached(slot),
            _ => {}
        }
    }
    MAKING.store(0, SeqCst);
    FORKING.store(0, SeqCst);
}

fn freeze(slot: &'static Slot) {
    announce_end(slot, State::Live);
    match slot.make_private() {
        Ok(()) => {
            close(slot);
            slot.set(State::Frozen);
        }
        Err(_) => slot.set(State::Live),
    }
}
