//! A circuit for a program at its limit of descriptors.
//!
//! A circuit comes with descriptors that are needed only until its memory is mapped. If there is no number left for
//! them, a thread with a table of descriptors of its own, nearly empty, takes them: memory is all that it shares.

use crate::kernel::{fd, signals};
use crosslane_client::session::Session;
use crosslane_client::{Grant, SessionError};
use crosslane_wire::local::{Plain, Request};
use rustix::fd::{AsRawFd, BorrowedFd};

/// Asks once more for the circuit that was granted for `socket`.
pub fn ask(
    session: &Session,
    request: &Request,
    socket: BorrowedFd<'_>,
) -> Result<Result<Grant, Plain>, SessionError> {
    let _before = signals::block_all();
    std::thread::scope(|scope| {
        let work = || {
            fd::keep_only(&[session.socket().as_raw_fd(), socket.as_raw_fd()])
                .map_err(|()| SessionError::Refused("no table of descriptors".to_owned()))?;
            session.circuit(request, socket)
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        let thread = thread.map_err(|_| SessionError::Refused("no thread".to_owned()))?;
        thread.join().unwrap_or(Err(SessionError::Unexpected("a thread has failed")))
    })
}

/// Runs `work` on a thread of its own, where no handler of the program's runs. `false`: there can be none.
pub fn spawn_quietly(work: impl FnOnce() + Send + 'static) -> bool {
    let _before = signals::block_all();
    std::thread::Builder::new().spawn(work).is_ok()
}
