//! Buffers of programs on their way over a cable.

use super::Cable;
use crate::buffer::Opened;
use crosslane_wire::control::Handed;
use std::os::fd::{AsFd, OwnedFd};

impl Cable {
    /// The peer has answered; `false` if it was not asked.
    pub fn was_asked_buffer(&mut self) -> bool {
        let was = self.asked > 0;
        self.asked -= usize::from(was);
        was
    }

    /// Hands a buffer over to the peer; `None` if the port cannot.
    pub fn hand_over(&mut self, opened: &Opened) -> Option<Handed> {
        let Opened { len, reach, .. } = *opened;
        let handle = self.port.hand_over(opened.memory.as_fd(), len, reach).ok()?;
        Some(Handed { handle, len, reach })
    }

    /// The buffer that the peer handed over.
    pub fn take_over(&mut self, handed: Handed) -> Option<OwnedFd> {
        self.port.take_over(handed.handle, handed.len, handed.reach).ok()
    }
}
