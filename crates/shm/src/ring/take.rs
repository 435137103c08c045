//! Payload out of the ring: into our own memory, and into a program's, which may not be there.

use super::{Consumer, Head, Violation};
use crate::Load;
use crate::account::{self, Function};
use crate::guarded::Fault;
use core::sync::atomic::Ordering::Relaxed;

impl Consumer {
    /// Copies the next bytes of the front record's payload and returns how many; consumes the record with its last
    /// byte. The caller has seen it by [`Self::head`].
    #[inline]
    pub fn take(&self, ring: &impl Load, target: &mut [u8]) -> Result<usize, Violation> {
        let Some(head) = self.head(ring)? else { return Ok(0) };
        let count = head.left.min(target.len());
        ring.read(self.front(ring, head)?, &mut target[..count]);
        self.skip(head, count)?;
        Ok(count)
    }

    /// As [`Self::take`] into memory of the program's, which may not be there, of the front record for which [`Self::head`] has
    /// just returned `head`. After a [`Fault`] nothing was taken.
    #[inline]
    pub fn take_guarded(
        &self,
        ring: &impl Load,
        head: Head,
        target: &mut [u8],
    ) -> Result<Result<usize, Fault>, Violation> {
        let count = head.left.min(target.len());
        {
            let _span = account::is_on().then(|| account::receiving(Function::CopyOut));
            if let Err(fault) = ring.read_guarded(self.front(ring, head)?, &mut target[..count]) {
                return Ok(Err(fault));
            }
        }
        self.skip(head, count)?;
        Ok(Ok(count))
    }

    /// The last `count` bytes that were taken of the front record, of which some are left, were not.
    #[cold]
    pub fn untake(&self, count: usize) {
        self.taken.store(self.taken.load(Relaxed).saturating_sub(count as u64), Relaxed);
    }
}
