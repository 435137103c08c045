//! `TCP_DEFER_ACCEPT` of listeners whose connections become streams.
//!
//! The kernel keeps a connection back from such a listener until its first data comes. A stream's data never comes by
//! TCP, so the kernel would keep it back for ever (Apache sets the option by default, nginx as `deferred`). On our
//! listeners the option is lifted, and remembered for programs that ask: `accept` returns before the data is there, as
//! it does with the option once its time is over. When there is no daemon any more, and so no stream, it is set again.

use crate::descriptors::table::{self, Kind};
use crate::kernel::{sockopt, thread};
use core::ffi::c_int;
use crosslane_shm::lock::Locked;
use std::collections::BTreeMap;

/// For each listener, by its cookie: what the program has set, in seconds, and one of its descriptors.
static LIFTED: Locked<BTreeMap<u64, (c_int, c_int)>> = Locked::new(BTreeMap::new());

/// Lifts the option of `fd`, a listener of ours or one whose option was just set: the kernel holds nothing back any more.
pub fn lift(fd: c_int) {
    let Some(seconds) = sockopt::number(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) else { return };
    let Some(cookie) = sockopt::cookie(fd) else { return };
    if seconds != 0 && sockopt::set_number(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 0) {
        with(|lifted| lifted.insert(cookie, (seconds, fd)));
    }
}

/// After the kernel accepted an option of `fd`.
pub fn changed(fd: c_int, level: c_int, name: c_int) {
    if level == libc::IPPROTO_TCP && name == libc::TCP_DEFER_ACCEPT && is_listener(fd) {
        with(|lifted| sockopt::cookie(fd).and_then(|cookie| lifted.remove(&cookie)));
        lift(fd);
    }
}

/// The value that the program has set, in seconds, as the kernel rounded it; `None` if the kernel itself has it.
pub fn programs_value(fd: c_int) -> Option<c_int> {
    if !is_listener(fd) {
        return None;
    }
    let cookie = sockopt::cookie(fd)?;
    with(|lifted| lifted.get(&cookie).map(|known| known.0)).flatten()
}

/// The descriptor `fd` of a listener is about to be closed.
pub fn closed(fd: c_int) {
    if with(|lifted| lifted.is_empty()) != Some(false) {
        return;
    }
    let Some(own) = sockopt::cookie(fd) else { return };
    let is_copy = |&(other, entry): &(c_int, table::Entry)| {
        other != fd && entry.kind == Kind::Listener && sockopt::cookie(other) == Some(own)
    };
    let copy = table::entries().find(is_copy).map(|(copy, _)| copy);
    with(|lifted| match (copy, lifted.get_mut(&own)) {
        (Some(copy), Some(known)) => known.1 = copy,
        _ => drop(lifted.remove(&own)),
    });
}

/// The daemon is gone: until another one knows the listeners, all connections are TCP, and the kernel holds them back again.
pub fn give_back() {
    for (own, (seconds, fd)) in with(core::mem::take).unwrap_or_default() {
        if sockopt::cookie(fd) == Some(own) {
            sockopt::set_number(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds);
        }
    }
}

/// In the child of `fork` the lock is free.
pub fn forked_child() {
    LIFTED.reset();
}

fn is_listener(fd: c_int) -> bool {
    table::look(fd).is_some_and(|entry| entry.kind == Kind::Listener)
}

fn with<T>(work: impl FnOnce(&mut BTreeMap<u64, (c_int, c_int)>) -> T) -> Option<T> {
    LIFTED.with(thread::tid(), work).ok()
}
