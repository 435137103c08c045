//! Stores into a neighbour's memory: directly, or through a queue from which a port makes them land later.

use super::{MapError, Mapping, Store};
use crate::copy::{self, Strategy};
use crate::guarded::{self, Fault};
use crate::queue::Writer;
use crate::segment::Segment;
use crate::{Inbound, queue};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crosslane_wire::{Caching, MemoryKind};
use std::os::fd::AsFd;

/// A segment of a neighbour's memory: stores only.
///
/// If stores go through a queue, nothing is mapped directly: every range lies outside the empty mapping, and the failed
/// range check leads to a cold path. So direct stores need no additional check.
#[derive(Debug)]
pub struct Outbound {
    mapping: Mapping,
    order: Order,
    queue: Option<Box<Writer>>,
}

/// What a store fence needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Nothing: the memory is coherent.
    Coherent,
    /// An instruction: the processor combines stores.
    Combining,
    /// An entry of the queue.
    Queue,
}

impl Outbound {
    /// Maps a sealed memfd of exactly `len` bytes, which is coherent; refuses one whose owner could shrink it.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn sealed(fd: impl AsFd, len: u64) -> Result<Self, MapError> {
        Ok(Self { mapping: Mapping::new(fd, len)?, order: Order::Coherent, queue: None })
    }

    /// Maps a segment that a port gave out, in the way that its description says.
    ///
    /// # Errors
    /// See [`MapError`]: the descriptor is not as described.
    pub fn map(segment: &Segment) -> Result<Self, MapError> {
        let (memory, caching) = (segment.info.memory, segment.info.caching);
        if memory == MemoryKind::Queue {
            let queue = Some(Box::new(Writer::open(segment)?));
            return Ok(Self { mapping: Mapping::nothing(), order: Order::Queue, queue });
        }
        let order = if caching == Caching::WriteCombining { Order::Combining } else { Order::Coherent };
        Ok(Self { mapping: segment.map()?, order, queue: None })
    }

    /// Whether stores go directly to the memory.
    pub fn is_direct(&self) -> bool {
        self.queue.is_none()
    }

    /// Address of `len` bytes at `offset`, to copy to, if stores go directly there.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        self.mapping.at(offset, len)
    }

    /// Copies `source` to `offset` with this strategy; [`crate::copy::store_fence`] must follow before the store of an index.
    #[inline]
    pub fn write_by(&self, strategy: Strategy, offset: usize, source: &[u8]) {
        let Some(target) = self.mapping.place(offset, source.len()) else {
            return self.post(offset, source);
        };
        // SAFETY: `target` is in range; `source` is private memory, so the two cannot overlap.
        unsafe { copy::copy(strategy, target, source.as_ptr(), source.len()) }
    }

    /// Copies `len` received bytes, at `from_offset` of another segment, to `offset`, in no particular order, without
    /// private memory in between: what a host between does. The bytes may change meanwhile; this host does not use them.
    #[inline]
    pub fn copy_from(&self, offset: usize, from: &Inbound, from_offset: usize, len: usize) {
        let source = from.at(from_offset, len);
        // SAFETY: in range, and in another mapping than this one; the two cannot overlap, even if both map the same memory.
        unsafe { self.copy_shared(offset, source, len) }
    }

    /// Copies `len` bytes of shared memory to `offset`, in no particular order.
    ///
    /// # Safety
    /// `source` is valid for loads of `len` bytes, which do not overlap this mapping.
    #[inline]
    pub(crate) unsafe fn copy_shared(&self, offset: usize, source: *const u8, len: usize) {
        match self.mapping.place(offset, len) {
            // SAFETY: in range, and the caller's promise.
            Some(target) => unsafe { copy::copy(Strategy::Cached, target, source, len) },
            // SAFETY: the caller's promise.
            None => unsafe { self.queue(offset, len).store_shared(offset, source, len) },
        }
    }

    /// Wakes the sleeper whose waker has this number at the port, behind all that was stored before; only where stores go through a queue.
    #[cold]
    pub fn wake(&self, number: u64) {
        if let Some(queue) = &self.queue {
            queue.wake(number);
        }
    }

    /// The queue, for a store inside the segment; panics if the store is outside.
    #[cold]
    #[inline(never)]
    fn queue(&self, offset: usize, len: usize) -> &Writer {
        let fits = |queue: &&Writer| offset <= queue.len() && len <= queue.len() - offset;
        self.queue.as_deref().filter(fits).expect("offset outside the segment")
    }

    #[cold]
    #[inline(never)]
    fn post(&self, offset: usize, source: &[u8]) {
        self.queue(offset, source.len()).store(offset, source);
    }

    /// As [`Self::post`], with bytes that `fill` copies piece by piece: it gets the first byte's offset and the destination.
    #[cold]
    #[inline(never)]
    fn post_by(
        &self,
        offset: usize,
        len: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let queue = self.queue(offset, len);
        if len <= queue::PIECE {
            return store_by::<{ queue::PIECE }>(queue, offset, len, &mut fill);
        }
        store_by::<BATCH>(queue, offset, len, &mut fill)
    }

    /// Executes a store fence where memory is not coherent.
    #[cold]
    #[inline(never)]
    fn order_stores(&self) {
        match &self.queue {
            Some(queue) => queue.fence(),
            None => copy::store_fence(),
        }
    }
}

/// Most bytes on the stack by which a program's bytes are stored into a queue.
const BATCH: usize = 4 * queue::PIECE;

/// Stores `len` bytes that `fill` copies, by way of `N` bytes on the stack: not in the queue itself, whose lock would be held while a page of
/// the program's is fetched.
#[inline(never)]
fn store_by<const N: usize>(
    queue: &Writer,
    offset: usize,
    len: usize,
    fill: &mut impl FnMut(usize, &mut [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut piece = [0; N];
    for at in (0..len).step_by(N) {
        let piece = &mut piece[..N.min(len - at)];
        fill(at, piece)?;
        queue.store(offset + at, piece);
    }
    Ok(())
}

impl Store for Outbound {
    fn len(&self) -> usize {
        self.queue.as_ref().map_or(self.mapping.len(), |queue| queue.len())
    }

    #[inline]
    fn store_u32(&self, offset: usize, value: u32) {
        assert_eq!(offset % 4, 0);
        match self.mapping.place(offset, 4) {
            // SAFETY: in range, aligned, mapped as long as `self`; atomics may be shared with other processes.
            Some(at) => unsafe { AtomicU32::from_ptr(at.cast()) }.store(value, Ordering::Release),
            None => self.post(offset, &value.to_ne_bytes()),
        }
    }

    #[inline]
    fn store_u64(&self, offset: usize, value: u64) {
        assert_eq!(offset % 8, 0);
        match self.mapping.place(offset, 8) {
            // SAFETY: in range, aligned, mapped as long as `self`; atomics may be shared with other processes.
            Some(at) => unsafe { AtomicU64::from_ptr(at.cast()) }.store(value, Ordering::Release),
            None => self.post(offset, &value.to_ne_bytes()),
        }
    }

    #[inline]
    fn write(&self, offset: usize, source: &[u8]) {
        let Some(target) = self.mapping.place(offset, source.len()) else {
            return self.post(offset, source);
        };
        // SAFETY: `target` is in range; `source` is private memory, so the two cannot overlap.
        unsafe { copy::into_shared(target, source) }
    }

    #[inline]
    fn write_guarded(&self, offset: usize, source: &[u8]) -> Result<(), Fault> {
        let (from, len) = (source.as_ptr(), source.len());
        guarded::check(from)?;
        let Some(target) = self.mapping.place(offset, len) else {
            return self.post_by(offset, len, |at, piece| {
                // SAFETY: `piece` is private memory; the other is the program's.
                unsafe { guarded::copy(piece.as_mut_ptr(), from.wrapping_add(at), piece.len()) }
            });
        };
        // SAFETY: `target` is in range; `source` is the program's, which does not know the address of this mapping.
        unsafe { guarded::copy(target, from, len) }
    }

    #[inline]
    fn store_fence(&self) {
        if self.order != Order::Coherent {
            self.order_stores();
        }
        fence(Ordering::Release);
    }

    #[inline]
    fn fence(&self) {
        self.store_fence();
        fence(Ordering::SeqCst);
    }
}
