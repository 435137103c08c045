//! The epoll set on which a pump's thread sleeps: its wakeup event, and the wake event of each of its circuits.

use super::TransitId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Token of the wakeup event; no circuit has it.
const WAKEUP: u64 = u64::MAX;
/// Most wakes that are read at a time.
const BATCH: usize = 64;

/// The source of a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// The daemon's thread: there are orders for the pump.
    Wakeup,
    /// A neighbour of a circuit.
    Circuit(TransitId),
}

/// All wake events of one thread, level-triggered.
#[derive(Debug)]
pub(super) struct Poller(OwnedFd);

impl Poller {
    /// The set of a thread without circuits.
    pub(super) fn new(wakeup: BorrowedFd<'_>) -> Result<Self, Errno> {
        let poller = Self(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        poller.add(WAKEUP, wakeup)?;
        Ok(poller)
    }

    /// Adds a circuit's wake event.
    pub(super) fn listen_to(&self, transit: TransitId, receiver: BorrowedFd<'_>) -> Result<(), Errno> {
        self.add(transit.0, receiver)
    }

    /// Removes a circuit's wake event. Neighbours may hold its wakers for longer.
    pub(super) fn forget(&self, receiver: BorrowedFd<'_>) {
        // Fails if the event is not in the set, which is fine.
        let _ = epoll::delete(&self.0, receiver);
    }

    /// Stores the sources of wakes into `rings`; waits for one for `timeout` at most, `None` for ever.
    pub(super) fn hear(&self, timeout: Option<&Timespec>, rings: &mut Vec<Ring>) {
        let mut space = [MaybeUninit::uninit(); BATCH];
        // After an error (a signal) the thread looks once too often, no more.
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
