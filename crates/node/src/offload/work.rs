//! What the engine's threads know of one end: its rings, mapped, and where its program keeps their state.

use crate::quota::Charge;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use crosslane_shm::ring::{Consumer, Producer};
use crosslane_shm::state::EngineState;
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::local::{STATUS_ALIVE, STATUS_CABLE, status_word};

/// The rings of an end in one generation.
#[derive(Debug)]
pub(crate) struct Work {
    /// Number of the generation.
    pub(crate) generation: u32,
    /// What is received.
    pub(crate) inbound: Inbound,
    /// Where is sent.
    pub(crate) outbound: Outbound,
    /// Bytes of each ring at most.
    pub(crate) ring_max: u64,
    /// Mark key of the ring that is read.
    pub(crate) rx_key: u64,
    /// Mark key of the ring that is written.
    pub(crate) tx_key: u64,
    /// What the end's holders share.
    pub(crate) state: EngineState,
    /// The end's word as programs see it in their status pages.
    pub(crate) status: AtomicU32,
    /// What the program's user pays for the mappings.
    pub(crate) _mappings: Charge,
}

impl Work {
    /// The state of sending, copied and checked.
    pub(super) fn producer(&self) -> Option<Producer> {
        self.state.rings().0.checked(self.generation, self.ring_max, self.tx_key)
    }

    /// The state of receiving, copied and checked.
    pub(super) fn consumer(&self) -> Option<Consumer> {
        self.state.rings().1.checked(self.generation, self.ring_max, self.rx_key)
    }

    /// Where the program keeps the state.
    pub(super) fn rings(&self) -> (&Producer, &Consumer) {
        self.state.rings()
    }

    /// Whether the stream goes by these rings, and what arrived is not being counted. To be asked after a record's mark
    /// was seen.
    #[inline]
    pub(super) fn lives(&self) -> bool {
        self.status.load(SeqCst) == status_word(self.generation, STATUS_ALIVE)
    }

    /// How the end stands now.
    pub(crate) fn set(&self, status: u32) {
        self.status.store(status, SeqCst);
    }

    /// The end is gone.
    pub(crate) fn end(&self) {
        self.status.store(status_word(self.generation, STATUS_CABLE), Relaxed);
    }
}
