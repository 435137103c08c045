//! One look at all interests of a set: which streams are ready, in the order in which they became so.

use super::interest::Interest;
use super::set::State;
use super::{events::Events, order};
use crate::descriptors::table::Held;
use crate::kernel::thread::tid;

impl State {
    #[inline]
    pub fn scan(&mut self, events: &mut Events, tid: u32) {
        self.order.begin();
        self.look_round(events, tid);
    }

    /// Runs after a [`scan`](Self::scan) of the same call, when the kernel had news of streams: finds those that it has missed.
    pub fn scan_rest(&mut self, events: &mut Events, tid: u32) {
        self.order.go_on();
        self.look_round(events, tid);
    }

    #[inline]
    fn look_round(&mut self, events: &mut Events, tid: u32) {
        let (room, several) = (events.room(), self.several());
        if room == 0 {
            return;
        }
        for place in self.round() {
            let Some(interest) = &mut self.places[place] else { continue };
            if self.order.is_reported(place) {
                continue;
            }
            let stamp = if several { order::stamp_of(interest) } else { 0 };
            if self.take(place, stamp, tid) && self.order.len() == room {
                self.next = place + 1;
                break;
            }
        }
        if self.order.len() > 0 {
            if several {
                self.look_back(room, tid);
            }
            self.order.report(events);
        }
    }

    /// Takes streams that became ready before others that were found, but after they were looked at.
    fn look_back(&mut self, room: usize, tid: u32) {
        let Some(newest) = self.order.newest() else { return };
        let mut known = 0;
        for place in self.round() {
            if self.order.len() == room {
                return;
            }
            if self.order.is_at(known, place) {
                known += 1;
                continue;
            }
            if self.order.is_reported(place) {
                continue;
            }
            if let Some(stamp) = self.places[place].as_ref().and_then(|interest| newest.is_after(interest)) {
                self.take(place, stamp, tid);
            }
        }
    }

    /// Takes the events to report of the interest at this place. `stamp` is 0 if nothing was there a moment ago.
    #[inline]
    fn take(&mut self, place: usize, stamp: u32, tid: u32) -> bool {
        let (inner, waiter, several) = (self.inner(), self.waiter_id(), self.several());
        let Some(interest) = &mut self.places[place] else { return false };
        let bits = interest.take(inner, tid);
        if bits == 0 {
            return false;
        }
        let stamp = if stamp == 0 && several { order::stamp_of(interest) } else { stamp };
        if let Some(waiter) = waiter {
            interest.disarm(waiter);
        }
        self.last = place;
        self.order.add(place, stamp, interest.event(bits));
        true
    }

    /// All places, beginning where the last look ended.
    #[inline]
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let len = self.places.len();
        let start = if self.next < len { self.next } else { 0 };
        (start..len).chain(0..start)
    }

    /// Whether it holds more than one stream, so that their order counts.
    pub fn several(&self) -> bool {
        self.places.len() - self.idle.len() > 1
    }

    /// The stream that was last found ready.
    pub fn last(&self) -> Option<&Held> {
        self.places.get(self.last)?.as_ref().map(Interest::end)
    }

    /// How many interests there are, at most.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether any stream is ready; edges are kept.
    pub fn any_ready(&mut self) -> bool {
        let inner = self.inner();
        let tid = tid();
        self.places.iter_mut().flatten().any(|interest| interest.peek(inner, tid) != 0)
    }
}
