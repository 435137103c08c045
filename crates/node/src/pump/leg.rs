//! One neighbour's channel of a circuit: its words, and the waiters to wake there.

use super::wakers::Wakers;
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::WaiterId;
use crosslane_wire::segment::{
    RING_MAX, RING_MIN, STATE, STATE_ATTACHED, STATE_GONE, WANT_DATA, WANT_ROOM, ring_max_ok,
};

/// One neighbour's channel of a transit circuit.
#[derive(Debug)]
pub struct Leg {
    /// The segment into which the neighbour stores.
    pub inbound: Inbound,
    /// The segment into which this host stores.
    pub outbound: Outbound,
    /// Longest ring of either segment, bytes; a power of two.
    pub ring_max: u64,
    /// Key of the marks that this host reads.
    pub rx_key: u64,
    /// Key of the marks that this host writes.
    pub tx_key: u64,
    /// Whether the stream's end is at this neighbour, and not another host between.
    pub is_end: bool,
    /// How long a store of this host to the neighbour and then one of the neighbour to this host may be under way
    /// together, ns; 0 where memory is coherent.
    pub in_flight_ns: u32,
}

impl Leg {
    /// Whether the segments are long enough for the rings.
    pub(super) fn fits(&self) -> bool {
        let len = usize::try_from(crosslane_wire::segment::segment_len(self.ring_max.min(RING_MAX)));
        let fits = |segment: usize| len.is_ok_and(|len| len <= segment);
        ring_max_ok(self.ring_max) && fits(Load::len(&self.inbound)) && fits(Store::len(&self.outbound))
    }

    /// Bytes of each ring that are used at first.
    pub(super) fn cap(&self) -> u64 {
        RING_MIN.min(self.ring_max)
    }
}

/// A leg that is being forwarded.
#[derive(Debug)]
pub(super) struct Side {
    /// Its segments.
    pub(super) leg: Leg,
    /// The daemon says that nothing more comes from there and that the neighbour does not read any more.
    pub(super) closed: bool,
    /// Wakers of the neighbour's waiters.
    pub(super) wakers: Wakers,
    /// Waiters that the daemon must wake.
    pub(super) unrung: Vec<WaiterId>,
    /// This circuit's own waiter, which the wake request words contain.
    waiter: WaiterId,
    sequence: u32,
    /// The last requests of the neighbour that were answered.
    answered_data: u64,
    answered_room: u64,
}

impl Side {
    /// Attaches to a leg, which tells the neighbour.
    pub(super) fn attach(leg: Leg, waiter: WaiterId) -> Self {
        leg.outbound.store_u32(STATE, STATE_ATTACHED);
        Self {
            leg,
            closed: false,
            wakers: Wakers::default(),
            unrung: Vec::new(),
            waiter,
            sequence: 0,
            answered_data: 0,
            answered_room: 0,
        }
    }

    /// Whether nothing more comes from there and the neighbour does not read any more. Ask this before looking at the
    /// ring: the ring then contains all that was stored before.
    pub(super) fn is_gone(&self) -> bool {
        self.closed || self.leg.inbound.load_u32(STATE) == STATE_GONE
    }

    /// Tells the neighbour that the other side is gone, after all earlier stores.
    pub(super) fn say_gone(&mut self) {
        self.leg.outbound.store_fence();
        self.leg.outbound.store_u32(STATE, STATE_GONE);
        self.wake_data();
        self.wake_room();
    }

    /// Wakes the waiter there that wants data, once for each request. Call this after the data was stored: it fences
    /// before it loads the request.
    pub(super) fn wake_data(&mut self) {
        self.leg.outbound.fence();
        if news(self.leg.inbound.load_u64(WANT_DATA), &mut self.answered_data) {
            self.wake(self.answered_data);
        }
    }

    /// Wakes the waiter there that wants room, or acknowledgements.
    pub(super) fn wake_room(&mut self) {
        self.leg.outbound.fence();
        if news(self.leg.inbound.load_u64(WANT_ROOM), &mut self.answered_room) {
            self.wake(self.answered_room);
        }
    }

    fn wake(&mut self, want: u64) {
        let [w0, w1, w2, w3, ..] = want.to_le_bytes();
        let waiter = WaiterId(u32::from_le_bytes([w0, w1, w2, w3]));
        if !self.wakers.wake(waiter, &self.leg.outbound) {
            self.unrung.push(waiter);
        }
    }

    /// Requests a wake from the neighbour, by this word. A fence and another look must follow before a sleep.
    pub(super) fn want(&mut self, word: usize) {
        self.sequence = self.sequence.wrapping_add(1);
        self.leg.outbound.store_u64(word, u64::from(self.sequence) << 32 | u64::from(self.waiter.0));
    }

    /// Withdraws the requests for wakes.
    pub(super) fn unwant(&self) {
        for word in [WANT_DATA, WANT_ROOM] {
            self.leg.outbound.store_u64(word, 0);
        }
    }
}

/// Whether the word requests a wake that was not sent yet.
fn news(want: u64, answered: &mut u64) -> bool {
    let fresh = want != 0 && want != *answered;
    if fresh {
        *answered = want;
    }
    fresh
}
