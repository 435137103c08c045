//! Buffers that both ends of a stream map: those that this end has exported, and those of the far end.

use super::{BufferError, CircuitEnd};
use crate::buffers::far::{self, User};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use crosslane_shm::FarBuffer;
use crosslane_shm::buffer::Located;
use crosslane_wire::{BufferId, Reach};
use std::sync::Arc;

/// Exported buffers that an end remembers; the daemon remembers more.
const TOLD: usize = 32;
/// Maximum number of failed buffer lookups for each stream. It bounds the time that a hostile far end costs by naming buffers
/// that do not exist.
const FAILED_LOOKUPS_MAX: u32 = 16;

/// What an end knows about buffers.
#[derive(Debug)]
pub(super) struct Exchange {
    told: [AtomicU64; TOLD],
    next: AtomicUsize,
    unfound: AtomicU32,
    user: User,
}

impl Exchange {
    pub(super) fn new() -> Self {
        Self {
            told: [const { AtomicU64::new(0) }; TOLD],
            next: AtomicUsize::new(0),
            unfound: AtomicU32::new(0),
            user: User::new(),
        }
    }

    fn is_told(&self, buffer: BufferId) -> bool {
        self.told.iter().any(|told| told.load(Relaxed) == buffer.0)
    }

    fn remember(&self, buffer: BufferId) {
        let place = self.next.fetch_add(1, Relaxed) % TOLD;
        self.told[place].store(buffer.0, Relaxed);
    }

    fn forget(&self, buffer: BufferId) {
        for told in &self.told {
            let _ = told.compare_exchange(buffer.0, 0, Relaxed, Relaxed);
        }
    }
}

impl CircuitEnd {
    /// Lets the far end map the buffer that was located, unless it may already: one request to the daemon for each buffer.
    ///
    /// # Errors
    /// Not possible now, or not on this circuit: use the ring.
    pub fn export_buffer(&self, located: &Located) -> Result<(), BufferError> {
        if self.exchange.is_told(located.id) {
            return Ok(());
        }
        if !self.allows_zero_copy() {
            return Err(BufferError::Never);
        }
        self.daemon.export_buffer(self.circuit, self.token, located)?;
        self.exchange.remember(located.id);
        Ok(())
    }

    /// Forgets that a buffer was exported, since the far end does not find it: [`Self::export_buffer`] asks the daemon again.
    pub fn forget_export(&self, buffer: BufferId) {
        self.exchange.forget(buffer);
    }

    /// The buffer with the id that the far end gave, mapped. The first time this asks the daemon, which may take half a
    /// second if the neighbour's daemon does not answer. `tid` is this thread's number.
    ///
    /// # Errors
    /// The buffer does not exist, does not allow this access, or cannot be mapped.
    pub fn far_buffer(
        &self,
        tid: u32,
        buffer: BufferId,
        reach: Reach,
    ) -> Result<Arc<FarBuffer>, BufferError> {
        let as_asked = |found: &Arc<FarBuffer>| found.reach() == reach;
        if let Some(known) = far::known(tid, &self.exchange.user, buffer)? {
            return Some(known).filter(as_asked).ok_or(BufferError::Never);
        }
        if self.exchange.unfound.load(Relaxed) >= FAILED_LOOKUPS_MAX || !self.allows_zero_copy() {
            return Err(BufferError::Never);
        }
        let found = self.daemon.far_buffer(self.circuit, self.token, buffer).inspect_err(|why| {
            self.exchange.unfound.fetch_add(u32::from(*why == BufferError::Never), Relaxed);
        })?;
        let found = far::keep(tid, &self.exchange.user, buffer, found)?;
        Some(found).filter(as_asked).ok_or(BufferError::Never)
    }
    /// Calls `work` with the buffer that the far end named.
    ///
    /// # Errors
    /// As [`Self::far_buffer`].
    pub(super) fn with_far<T>(
        &self,
        tid: u32,
        buffer: BufferId,
        reach: Reach,
        work: impl FnOnce(&FarBuffer) -> T,
    ) -> Result<T, BufferError> {
        let user = &self.exchange.user;
        let far = match far::last(user, buffer).filter(|far| far.reach() == reach) {
            Some(far) => far,
            None => self.far_buffer(tid, buffer, reach)?,
        };
        let outcome = work(&far);
        far::leave(user, buffer, far);
        Ok(outcome)
    }
}
