//! Frames between two kernel ports, in the first bytes behind window 0 of each: what one side tells the other of its segments.
//!
//! ```text
//!   memory of R, stored by W
//!   0x0000  TAKEN  u32   how many frames of R W has taken
//!   0x1000  slots of 32 bytes, frame number n at n % SLOTS:
//!           n + 1 u32, stored last | tag u32 | window u32 | 0 u32 | first u64 | second u64
//! ```

use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::SegmentRange;

/// Bytes of a lane.
pub(super) const LANE: u64 = 0x9000;
const TAKEN: usize = 0;
const SLOTS_AT: usize = 0x1000;
const SLOT: usize = 32;
const SLOTS: u32 = 1024;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The sender's inbound window has this length, bytes, and no segments.
    Window(usize, u64),
    /// All windows have been told: the link is up.
    Ready,
    /// The sender carved this range of its inbound window.
    Segment(usize, SegmentRange),
    /// The sender freed it, and does not use it again before it is [`Frame::Released`].
    Freed(usize, SegmentRange),
    /// Nobody at the sender's can store into this range of the receiver's any more.
    Released(usize, SegmentRange),
}

/// Why the peer's words are not frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense(pub(super) &'static str);

/// Both directions of one life.
#[derive(Debug)]
pub(super) struct Lane {
    inbound: Inbound,
    outbound: Outbound,
    sent: u32,
    taken: u32,
}

impl Lane {
    /// `inbound` is zero, and the peer stores when it knows.
    pub(super) fn new(inbound: Inbound, outbound: Outbound) -> Self {
        Self { inbound, outbound, sent: 0, taken: 0 }
    }

    /// Puts a frame into the peer's memory; `false`: no room.
    pub(super) fn send(&mut self, frame: Frame) -> bool {
        let under_way = self.sent.wrapping_sub(self.inbound.load_u32(TAKEN));
        // A peer that counts wrong hears nothing more.
        if under_way >= SLOTS {
            return false;
        }
        let (tag, window, first, second) = match frame {
            Frame::Window(window, len) => (1, window, len, 0),
            Frame::Ready => (2, 0, 0, 0),
            Frame::Segment(window, range) => (3, window, range.offset, range.len),
            Frame::Freed(window, range) => (4, window, range.offset, range.len),
            Frame::Released(window, range) => (5, window, range.offset, range.len),
        };
        let slot = slot(self.sent);
        self.outbound.store_u32(slot + 4, tag);
        self.outbound.store_u32(slot + 8, u32::try_from(window).unwrap_or(u32::MAX));
        self.outbound.store_u64(slot + 16, first);
        self.outbound.store_u64(slot + 24, second);
        self.outbound.store_fence();
        self.sent = self.sent.wrapping_add(1);
        self.outbound.store_u32(slot, self.sent);
        self.outbound.store_fence();
        true
    }

    /// The next frame of the peer, if any.
    pub(super) fn receive(&mut self) -> Result<Option<Frame>, Nonsense> {
        let slot = slot(self.taken);
        let next = self.taken.wrapping_add(1);
        if self.inbound.load_u32(slot) != next {
            return Ok(None);
        }
        let window = self.inbound.load_u32(slot + 8) as usize;
        let (first, second) = (self.inbound.load_u64(slot + 16), self.inbound.load_u64(slot + 24));
        let range = SegmentRange { offset: first, len: second };
        let frame = match self.inbound.load_u32(slot + 4) {
            1 => Frame::Window(window, first),
            2 => Frame::Ready,
            3 => Frame::Segment(window, range),
            4 => Frame::Freed(window, range),
            5 => Frame::Released(window, range),
            _ => return Err(Nonsense("frame with a tag that is none")),
        };
        self.taken = next;
        Ok(Some(frame))
    }

    /// Tells the peer how many of its frames were taken.
    pub(super) fn acknowledge(&self) {
        self.outbound.store_u32(TAKEN, self.taken);
        self.outbound.store_fence();
    }
}

fn slot(number: u32) -> usize {
    SLOTS_AT + SLOT * (number % SLOTS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::mem::new_segment;

    /// Two lanes, each of which stores into the other's memory.
    fn pair() -> (Lane, Lane) {
        let memory = [(); 2].map(|()| new_segment("lane", LANE).unwrap());
        let views = |own: usize| {
            let inbound = Inbound::sealed(&memory[own], LANE).unwrap();
            Lane::new(inbound, Outbound::sealed(&memory[1 - own], LANE).unwrap())
        };
        (views(0), views(1))
    }

    #[test]
    fn lane_carries_frames_in_order_until_it_is_full() {
        let (mut a, mut b) = pair();
        for round in 0..3 {
            let frame = |n: u32| Frame::Segment(1, SegmentRange { offset: u64::from(n + round), len: 4096 });
            for n in 0..SLOTS {
                assert!(a.send(frame(n)));
            }
            assert!(!a.send(Frame::Ready));
            for n in 0..SLOTS {
                assert_eq!(b.receive(), Ok(Some(frame(n))));
            }
            assert_eq!(b.receive(), Ok(None));
            b.acknowledge();
        }
    }

    #[test]
    fn lane_of_rubbish_is_refused_or_empty() {
        let (mut a, b) = pair();
        b.outbound.write(0, &vec![0xff; usize::try_from(LANE).unwrap()]);
        assert_eq!(a.receive(), Ok(None));
        b.outbound.store_u32(SLOTS_AT, 1);
        assert!(a.receive().is_err());
        assert!(!a.send(Frame::Ready) || a.sent == 1);
    }
}
