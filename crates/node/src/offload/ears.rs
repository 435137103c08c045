//! What an engine's thread sleeps on: the daemon's own door, and one of each program.

use crate::eventfd;
use crate::session::SessionId;
use rustix::event::epoll;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The daemon's door; no session comes to have this number.
const OWN: u64 = u64::MAX;
/// Rings that are heard at a time, at most.
const BATCH: usize = 64;

/// All doors of one thread.
#[derive(Debug)]
pub(super) struct Ears {
    epoll: OwnedFd,
    own: Arc<OwnedFd>,
}

impl Ears {
    /// Those of a thread that works for nobody.
    pub(super) fn new(own: Arc<OwnedFd>) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &own, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)?;
        Ok(Self { epoll, own })
    }

    /// A program's door is heard from now on; `false` if that cannot be. Each ring is heard once, so nobody needs to read
    /// what the program may have filled or made to block.
    pub(super) fn listen_to(&self, session: SessionId, door: BorrowedFd<'_>) -> bool {
        let data = epoll::EventData::new_u64(session.0);
        epoll::add(&self.epoll, door, data, epoll::EventFlags::IN | epoll::EventFlags::ET).is_ok()
    }

    /// A program's door is not heard any more.
    pub(super) fn forget(&self, door: BorrowedFd<'_>) {
        // One that is not there is forgotten already.
        let _ = epoll::delete(&self.epoll, door);
    }

    /// Sleeps until somebody rings.
    pub(super) fn sleep(&self) {
        let mut space = [MaybeUninit::uninit(); BATCH];
        // An error (a signal) is nothing but a look too many.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut space, None) else { return };
        if events.iter().any(|event| { event.data }.u64() == OWN) {
            eventfd::drain(self.own.as_fd());
        }
    }
}
