//! What the engine's threads need of one end: its rings, mapped, and the program's state of them.

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
    /// The segment from which the program receives.
    pub(crate) inbound: Inbound,
    /// The segment into which the program sends.
    pub(crate) outbound: Outbound,
    /// Most bytes of each ring.
    pub(crate) ring_max: u64,
    /// Mark key of the ring for receiving.
    pub(crate) rx_key: u64,
    /// Mark key of the ring for sending.
    pub(crate) tx_key: u64,
    /// The state that the end's holders share.
    pub(crate) state: EngineState,
    /// The end's status word, as programs see it in their status pages.
    pub(crate) status: AtomicU32,
    /// The charge to the program's user for the mappings.
    pub(crate) _mappings: Charge,
}

impl Work {
    /// A checked copy of the state of sending.
    pub(super) fn producer(&self) -> Option<Producer> {
        self.state.rings().0.checked(self.generation, self.ring_max, self.tx_key)
    }

    /// A checked copy of the state of receiving.
    pub(super) fn consumer(&self) -> Option<Consumer> {
        self.state.rings().1.checked(self.generation, self.ring_max, self.rx_key)
    }

    /// The program's state itself.
    pub(super) fn rings(&self) -> (&Producer, &Consumer) {
        self.state.rings()
    }

    /// Whether the stream uses these rings, and the daemon is not counting what arrived. Ask this after a record's mark was seen.
    #[inline]
    pub(super) fn lives(&self) -> bool {
        self.status.load(SeqCst) == status_word(self.generation, STATUS_ALIVE)
    }

    /// Sets the end's status word.
    pub(crate) fn set(&self, status: u32) {
        self.status.store(status, SeqCst);
    }

    /// The end is removed.
    pub(crate) fn end(&self) {
        self.status.store(status_word(self.generation, STATUS_CABLE), Relaxed);
    }
}
