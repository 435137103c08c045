//! What a program has said of a socket that is no stream yet, and that the kernel does not keep.

use crate::descriptors::table;
use core::ffi::c_int;
use crosslane_stream::Transfer;

/// What a program has said of a socket; packed, 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// How to send.
    pub transfer: Option<Transfer>,
    /// Whether the daemon's engine copies.
    pub offload: Option<bool>,
    /// Whether calls that receive, and those that send, wait for nothing ([`crate::calls::io_timeouts::Timeout`]).
    pub at_once: [bool; 2],
}

impl Choice {
    /// The choices for `fd`.
    pub fn of(fd: c_int) -> Self {
        Self::unpack(table::choice(fd))
    }

    /// Keeps the choices until `fd` is closed.
    pub fn keep(self, fd: c_int) {
        table::choose(fd, self.pack());
    }

    fn pack(self) -> u32 {
        let transfer = self.transfer.map_or(0, |transfer| transfer as u32 + 1);
        let offload = self.offload.map_or(0, |on| u32::from(on) + 1);
        let [receiving, sending] = self.at_once.map(u32::from);
        sending << 17 | receiving << 16 | offload << 8 | transfer
    }

    fn unpack(word: u32) -> Self {
        let offload = (word >> 8 & 0xff).checked_sub(1).map(|on| on != 0);
        let at_once = [word >> 16 & 1 != 0, word >> 17 & 1 != 0];
        Self { transfer: (word & 0xff).checked_sub(1).and_then(Transfer::from_number), offload, at_once }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_survive_packing() {
        for transfer in Transfer::ALL.map(Some).into_iter().chain([None]) {
            for (offload, at) in [None, Some(false), Some(true)].into_iter().zip(0..) {
                let choice = Choice { transfer, offload, at_once: [at == 1, at == 2] };
                assert_eq!(Choice::unpack(choice.pack()), choice);
            }
        }
        assert_eq!(Choice::default().pack(), 0);
    }
}
