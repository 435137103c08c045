//! One neighbour's channel of a circuit: its words, and who is to be woken there.

use super::wakers::Wakers;
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::WaiterId;
use crosslane_wire::segment::{
    RING_MAX, RING_MIN, STATE, STATE_ATTACHED, STATE_GONE, WANT_DATA, WANT_ROOM, ring_max_ok,
};

/// One neighbour's channel of a transit circuit.
#[derive(Debug)]
pub struct Leg {
    /// What the neighbour stores into.
    pub inbound: Inbound,
    /// What we store into.
    pub outbound: Outbound,
    /// Longest ring of either segment, bytes; a power of two.
    pub ring_max: u64,
    /// Key of the marks that are read.
    pub rx_key: u64,
    /// Key of the marks that are written.
    pub tx_key: u64,
    /// Behind it is the stream's end, not another host between.
    pub is_end: bool,
    /// How long a store of ours to the neighbour and then one of the neighbour's to us may be under way together, ns; 0 where
    /// memory is coherent.
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

/// A leg at work.
#[derive(Debug)]
pub(super) struct Side {
    /// Its segments.
    pub(super) leg: Leg,
    /// The daemon says that nothing more comes from there and that nobody reads there.
    pub(super) closed: bool,
    /// Wake events of those who sleep there.
    pub(super) wakers: Wakers,
    /// Waiters that the daemon must ring.
    pub(super) unrung: Vec<WaiterId>,
    /// Our own, in the words that ask for a wake.
    waiter: WaiterId,
    sequence: u32,
    /// The requests of the other side that were answered last.
    answered_data: u64,
    answered_room: u64,
}

impl Side {
    /// Takes a leg over and says so to the neighbour.
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

    /// Whether nothing more comes from there and nobody reads there. To be asked before the ring is looked at: what
    /// was stored before is in the ring then.
    pub(super) fn is_gone(&self) -> bool {
        self.closed || self.leg.inbound.load_u32(STATE) == STATE_GONE
    }

    /// Tells the neighbour that the other side is gone, after all that was stored before.
    pub(super) fn say_gone(&mut self) {
        self.leg.outbound.store_fence();
        self.leg.outbound.store_u32(STATE, STATE_GONE);
        self.wake_data();
        self.wake_room();
    }

    /// Wakes whoever sleeps there for data, once for each request. To be called after the data was stored: there is a
    /// full fence in between.
    pub(super) fn wake_data(&mut self) {
        self.leg.outbound.fence();
        if news(self.leg.inbound.load_u64(WANT_DATA), &mut self.answered_data) {
            self.wake(self.answered_data);
        }
    }

    /// Wakes whoever sleeps there for room, or for what has landed.
    pub(super) fn wake_room(&mut self) {
        self.leg.outbound.fence();
        if news(self.leg.inbound.load_u64(WANT_ROOM), &mut self.answered_room) {
            self.wake(self.answered_room);
        }
    }

    fn wake(&mut self, want: u64) {
        let [w0, w1, w2, w3, ..] = want.to_le_bytes();
        let waiter = WaiterId(u32::from_le_bytes([w0, w1, w2, w3]));
        if !self.wakers.wake(waiter) {
            self.unrung.push(waiter);
        }
    }

    /// Asks the neighbour for a wake, by this word. A fence and another look must follow before a sleep.
    pub(super) fn want(&mut self, word: usize) {
        self.sequence = self.sequence.wrapping_add(1);
        self.leg.outbound.store_u64(word, u64::from(self.sequence) << 32 | u64::from(self.waiter.0));
    }

    /// Wants no more wakes.
    pub(super) fn unwant(&self) {
        for word in [WANT_DATA, WANT_ROOM] {
            self.leg.outbound.store_u64(word, 0);
        }
    }
}

/// Whether the word asks for a wake that was not sent yet.
fn news(want: u64, answered: &mut u64) -> bool {
    let fresh = want != 0 && want != *answered;
    if fresh {
        *answered = want;
    }
    fresh
}
