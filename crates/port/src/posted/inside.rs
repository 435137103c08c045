//! Segments between programs of one host whose stores land later.

use super::Stores;
use super::lander::{Lander, Remover};
use super::schedule::Ticket;
use crate::PortError;
use crosslane_shm::Segment;
use crosslane_shm::queue::Reader;
use crosslane_shm::wake::Waker;
use crosslane_wire::{SegmentInfo, SegmentRange};
use std::os::fd::BorrowedFd;

/// Makes the stores between programs of one host land later. No store is lost here: there is no cable that can go down.
#[derive(Debug)]
pub struct Inside {
    stores: Stores,
    lander: Lander,
    /// Number of lanes so far: each gets a place of its own.
    lanes: u64,
}

/// A store queue of a segment; stores land while this exists. It belongs to the reader of the segment.
#[derive(Debug)]
pub struct Lane {
    _remover: Remover,
}

impl Inside {
    /// Starts the thread that makes stores land.
    ///
    /// # Errors
    /// [`PortError::Delay`]; there is no descriptor or thread.
    pub fn new(stores: Stores) -> Result<Self, PortError> {
        Ok(Self { stores, lander: stores.lander()?, lanes: 0 })
    }

    /// The description of this host's segment for the program that reads it.
    pub fn info_of(&self, memory: &Segment) -> SegmentInfo {
        SegmentInfo { posted_ns: self.stores.longest(), ..memory.info }
    }

    /// The segment through which a program stores into `memory`, and the lane in which its stores land.
    ///
    /// # Errors
    /// There is no memory for the queue, or `memory` cannot be mapped.
    pub fn carve_outbound(&mut self, memory: &Segment) -> Result<(Segment, Lane), PortError> {
        let fd = self.stores.queue()?;
        let reader = Reader::new(&fd, memory)?;
        self.lanes += 1;
        let place = (0, SegmentRange { offset: self.lanes, len: memory.info.len });
        self.lander.add(place, reader);
        let lane = Lane { _remover: self.lander.remover(place) };
        Ok((self.stores.queued(fd, memory.info.len, false), lane))
    }

    /// Keeps the waker of a program of this host; the number by which entries of queues wake behind their stores, or `None` if there are
    /// too many.
    pub fn keep_waker(&self, waker: Waker) -> Option<u64> {
        self.lander.wakers().keep(waker)
    }

    /// Puts a ticket behind all stores that are under way now.
    pub fn put_ticket(&self, number: u32) {
        self.lander.put(Ticket::Doorbell(number));
    }

    /// Takes the tickets behind stores that have landed by now.
    pub fn poll_tickets(&self) -> impl Iterator<Item = u32> + use<> {
        self.lander.landed().into_iter().filter_map(|ticket| match ticket {
            Ticket::Doorbell(number) => Some(number),
            Ticket::Scratchpad { .. } => None,
        })
    }

    /// Readable when there are tickets.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.lander.report()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Timing;
    use super::*;
    use crosslane_shm::mem::new_segment;
    use crosslane_shm::{Inbound, Load, Outbound, Store};
    use rustix::event::{PollFd, PollFlags, poll};

    const DELAY: u32 = 20_000_000;
    const LEN: u64 = 8192;

    fn inside() -> Inside {
        Inside::new(Stores { timing: Timing::Drawn(DELAY, DELAY), seed: 1, combine: true }).unwrap()
    }

    fn segment() -> Segment {
        Segment::sealed(new_segment("test", LEN).unwrap(), LEN)
    }

    fn wait_for_ticket(inside: &Inside, number: u32) {
        let fd = inside.event_fd();
        while !inside.poll_tickets().any(|ticket| ticket == number) {
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        }
    }

    #[test]
    fn posted_store_lands_later_and_its_ticket_behind_it() {
        let mut inside = inside();
        let memory = segment();
        let (outbound, _lane) = inside.carve_outbound(&memory).unwrap();
        let (near, far) = (Outbound::map(&outbound).unwrap(), Inbound::map(&memory).unwrap());
        near.store_u64(64, 7);
        inside.put_ticket(3);
        assert_eq!(far.load_u64(64), 0, "it is under way");
        wait_for_ticket(&inside, 3);
        assert_eq!(far.load_u64(64), 7);
    }

    #[test]
    fn posted_store_is_dropped_when_the_reader_has_gone() {
        let mut inside = inside();
        let (gone, stays) = (segment(), segment());
        let (first, lane) = inside.carve_outbound(&gone).unwrap();
        let (second, _lane) = inside.carve_outbound(&stays).unwrap();
        let near = [&first, &second].map(|segment| Outbound::map(segment).unwrap());
        let far = [&gone, &stays].map(|segment| Inbound::map(segment).unwrap());
        near.iter().for_each(|near| near.store_u64(64, 9));
        drop(lane);
        inside.put_ticket(0);
        wait_for_ticket(&inside, 0);
        assert_eq!(far.map(|far| far.load_u64(64)), [0, 9]);
    }
}
