//! A circuit for a program at its limit of descriptors.
//!
//! A circuit comes with descriptors that are needed only until its memory is mapped. If there is no number left for
//! them, a thread with a table of descriptors of its own, nearly empty, takes them: memory is all that it shares.

use crate::kernel::real;
use core::ffi::{c_int, c_uint};
use crosslane_client::session::Session;
use crosslane_client::{Grant, SessionError};
use crosslane_wire::local::{Plain, Request};
use rustix::fd::{AsRawFd, BorrowedFd, RawFd};

/// Asks once more for the circuit that was granted for `socket`.
pub fn ask(
    session: &Session,
    request: &Request,
    socket: BorrowedFd<'_>,
) -> Result<Result<Grant, Plain>, SessionError> {
    let before = block_signals();
    let outcome = std::thread::scope(|scope| {
        let work = || {
            leave_table(&[session.socket().as_raw_fd(), socket.as_raw_fd()])?;
            session.circuit(request, socket)
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        let thread = thread.map_err(|_| SessionError::Refused("no thread".to_owned()))?;
        thread.join().unwrap_or(Err(SessionError::Unexpected("a thread has failed")))
    });
    // SAFETY: a mask that the kernel filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    outcome
}

/// Runs `work` on a thread of its own, where no handler of the program's runs. `false`: there can be none.
pub fn spawn_quietly(work: impl FnOnce() + Send + 'static) -> bool {
    let before = block_signals();
    let begun = std::thread::Builder::new().spawn(work).is_ok();
    // SAFETY: a mask that the kernel filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    begun
}

/// No handler of the program's may run in a thread that it does not know. Returns the mask from before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: all-zero bytes are valid masks; both are filled by the calls.
    unsafe {
        let (mut all, mut before) = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Gives this thread a table of descriptors of its own with only these in it.
fn leave_table(keep: &[RawFd; 2]) -> Result<(), SessionError> {
    // SAFETY: plain number.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(SessionError::Refused("no table of descriptors".to_owned()));
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
