//! Descriptors by number, as C has them.

use crate::kernel::real;
use core::ffi::{c_int, c_uint};
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};

/// The descriptor `fd` for a call. It is a program's, which may close it meanwhile, as any C program may: then the kernel says so,
/// or the call is about what has the number by then; or it is one of ours, which we close when nobody uses it any more.
#[inline]
pub fn borrow(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: see above; nothing but calls is made with it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Another descriptor of what `fd` is, closed by `exec`.
pub fn duplicate(fd: c_int) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(borrow(fd), 0)
}

/// Gives this thread its own table of descriptors with only these in it.
///
/// # Errors
/// There can be none.
pub fn keep_only(keep: &[RawFd; 2]) -> Result<(), ()> {
    // SAFETY: plain number.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(());
    }
    let [a, b] = keep.map(c_int::unsigned_abs);
    let (low, high) = (a.min(b), a.max(b));
    for (first, behind) in [(0, low), (low + 1, high), (high + 1, c_uint::MAX)] {
        if first < behind {
            // SAFETY: plain numbers; the table is this thread's alone.
            unsafe { real::close_range(first, behind - 1, 0) };
        }
    }
    Ok(())
}
