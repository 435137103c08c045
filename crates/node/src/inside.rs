//! The memory of streams inside this host, which no cable joins: what both programs map, or, for tests of programs, what their stores
//! reach later (`inside` in the configuration).

use crate::shelves::{KeptSegment, Shelves};
use crosslane_port::PortError;
use crosslane_port::posted::{self, Lane, Stores};
use crosslane_shm::mem::new_segment;
use crosslane_shm::wake::{FarWaker, Waker};
use crosslane_shm::{MapError, Segment};
use crosslane_wire::segment::segment_len;
use crosslane_wire::{CircuitId, SegmentInfo, WaiterId, Way};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thiserror::Error;

/// Why there is no memory for a stream inside this host.
#[derive(Debug, Error)]
pub enum InsideError {
    /// No segment.
    #[error("no segment: {0}")]
    Segment(#[from] MapError),
    /// No queue of stores.
    #[error(transparent)]
    Queue(#[from] PortError),
    /// No descriptor.
    #[error("cannot duplicate a descriptor: {0}")]
    Descriptor(#[from] std::io::Error),
}

/// One direction of a stream: the same memory for who reads it and for who writes it.
#[derive(Debug)]
pub(crate) struct Direction {
    /// The reader's.
    pub(crate) inbound: KeptSegment,
    /// The writer's.
    pub(crate) outbound: KeptSegment,
    /// What makes the writer's stores land, while the reader's end has it.
    pub(crate) lane: Option<Lane>,
}

/// How programs of this host reach each other.
#[derive(Debug, Default)]
pub struct Inside {
    posted: Option<Posted>,
}

#[derive(Debug)]
struct Posted {
    stores: posted::Inside,
    /// Wakes that wait until what was stored before them has landed: by the number of their ticket.
    owed: HashMap<u32, (CircuitId, WaiterId)>,
    last: u32,
}

impl Inside {
    /// By memory that both map, or by `stores` that land later.
    ///
    /// # Errors
    /// There is no thread or descriptor.
    pub fn new(stores: Option<Stores>) -> Result<Self, PortError> {
        let posted = stores.map(|stores| {
            posted::Inside::new(stores).map(|stores| Posted { stores, owed: HashMap::new(), last: 0 })
        });
        Ok(Self { posted: posted.transpose()? })
    }

    /// Readable when wakes are due; none where they never wait.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.posted.as_ref().map(|posted| posted.stores.event_fd())
    }

    /// Memory for one direction of a stream with rings of `ring_max` bytes.
    pub(crate) fn direction(&mut self, ring_max: u64, shelves: &Shelves) -> Result<Direction, InsideError> {
        let len = segment_len(ring_max);
        let memory = Segment::sealed(new_segment("crosslane-segment", len)?, len);
        let (info, outbound, lane) = match &mut self.posted {
            None => (memory.info, Segment { fd: copy(&memory.fd)?, info: memory.info }, None),
            Some(posted) => {
                let (outbound, lane) = posted.stores.carve_outbound(&memory)?;
                (posted.stores.info_of(&memory), outbound, Some(lane))
            }
        };
        let inbound = shelves.keep_segment(Segment { info, ..memory });
        Ok(Direction { inbound, outbound: shelves.keep_segment(outbound), lane })
    }

    /// How a program inside this host wakes another one by itself: where stores land later, behind those that it made before; `None` if
    /// there is no room.
    pub(crate) fn far_waker(&self, waker: Waker) -> Option<FarWaker> {
        match &self.posted {
            None => Some(FarWaker::Own(waker)),
            Some(posted) => posted.stores.keep_waker(waker).map(FarWaker::Queued),
        }
    }

    /// Puts a wake behind what was stored before it; whether that is necessary.
    pub(crate) fn delay_wake(&mut self, circuit: CircuitId, waiter: WaiterId) -> bool {
        let Some(posted) = &mut self.posted else { return false };
        posted.last = posted.last.wrapping_add(1);
        posted.owed.insert(posted.last, (circuit, waiter));
        posted.stores.put_ticket(posted.last);
        true
    }

    /// The wakes that are due.
    pub(crate) fn take_due(&mut self) -> Vec<(CircuitId, WaiterId)> {
        let Some(posted) = &mut self.posted else { return Vec::new() };
        posted.stores.poll_tickets().filter_map(|ticket| posted.owed.remove(&ticket)).collect()
    }
}

/// What a stream inside this host can do, by what is said of the segment that its end reads and of the one that it writes.
pub(crate) const fn way(inbound: &SegmentInfo, outbound: &SegmentInfo) -> Way {
    Way::new((1, 0), inbound, outbound, false)
}

fn copy(fd: &OwnedFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}
