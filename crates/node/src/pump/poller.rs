//! What a pump's thread sleeps on: its wakeup event, and the wake event of each of its circuits.

use super::TransitId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The wakeup event's number; no circuit comes to have it.
const WAKEUP: u64 = u64::MAX;
/// Rings that are heard at a time, at most.
const BATCH: usize = 64;

/// Who rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// The daemon's thread: there are orders.
    Wakeup,
    /// A neighbour of a circuit.
    Circuit(TransitId),
}

/// All wake events of one thread. What rings goes on to ring until it is drained.
#[derive(Debug)]
pub(super) struct Poller(OwnedFd);

impl Poller {
    /// Those of a thread with no circuits.
    pub(super) fn new(wakeup: BorrowedFd<'_>) -> Result<Self, Errno> {
        let poller = Self(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        poller.add(WAKEUP, wakeup)?;
        Ok(poller)
    }

    /// Rings of a circuit are heard from now on.
    pub(super) fn listen_to(&self, transit: TransitId, receiver: BorrowedFd<'_>) -> Result<(), Errno> {
        self.add(transit.0, receiver)
    }

    /// Rings of a circuit are not heard any more. Neighbours may hold its wake event for longer than we.
    pub(super) fn forget(&self, receiver: BorrowedFd<'_>) {
        // One that is not there is forgotten already.
        let _ = epoll::delete(&self.0, receiver);
    }

    /// Those who have rung, into `rings`; waits for them at most this long, `None` for ever.
    pub(super) fn hear(&self, timeout: Option<&Timespec>, rings: &mut Vec<Ring>) {
        let mut space = [MaybeUninit::uninit(); BATCH];
        // An error (a signal) is nothing but a look too many.
        let Ok((events, _)) = epoll::wait(&self.0, &mut space, timeout) else { return };
        let ring = |event: &epoll::Event| match { event.data }.u64() {
            WAKEUP => Ring::Wakeup,
            number => Ring::Circuit(TransitId(number)),
        };
        rings.extend(events.iter().map(ring));
    }

    fn add(&self, number: u64, event: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.0, event, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
    }
}
