//! One look at all interests of a set: which streams are ready, in the order in which they became so.

use super::cold::{self, Round, Upheavals};
use super::interest::Interest;
use super::set::State;
use super::{events::Events, order};
use crate::descriptors::table::Held;
use crate::kernel::thread::tid;
use crosslane_shm::clock;

impl State {
    #[inline]
    pub fn scan(&mut self, events: &mut Events, tid: u32) {
        self.order.begin();
        self.heat_after_upheavals();
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
        let (mut round, hot) = (self.round(), self.len());
        // Time is taken only where some may become cold.
        let many = self.has_many() && !cold::are_few(hot);
        let begin = if many { clock::now() } else { 0 };
        while let Some(place) = self.cold.next_hot(&mut round) {
            let Some(interest) = &mut self.places[place] else { continue };
            if self.order.is_reported(place) {
                continue;
            }
            let stamp = if several { order::stamp_of(interest) } else { 0 };
            if !self.take(place, stamp, tid) {
                if many {
                    self.was_quiet(place);
                }
            } else if self.order.len() == room {
                self.next = place + 1;
                break;
            }
        }
        if many {
            self.looked.add(begin, hot);
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
        let (mut known, mut round) = (0, self.round());
        while let Some(place) = self.cold.next_hot(&mut round) {
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
        interest.since = self.looked;
        self.last = place;
        self.order.add(place, stamp, interest.event(bits));
        true
    }

    /// All places, beginning where the last look ended.
    #[inline]
    fn round(&self) -> Round {
        Round::new(self.next, self.places.len())
    }

    /// Whether there are so many streams that some may be cold.
    #[inline]
    fn has_many(&self) -> bool {
        cold::is_many(self.places.len() - self.idle.len())
    }

    /// A look found nothing here: it becomes cold if that was so for long.
    #[inline]
    fn was_quiet(&mut self, place: usize) {
        let looked = self.looked;
        if let Some(interest) = &mut self.places[place]
            && looked.is_past(interest.since)
        {
            interest.since = looked;
            self.cool(place);
        }
    }

    /// The stream at this place becomes cold, if its far side will ring.
    #[cold]
    fn cool(&mut self, place: usize) {
        let Some(waiter) = self.waiter_id().filter(|_| self.knows_capacity()) else { return };
        let (rung, requests) = (self.rung, &mut self.requests);
        if self.places[place].as_mut().is_some_and(|interest| interest.cool(waiter, rung, requests)) {
            self.cold.cool(place);
        }
    }

    /// Before a sleep, after a look that found nothing: all streams whose far sides will ring become cold.
    pub fn cool_all(&mut self) {
        if self.has_many() {
            let mut round = self.round();
            while let Some(place) = self.cold.next_hot(&mut round) {
                self.cool(place);
            }
        }
    }

    #[inline]
    pub(super) fn heat_after_upheavals(&mut self) {
        if self.cold.count() > 0 {
            let now = Upheavals::now();
            if self.upheavals != now {
                self.upheavals = now;
                self.heat_all();
            }
        }
    }

    /// All streams are looked at again, and asked again to ring.
    pub fn heat_all(&mut self) {
        self.cold.heat_all();
        self.rung = true;
    }

    /// Whether it holds more than one stream, so that their order counts.
    pub fn several(&self) -> bool {
        self.places.len() - self.idle.len() > 1
    }

    /// The stream that was last found ready.
    pub fn last(&self) -> Option<&Held> {
        self.places.get(self.last)?.as_ref().map(Interest::end)
    }

    /// How many interests a look passes, at most.
    pub fn len(&self) -> usize {
        self.places.len() - self.idle.len() - self.cold.count()
    }

    /// Whether any stream is ready; edges are kept.
    pub fn any_ready(&mut self) -> bool {
        self.heat_after_upheavals();
        let (inner, tid, mut round) = (self.inner(), tid(), self.round());
        while let Some(place) = self.cold.next_hot(&mut round) {
            if self.places[place].as_mut().is_some_and(|interest| interest.peek(inner, tid) != 0) {
                return true;
            }
        }
        false
    }
}
