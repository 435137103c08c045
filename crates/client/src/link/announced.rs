//! Announced sends as operations: the far program fetches the bytes, or they must go through the ring.

use crate::end::zcopy::announce::{Announcement, Attempt, Behind, Stand};
use crate::{End, Failure};
use crosslane_shm::buffer::Located;
use crosslane_wire::WaiterId;
use std::time::Duration;

/// How long a far program may fetch nothing, with room in the ring, before announced bytes are sent through the ring, which lets
/// the sender go on for a while.
pub const STALL: Duration = Duration::from_millis(5);

impl Announcement {
    /// Lets the far program map the buffer with `bytes`, which begin at `place`, and announces them; calls `wake` to wake the far
    /// side's waiter, if there is one. `Ok(Err(count))`: so many of them count, the rest must go through the ring.
    ///
    /// # Errors
    /// Nothing more can be sent.
    pub fn begin(
        end: &End,
        tid: u32,
        bytes: &[u8],
        place: &Located,
        behind: Behind<'_>,
        wake: impl FnOnce(Option<WaiterId>),
    ) -> Result<Result<Self, usize>, Failure> {
        if end.export_buffer(place).is_err() {
            return Ok(Err(0));
        }
        let (begun, waiter) = match end.announce(tid, bytes, (place.id, place.offset), behind)? {
            Attempt::Open(open, waiter) => (Ok(open), waiter),
            // The stream has moved meanwhile.
            Attempt::Over(count, waiter) => (Err(count), waiter),
            Attempt::Ring => (Err(0), None),
        };
        wake(waiter);
        Ok(begun)
    }

    /// How many of the bytes count, once the announcement is over: the rest must go through the ring. Withdraws it if the far
    /// program does not want it, or has fetched nothing since the last call, and the caller has waited for [`STALL`] (`stalled`).
    ///
    /// # Errors
    /// The stream is over.
    pub fn try_advance(&mut self, end: &End, tid: u32, stalled: bool) -> Result<Option<usize>, Failure> {
        let before = self.fetched();
        match end.stand(tid, self)? {
            Stand::Over(count) => Ok(Some(count)),
            Stand::Open(fetched) if !stalled || fetched != before => Ok(None),
            Stand::Open(_) | Stand::Unwanted => end.withdraw(tid, self).map(Some),
        }
    }
}
