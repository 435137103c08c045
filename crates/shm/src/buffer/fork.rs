//! `fork`: a child has its own copy of what `malloc` gave out.
//!
//! A shared mapping stays shared after `fork`. So before it every such buffer becomes a *private* mapping of its memfd,
//! which nobody writes from then on (no other process ever could): parent and child each copy the pages that they change, as
//! with all memory. What far programs read there stays as it was; nothing new is sent from there.

use super::slots::{self, ALL, Slot, State};
use super::{Kind, announce_end, close, drop_cached};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Threads in `fork`.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Threads that make a buffer.
static MAKING: AtomicU32 = AtomicU32::new(0);
/// How long `fork` waits for those. Longer than that is a signal handler that came in between.
const FORK_TIMEOUT: Duration = Duration::from_millis(50);

/// A thread that makes a buffer, while nobody forks.
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

/// Before `fork`: what `malloc` gave out is private from now on, and nothing new is until the `fork` is done.
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

/// The `fork` is done, or failed: we are the parent.
pub fn after_fork_in_parent() {
    FORKING.fetch_sub(1, SeqCst);
}

/// What `malloc` gave out is private from now on, though nobody forks.
pub fn make_private() {
    before_fork();
    after_fork_in_parent();
}

/// We are the child, with one thread: what others were about to free is freed.
pub fn after_fork_in_child() {
    for slot in &ALL {
        // Those who held one are threads of the parent.
        slot.lines.clear();
        match slot.state() {
            State::Busy => {
                slot.vacate();
                slot.set(State::Lost);
            }
            // It could not be made private before.
            State::Live if slot.kind() == Kind::Malloc && slot.copy_out().is_ok() => {
                close(slot);
                slot.set(State::Frozen);
            }
            // It was freed after we had looked, and is the parent's to use again.
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
