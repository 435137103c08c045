//! Copying payload out of the ring: into this process's own memory, or into a program's, whose pages may be unmapped.

use super::{Consumer, Head, Violation};
use crate::Load;
use crate::account::{self, Function};
use crate::guarded::Fault;
use core::sync::atomic::Ordering::Relaxed;

impl Consumer {
    /// Copies the next bytes of the front record into `target` and returns how many, 0 if no record has arrived; consumes the
    /// record with its last byte.
    #[inline]
    pub fn take(&self, ring: &impl Load, target: &mut [u8]) -> Result<usize, Violation> {
        let Some(head) = self.head(ring)? else { return Ok(0) };
        let count = head.left.min(target.len());
        ring.read(self.front(ring, head)?, &mut target[..count]);
        self.skip(head, count)?;
        Ok(count)
    }

    /// As [`Self::take`], into a program's memory, whose pages may be unmapped: after a [`Fault`] nothing was taken.
    /// `head` is the value that [`Self::head`] has just returned.
    #[inline(always)]
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

    /// Puts the last `count` bytes that were taken back into the front record; only while that record is not consumed.
    #[cold]
    pub fn untake(&self, count: usize) {
        self.taken.store(self.taken.load(Relaxed).saturating_sub(count as u64), Relaxed);
    }
}
