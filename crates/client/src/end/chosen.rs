//! The way in which the stream is to move its data, who chose it, and which ways it took.

use super::CircuitEnd;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::state::{Chooser, ModesSnapshot};
use crosslane_stream::Transfer;

/// Bytes that a stream has moved, by way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Payload sent by the stream, bytes.
    pub tx_bytes: u64,
    /// Payload received by the stream, bytes.
    pub rx_bytes: u64,
    /// Ways by which bytes were sent.
    pub sent: ModesSnapshot,
    /// Ways by which bytes were received.
    pub received: ModesSnapshot,
    /// Wakes of far waiters.
    pub wakes: u64,
    /// Times that a thread slept for this end.
    pub sleeps: u64,
}

impl Statistics {
    /// The sums of both.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            tx_bytes: self.tx_bytes.wrapping_add(other.tx_bytes),
            rx_bytes: self.rx_bytes.wrapping_add(other.rx_bytes),
            sent: self.sent.and(other.sent),
            received: self.received.and(other.received),
            wakes: self.wakes.wrapping_add(other.wakes),
            sleeps: self.sleeps.wrapping_add(other.sleeps),
        }
    }
}

impl CircuitEnd {
    /// How the program's data is to be sent.
    #[inline]
    pub fn transfer(&self) -> Transfer {
        Transfer::from_number(self.shared.status.transfer.load(Relaxed)).unwrap_or_default()
    }

    /// Sets the way for all later sends, in all processes that hold the end.
    pub fn set_transfer(&self, transfer: Transfer, by: Chooser) {
        self.shared.status.transfer.store(transfer as u32, Relaxed);
        self.shared.status.transfer_by.store(by as u32, Relaxed);
    }

    /// Whether the daemon's engine is to copy.
    #[inline]
    pub fn offload(&self) -> bool {
        self.shared.status.offload.load(Relaxed) != 0
    }

    /// Sets whether the daemon's engine copies from now on, for all processes that hold the end.
    pub fn set_offload(&self, on: bool, by: Chooser) {
        self.shared.status.offload.store(u32::from(on), Relaxed);
        self.shared.status.offload_by.store(by as u32, Relaxed);
    }

    /// The counters at this time. Each is right at some moment, but not all at the same one.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.shared.counters;
        Statistics {
            tx_bytes: counters.tx_bytes.load(Relaxed),
            rx_bytes: counters.rx_bytes.load(Relaxed),
            sent: self.shared.sent.snapshot(),
            received: self.shared.received.snapshot(),
            wakes: counters.wakes.load(Relaxed),
            sleeps: counters.sleeps.load(Relaxed),
        }
    }
}
