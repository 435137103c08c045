//! A circuit for a program at its limit of descriptors.
//!
//! A circuit comes with descriptors that are needed only until its memory is mapped. If there is no number left for
//! them, a thread with a table of descriptors of its own, nearly empty, takes them: memory is all that it shares.

use crate::kernel::{fd, signals};
use crosslane_client::session::{Answer, Session};
use crosslane_client::{Grant, SessionError};
use crosslane_wire::local::Plain;
use rustix::fd::{AsRawFd, BorrowedFd};

/// Asks for a circuit where there is room for descriptors; a socket of the program's is there, too.
pub fn elsewhere(
    session: &Session,
    socket: Option<BorrowedFd<'_>>,
    ask: impl FnOnce(&Session) -> Answer<Result<Grant, Plain>> + Send,
) -> Answer<Result<Grant, Plain>> {
    let _before = signals::block_all();
    std::thread::scope(|scope| {
        let work = || {
            let own = session.socket().as_raw_fd();
            let kept = [own, socket.map_or(own, |socket| socket.as_raw_fd())];
            fd::keep_only(&kept).map_err(|()| SessionError::Refused("no table of descriptors".to_owned()))?;
            ask(session)
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
