//! Streams of a set in the order in which they became ready, as the kernel reports descriptors.
//!
//! Programs rely on it: a client that writes to one connection and then to another expects a server with one thread to
//! see them in that order. The far sides stamp their records for it. A look passes the streams one by one, so it may
//! miss one that became ready before another that it finds: it looks back for such ones.

use super::events::Events;
use super::interest::Interest;
use crosslane_shm::clock;
use crosslane_wire::record::rank;
use libc::epoll_event;

/// A stream that was found ready.
struct Found {
    place: usize,
    stamp: u32,
    /// By age, and where that is the same by the order of the look.
    rank: (u32, usize),
    event: epoll_event,
}

/// What one look has found.
#[derive(Default)]
pub struct Order {
    found: Vec<Found>,
    /// Places that an earlier look of the same call has reported.
    reported: Vec<usize>,
}

/// The newest that a look has found.
#[derive(Clone, Copy)]
pub struct Newest {
    now: u64,
    rank: u32,
}

impl Order {
    /// Begins a look.
    #[inline]
    pub fn begin(&mut self) {
        self.found.clear();
        self.reported.clear();
    }

    /// Begins a further look of the same call.
    pub fn go_on(&mut self) {
        self.reported.extend(self.found.drain(..).map(|found| found.place));
    }

    /// Whether an earlier look of this call has reported the stream at this place.
    #[inline]
    pub fn is_reported(&self, place: usize) -> bool {
        !self.reported.is_empty() && self.reported.contains(&place)
    }

    /// The stream at this place is ready.
    pub fn add(&mut self, place: usize, stamp: u32, event: epoll_event) {
        self.found.push(Found { place, stamp, rank: (0, self.found.len()), event });
    }

    /// How many were found.
    #[inline]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether the one that was found as number `at` is the one at this place.
    pub fn is_at(&self, at: usize, place: usize) -> bool {
        self.found.get(at).is_some_and(|found| found.place == place)
    }

    /// The newest that was found; `None` if nothing was.
    pub fn newest(&self) -> Option<Newest> {
        let now = clock::now();
        let rank = self.found.iter().map(|found| rank(found.stamp, now)).max()?;
        Some(Newest { now, rank })
    }

    /// Reports to the program: the oldest first, those without a stamp before all others.
    pub fn report(&mut self, events: &mut Events) {
        if self.found.len() > 1 {
            let now = clock::now();
            for found in &mut self.found {
                found.rank.0 = rank(found.stamp, now);
            }
            self.found.sort_unstable_by_key(|found| found.rank);
        }
        for found in &self.found {
            events.push(found.event);
        }
    }
}

impl Newest {
    /// The stamp of a stream that became ready before.
    #[inline]
    pub fn is_after(self, interest: &Interest) -> Option<u32> {
        let stamp = stamp_of(interest);
        (stamp != 0 && rank(stamp, self.now) < self.rank).then_some(stamp)
    }
}

/// The stamp of what lies at the front; 0 if nothing does, or it has none.
#[inline]
pub fn stamp_of(interest: &Interest) -> u32 {
    let end = interest.end();
    if end.maybe_readable() { end.stamp_of_front() } else { 0 }
}

#[allow(unsafe_code, reason = "an array of events")]
#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_wire::record::{stamp, stamped};

    #[test]
    fn epoll_reports_the_oldest_first() {
        let mut array = [epoll_event { events: 0, u64: 0 }; 5];
        // SAFETY: five events.
        let mut events = unsafe { Events::new(array.as_mut_ptr(), 5) }.unwrap();
        let mut order = Order::default();
        order.begin();
        let now = clock::now();
        for (name, age) in [(1, Some(10)), (2, Some(500)), (3, None), (4, Some(30)), (5, None)] {
            let stamp = age.map_or(0, |age| stamp(stamped(0, now.wrapping_sub(age))));
            order.add(0, stamp, epoll_event { events: 1, u64: name });
        }
        order.report(&mut events);
        assert_eq!(array.map(|event| event.u64), [3, 5, 2, 4, 1]);
    }
}
