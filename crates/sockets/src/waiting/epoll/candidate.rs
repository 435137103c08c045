//! TCP sockets that were added to a set before their `connect`, which may make them streams.

use crate::kernel::thread;
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crosslane_shm::lock::{Guard, Locked};
use libc::epoll_event;
use std::collections::BTreeMap;

/// One socket in the kernel's part of one set. It may be gone: the kernel removes closed sockets, and says so when
/// asked.
#[derive(Clone, Copy)]
pub struct Candidate {
    /// The set's descriptor that it was added by.
    pub epfd: c_int,
    /// What the program asked for.
    pub wanted: epoll_event,
}

/// By descriptor.
type Sockets = BTreeMap<c_int, Vec<Candidate>>;

static SOCKETS: Locked<Sockets> = Locked::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any.
#[inline]
pub fn any() -> bool {
    COUNT.load(Relaxed) > 0
}

/// The kernel accepted `fd` into a set, or changed what is wanted of it.
pub fn note(fd: c_int, candidate: Candidate) {
    with(|sockets| {
        let places = sockets.entry(fd).or_default();
        places.retain(|known| known.epfd != candidate.epfd);
        places.push(candidate);
    });
}

/// What is wanted of `fd` was changed, if it is a candidate.
pub fn changed(fd: c_int, candidate: Candidate) {
    if !any() {
        return;
    }
    with(|sockets| {
        for known in sockets.get_mut(&fd).into_iter().flatten().filter(|known| known.epfd == candidate.epfd) {
            *known = candidate;
        }
    });
}

/// `fd` was removed from the set.
pub fn removed(fd: c_int, epfd: c_int) {
    if !any() {
        return;
    }
    with(|sockets| {
        if let Some(places) = sockets.get_mut(&fd) {
            places.retain(|known| known.epfd != epfd);
            if places.is_empty() {
                sockets.remove(&fd);
            }
        }
    });
}

/// A set's descriptor is closed; `other` refers to the same set, if any does.
pub fn set_closed(epfd: c_int, other: Option<c_int>) {
    if !any() {
        return;
    }
    with(|sockets| {
        sockets.retain(|_, places| {
            places.retain_mut(|known| match other {
                _ if known.epfd != epfd => true,
                Some(other) => {
                    known.epfd = other;
                    true
                }
                None => false,
            });
            !places.is_empty()
        });
    });
}

/// Takes out all that is known of `fd`.
pub fn take(fd: c_int) -> Vec<Candidate> {
    with(|sockets| sockets.remove(&fd)).flatten().unwrap_or_default()
}

/// Before `fork`: nobody is in the middle of a change.
pub fn before_fork() -> Option<Guard<'static>> {
    SOCKETS.hold(thread::tid()).ok()
}

/// In the child of `fork` the lock is free.
pub fn forked_child() {
    SOCKETS.reset();
}

fn with<T>(work: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
    let counted = |sockets: &mut Sockets| {
        let done = work(sockets);
        COUNT.store(sockets.len(), Relaxed);
        done
    };
    SOCKETS.with(thread::tid(), counted).ok()
}
