//! Wake events between threads of this process. What others may hold is a [`crosslane_shm::wake`] event.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A fresh one.
pub(crate) fn new() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Wakes whoever polls it.
pub(crate) fn wake(event: BorrowedFd<'_>) {
    // A counter that is full has not been heard yet.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Takes rings that have come; whether there was one.
pub(crate) fn drain(event: BorrowedFd<'_>) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn rings_are_heard_once() {
        let event = new().unwrap();
        assert!(!drain(event.as_fd()));
        wake(event.as_fd());
        wake(event.as_fd());
        assert!(drain(event.as_fd()));
        assert!(!drain(event.as_fd()));
    }
}
