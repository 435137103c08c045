//! How long a thread that has armed a wake-up may sleep over a port that *posts* stores, so that they land some time later.
//!
//! A sleeper stores its waiter's id (a `WANT` word) into the far side's memory, fences, looks once more and sleeps. The far
//! side stores (data, credit, any word), fences, reads the `WANT` word in its own memory, and wakes the waiter. In coherent
//! memory one of the two looks sees the other side's store. Over a PCIe non-transparent bridge both may miss it, since a store
//! takes up to `out` ns from here to there, and up to `in` ns from there to here:
//!
//! ```text
//!   sleeper     WANT stored   look: nothing                              look again: there
//!               | t0          |                                          | not before t0 + out + in
//!               +-----\-------+-------------------/----------------------+-----> sleeps without a bound
//!                      \  at most out            /  at most in
//!                       \                       /
//!   far side   ----------\---------------------/------------------------------->
//!                 ^       ^ WANT lands        ^
//!                 |                           data stored before the look that misses WANT, so before t0 + out
//!                 data stored, look: no WANT
//! ```
//! - A far side that reads the `WANT` word at `t0 + out` or later sees it, and wakes the sleeper.
//! - One that reads it earlier may miss it. But it stored its data before that read, so before `t0 + out`, and the data has
//!   landed by `t0 + out + in`, the end of the *flight*.
//!
//! So a sleeper that looks at the end of the flight, or later, finds everything for which no waker wakes it. Until then it
//! sleeps with a time-out that ends there at the latest. `out` and `in` are the port's upper bounds; most stores land much
//! sooner. So the sleeper looks first after 50 us, then whenever the time since `t0` has doubled: it finds a store at most as
//! late again as that store took. The argument holds for every word that the far side wakes a sleeper for, provided that the
//! sleeper's look reads all of them.
//!
//! A wake may overtake the store that caused it. A sleeper that was woken and finds nothing must arm again, with a new sequence
//! number and so a new flight, by whose end the store has landed.
//!
//! Where nothing is posted (`out + in` is 0) there is no flight, no time is read, and the only cost is one branch.

use core::ops::{Add, Sub};
use core::time::Duration;

/// The requests for a wake-up that a sleeper has stored, for one sleep or, if they stay stored, for several. `T` is a
/// time of a monotonic clock: an [`Instant`](std::time::Instant), or a [`Duration`] since the clock's start.
#[derive(Clone, Copy, Debug)]
pub struct Armed<T> {
    /// The time of the last request, and the end of the flight; `None` if the flight is over or nothing was armed.
    flight: Option<(T, T)>,
}

/// Factor by which a sleeper multiplies each ns of the ports' bounds: where a thread makes a port's stores land, they are late while
/// that thread gets no processor. Since the sleeper looks less often the longer it waits, the factor costs only four more looks in all.
const MARGIN: u32 = 16;

/// Length of the flight of a request, ns, over ports whose bounds are `out_ns` and `in_ns`; 0 where nothing is posted.
#[inline]
pub const fn flight_ns(out_ns: u32, in_ns: u32) -> u32 {
    out_ns.saturating_add(in_ns).saturating_mul(MARGIN)
}

/// Time from the request to the first look during a flight, if the flight is longer: less than a thread takes to sleep and wake.
const SECOND_LOOK: Duration = Duration::from_micros(50);

/// How long the next sleep may last, if the look after this answer finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSleep {
    /// At most this long; then look, and call [`Armed::next_sleep`] again. Arm again only after a wake.
    Bounded(Duration),
    /// Until a waker wakes the thread.
    Unbounded,
}

impl<T> Armed<T> {
    /// Nothing is armed.
    pub const NOTHING: Self = Self { flight: None };

    /// Whether a flight had not ended when the clock was read last.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.flight.is_some()
    }
}

impl<T> Default for Armed<T> {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl<T: Copy + Ord + Add<Duration, Output = T> + Sub<Output = Duration>> Armed<T> {
    /// To be called after a `WANT` word was stored and a full fence followed. `in_flight_ns` is `out + in`; if it is 0, `now` is
    /// not called. Of several words the flight that ends last counts.
    #[inline]
    pub fn arm(&mut self, in_flight_ns: u32, now: impl FnOnce() -> T) {
        if in_flight_ns > 0 {
            let now = now();
            let end = now + Duration::from_nanos(in_flight_ns.into());
            self.flight = Some((now, self.flight.map_or(end, |(_, until)| until.max(end))));
        }
    }

    /// How long the next sleep may last. Reads the clock; so call this **before** the look, and sleep only if the look finds
    /// nothing.
    #[inline]
    pub fn next_sleep(&mut self, now: impl FnOnce() -> T) -> NextSleep {
        let Some((since, until)) = self.flight else { return NextSleep::Unbounded };
        let now = now();
        if now < until {
            return NextSleep::Bounded((until - now).min((now - since).max(SECOND_LOOK)));
        }
        self.flight = None;
        NextSleep::Unbounded
    }
}

impl NextSleep {
    /// The bound, if there is one.
    #[inline]
    pub fn bound(self) -> Option<Duration> {
        match self {
            Self::Bounded(time) => Some(time),
            Self::Unbounded => None,
        }
    }

    /// Whether the sleep has a bound.
    #[inline]
    pub fn is_bounded(self) -> bool {
        self != Self::Unbounded
    }

    /// `timeout`, or the bound if it ends sooner; `None` is for ever.
    #[inline]
    pub fn limit(self, timeout: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Bounded(time) => Some(timeout.map_or(time, |timeout| timeout.min(time))),
            Self::Unbounded => timeout,
        }
    }

    /// The shorter of two sleeps, for a thread that sleeps for both.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        self.limit(other.bound()).map_or(Self::Unbounded, Self::Bounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const fn ns(count: u64) -> Duration {
        Duration::from_nanos(count)
    }

    #[test]
    fn sleep_has_no_bound_and_reads_no_clock_where_nothing_is_posted() {
        let mut armed = Armed::<Instant>::NOTHING;
        armed.arm(0, || panic!("the clock was read"));
        assert_eq!(armed.next_sleep(|| panic!("the clock was read")), NextSleep::Unbounded);
    }

    #[test]
    fn sleep_is_bounded_until_the_flight_is_over() {
        let mut armed = Armed::NOTHING;
        armed.arm(3000, || ns(100));
        assert_eq!(armed.next_sleep(|| ns(200)), NextSleep::Bounded(ns(2900)));
        assert_eq!(armed.next_sleep(|| ns(3099)), NextSleep::Bounded(ns(1)));
        assert_eq!(armed.next_sleep(|| ns(3100)), NextSleep::Unbounded);
        assert_eq!(armed.next_sleep(|| panic!("the flight is over")), NextSleep::Unbounded);
    }

    #[test]
    fn sleep_during_a_long_flight_looks_seldom_and_soon_enough() {
        let (mut armed, flight) = (Armed::NOTHING, 40_000_000);
        armed.arm(flight, || ns(7));
        let (mut passed, mut looks) = (ns(0), 0);
        while let NextSleep::Bounded(time) = armed.next_sleep(|| ns(7) + passed) {
            assert!(time <= passed.max(SECOND_LOOK), "{time:?} after {passed:?}");
            (passed, looks) = (passed + time, looks + 1);
        }
        assert_eq!((passed, looks), (ns(flight.into()), 11));
    }

    #[test]
    fn sleep_for_several_is_bounded_by_the_flight_that_ends_last() {
        let mut armed = Armed::NOTHING;
        armed.arm(3000, || ns(100));
        armed.arm(0, || panic!("the clock was read"));
        armed.arm(500, || ns(200));
        assert_eq!(armed.next_sleep(|| ns(200)), NextSleep::Bounded(ns(2900)));
        armed.arm(3000, || ns(300));
        assert_eq!(armed.next_sleep(|| ns(300)), NextSleep::Bounded(ns(3000)));
    }

    #[test]
    fn sleep_ends_at_the_sooner_of_timeout_and_bound() {
        let (bounded, unbounded) = (NextSleep::Bounded(ns(10)), NextSleep::Unbounded);
        assert_eq!((bounded.limit(None), bounded.limit(Some(ns(5)))), (Some(ns(10)), Some(ns(5))));
        assert_eq!((unbounded.limit(None), unbounded.limit(Some(ns(5)))), (None, Some(ns(5))));
        assert_eq!((bounded.sooner(unbounded), unbounded.sooner(unbounded)), (bounded, unbounded));
        assert_eq!(bounded.sooner(NextSleep::Bounded(ns(7))), NextSleep::Bounded(ns(7)));
    }
}
