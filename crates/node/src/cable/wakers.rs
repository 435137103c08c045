//! Wakers on their way over a cable: each was made for one program or pump, and nobody between keeps it.

use super::Cable;
use crosslane_shm::wake::{FarWaker, Waker};
use crosslane_wire::control::{Control, Doorbell};
use crosslane_wire::{ChannelId, WaiterId};
use std::os::fd::AsFd;

/// Wakers that the peer owes us in the present epoch.
#[derive(Debug, Default)]
pub struct Wakers {
    owed: usize,
}

impl Cable {
    /// Asks the peer for a waker of its waiter, which sleeps on `channel`.
    pub fn want_waker(&mut self, channel: ChannelId, waiter: WaiterId) {
        self.wakers.owed += 1;
        self.send(&Control::WantWaker { channel, waiter });
    }

    /// Hands a waker over to the peer; `None` if the port cannot.
    pub fn export_waker(&mut self, waker: &Waker) -> Option<Doorbell> {
        let handle = self.port.export_waker(waker.as_fd(), waker.word()).ok()?;
        Some(Doorbell { handle, word: waker.word() })
    }

    /// The wake event with this word is no more.
    pub fn forget_wakers(&mut self, word: u64) {
        self.port.forget_wakers(word);
    }

    /// Takes the waker that the peer names; `None` as well if we asked for none. Whoever asked may be gone by now: then
    /// it is to be dropped, so that it does not stay at the port.
    pub fn import_waker(&mut self, doorbell: Option<Doorbell>) -> Option<FarWaker> {
        self.wakers.owed = self.wakers.owed.checked_sub(1)?;
        let Doorbell { handle, word } = doorbell?;
        self.port.import_waker(handle, word).ok().flatten()
    }
}
