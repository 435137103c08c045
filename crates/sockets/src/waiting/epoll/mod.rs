//! Epoll sets that hold streams.
//!
//! A stream is not left in the program's kernel set: the carrier socket would always be writable. Each set has a
//! shadow with the interests in streams; it is looked at by `epoll_wait` together with the kernel's part.
//!
//! ```text
//!   program's epoll set (kernel) ----- its own descriptors, as ever
//!        |                                                          events of both, up to maxevents
//!        +-- inner epoll set (ours) -- wake event: rung by far sides
//!                                   +- carrier sockets: FIN, RST, and directions that went back to TCP
//!                                   +- the session with the daemon: its end
//!   shadow (memory) ------------------ interests in streams: readiness comes from the rings
//! ```
//! In a set of many streams those without news are [`cold`]: a look passes over them until a wake names them.
//!
//! The inner set makes the program's set readable when a stream has news, so a program that sleeps in the kernel, or
//! polls the set's descriptor from elsewhere, wakes up. Its events carry [`events::tag`] and are never reported.

mod bits;
mod candidate;
mod carrier;
mod cold;
mod control;
#[allow(unsafe_code, reason = "the program's array, which may end before the program says")]
mod events;
mod interest;
mod order;
mod registry;
mod scan;
mod set;
mod sleepers;
mod waiting;
mod wakeup_set;
mod wakeups;

use crate::descriptors::table::{self, Held, Kind};
use core::ffi::c_int;
use crosslane_shm::lock::Guard;

pub use cold::shared;
pub use control::control;
pub use events::{Call, Events};
pub use set::Prepared;
pub use waiting::wait;
pub use wakeup_set::keep_spare;

/// A socket has just become a stream: it leaves the kernel's part of the sets that hold it.
pub fn upgraded(fd: c_int) {
    if !candidate::any() {
        return;
    }
    let Some(held) = table::stream(fd) else { return };
    for candidate in candidate::take(fd) {
        control::move_over(fd, &held, &candidate);
    }
}

/// A direction of the stream has just gone back to the kernel's TCP: sets that hold it ask the kernel from now on.
pub fn downgraded(held: &Held) {
    registry::all(|set, state| {
        if state.refresh(held.index) {
            set.kick(state);
        }
    });
}

/// The program has shut a side of the stream.
pub fn shut(held: &Held) {
    registry::all(|set, state| {
        if state.shut(held.index) {
            set.kick(state);
        }
    });
}

/// A send on the stream found no room: threads that sleep in a set with an interest in room must ask for a wake.
#[inline]
pub fn blocked(held: &Held) {
    if sleepers::any_sleeper() {
        downgraded(held);
    }
}

/// `fd`, an epoll set or a stream, is about to be closed.
pub fn closed(fd: c_int) {
    match table::look(fd).map(|entry| (entry.kind, entry.index)) {
        Some((Kind::Epoll, index)) => registry::closed(index, fd),
        Some((Kind::Stream, index)) => {
            let Some(held) = table::at(index) else { return };
            registry::all(|set, state| {
                state.stream_closed(fd, &held);
                set.count(state);
            });
        }
        _ => {}
    }
}

/// Before `fork`: waits a bounded time until no thread is in the middle of a change of a set.
pub fn before_fork() -> Vec<Guard<'static>> {
    shared();
    let mut guards = registry::before_fork();
    guards.extend(candidate::before_fork());
    guards
}

/// In the child of a `fork`: it has a copy of the interests, and makes its own wake events.
pub fn forked_child() {
    registry::forked_child();
    candidate::forked_child();
}

/// `new` refers to the same epoll set as `old`.
pub fn duplicated(old: c_int, new: c_int) {
    if let Some(set) = registry::of(old) {
        set.named(new);
    }
}

/// Whether the set holds streams, so that the kernel alone cannot answer for it. For callers that poll the set's descriptor.
#[inline]
pub fn is_shadowed(epfd: c_int) -> bool {
    registry::of(epfd).is_some_and(|set| {
        set.looks();
        set.is_shadowed()
    })
}

/// Looks whether a stream in the set is ready, without taking edges, and asks the others for wakes. For callers that
/// poll the set's descriptor.
pub fn prepare(epfd: c_int) -> Prepared {
    let Some(set) = registry::of(epfd) else { return Prepared::NOTHING };
    set.looks();
    if set.is_shadowed() { set.prepare(epfd) } else { Prepared::NOTHING }
}

/// A wait whose array is not there: the kernel reports that as soon as there is an event.
pub fn nowhere(epfd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    show(epfd);
    kernel()
}

/// Makes the kernel see that a stream in the set is ready.
fn show(epfd: c_int) {
    if prepare(epfd).ready
        && let Some(set) = registry::of(epfd)
    {
        set.with(|state| state.kick());
    }
}

/// The kernel has made the set `epfd`, or could not.
pub fn created(epfd: c_int) -> c_int {
    if epfd >= 0 {
        registry::create(epfd);
    }
    epfd
}
