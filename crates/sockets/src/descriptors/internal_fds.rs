//! Our own descriptors: few, high-numbered, close-on-exec, and out of the program's reach.

use crate::descriptors::table::{self, Kind};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::process::Resource;

/// Numbers of our descriptors. They are few, so the table is bounded.
static ALL: [AtomicI32; MAX_OWN] = [const { AtomicI32::new(-1) }; MAX_OWN];
/// Most descriptors that are kept from the program's `close_range`.
const MAX_OWN: usize = 1024;

/// Moves a descriptor to a high number and hides it from the program. The program cannot close it any more; [`close`] can.
pub fn hide(fd: OwnedFd) -> RawFd {
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, base());
    let fd = moved.unwrap_or(fd).into_raw_fd();
    table::enter(fd, Kind::Own, 0);
    let _ = ALL.iter().any(|word| word.compare_exchange(-1, fd, Relaxed, Relaxed).is_ok());
    fd
}

/// Closes one of our own descriptors.
pub fn close(fd: RawFd) {
    table::leave(fd);
    for word in &ALL {
        let _ = word.compare_exchange(fd, -1, Relaxed, Relaxed);
    }
    // SAFETY: `hide` gave it to us and nobody else closes it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Our descriptor `fd`, for a caller that needs an owned one; only [`close`] closes it.
pub fn lend(fd: RawFd) -> ManuallyDrop<OwnedFd> {
    // SAFETY: `hide` gave it to us; nobody closes it but `close`.
    ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether `fd` is one of ours.
pub fn is(fd: RawFd) -> bool {
    table::look(fd).is_some_and(|entry| entry.kind == Kind::Own)
}

/// All of them, in order.
pub fn all() -> Vec<RawFd> {
    let mut all: Vec<_> = ALL.iter().map(|word| word.load(Relaxed)).filter(|&fd| fd >= 0).collect();
    all.sort_unstable();
    all
}

/// Highest number that ours start from: the kernel keeps and, at each `fork`, copies a table up to the highest one.
const HIGH: u64 = 1 << 15;

/// Lowest number for our descriptors: in the upper part of what the limit allows.
fn base() -> RawFd {
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    let limit = limit.min(HIGH);
    let reserve = (limit / 4).min(4096);
    RawFd::try_from(limit - reserve).unwrap_or(0)
}
