//! A table of descriptors that a thread has for itself.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Gives the calling thread a table of its own, with this descriptor and those of lesser numbers. The other threads keep theirs.
///
/// # Errors
/// `ENOSYS` before Linux 5.9; `EPERM` if system calls are filtered.
pub(super) fn take_own(number: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    let next = u32::try_from(number).map_err(|_| Errno::BADF)? + 1;
    close_range(next, u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    // SAFETY: the number was open when the table was copied, and nobody else can close it in this table.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Closes what has a lesser number in the thread's own table, but the three standard ones.
///
/// # Errors
/// As [`take_own`].
pub(super) fn close_below(kept: BorrowedFd<'static>) -> Result<(), Errno> {
    match u32::try_from(kept.as_raw_fd()).map_err(|_| Errno::BADF)? {
        0..=3 => Ok(()),
        number => close_range(3, number - 1, 0),
    }
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only. What it closes is in a table of this thread's own, made by the first call, so it is
    // nobody's.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS))
    }
}
