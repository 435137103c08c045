//! Wake events that others may hold too, and may have made to block.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use std::os::fd::{BorrowedFd, OwnedFd};

/// A fresh one.
pub(crate) fn new() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Adds one, unless the counter is full: then its owner is awake anyway. Never waits.
pub(crate) fn ring(bell: BorrowedFd<'_>) {
    if let Ok(flags) = fcntl_getfl(bell)
        && !flags.contains(OFlags::NONBLOCK)
    {
        let _ = fcntl_setfl(bell, flags | OFlags::NONBLOCK);
    }
    let mut ready = [PollFd::from_borrowed_fd(bell, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) == Ok(1) {
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

/// Sets the counter to 0; whether it was rung. Never waits.
pub(crate) fn drain(bell: BorrowedFd<'_>) -> bool {
    let mut count = [0; 8];
    // An event has no place to read from: all ones mean that.
    preadv2(bell, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_ring_is_heard_once_and_nobody_waits() {
        let bell = new().unwrap();
        assert!(!drain(bell.as_fd()));
        ring(bell.as_fd());
        ring(bell.as_fd());
        assert!(drain(bell.as_fd()));
        assert!(!drain(bell.as_fd()));
    }

    #[test]
    fn one_that_was_made_to_block_and_filled_up_holds_nobody_up() {
        let bell = new().unwrap();
        let flags = fcntl_getfl(&bell).unwrap();
        fcntl_setfl(&bell, flags - OFlags::NONBLOCK).unwrap();
        assert!(!drain(bell.as_fd()));
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        ring(bell.as_fd());
        assert!(drain(bell.as_fd()));
    }
}
