//! When a sleeper that has armed a wake-up may sleep, where stores are *posted*: under way for a while.
//!
//! A sleeper stores its waiter's number (a `WANT` word) into the far side's memory, fences, looks once more and sleeps. The far
//! side stores (data, credit, any word), fences, looks at the `WANT` word in its own memory, and rings. In coherent memory one
//! of the two looks sees the other side's store. Over a PCIe non-transparent bridge both may miss it, for a store is under way
//! for up to `out` ns from here to there, and up to `in` ns from there to here:
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
//! - A look of the far side's at `t0 + out` or later sees the `WANT` word, and rings.
//! - One before that may miss it. But what it is to tell was stored before that look, so before `t0 + out`, and has landed by
//!   `t0 + out + in`, the end of the *flight*.
//!
//! So a look of the sleeper's at the end of the flight, or later, finds all that it is not rung for. Before that it sleeps with a
//! bound that ends there, at the latest: a port says how long a store may be under way, and most are there much sooner, so
//! it looks when twice as long has passed as at the last look (first after 50 us): late by no more than what it looks for took.
//! This holds for every word that a sleeper is rung for, if what it looks at has all of them.
//!
//! A wake may overtake the store that it speaks of. A sleeper that was woken and finds nothing must arm anew, by a new sequence
//! number, and with a new flight: what it was sent for has landed by the end of that.
//!
//! Where nothing is posted (`out + in` is 0) there is no flight, no time is read, and the only cost is one branch.

use core::ops::{Add, Sub};
use core::time::Duration;

/// What a sleeper has armed, for one sleep or, if it stays armed, for several. `T` is a moment of a clock that never goes back: an
/// [`Instant`](std::time::Instant), or a [`Duration`] since some beginning.
#[derive(Clone, Copy, Debug)]
pub struct Armed<T> {
    /// When the last request was made, and the end of the flight; `None`: it is over, or there was none.
    flight: Option<(T, T)>,
}

/// Time between the request and the second look, if the flight is longer: less than a processor takes to sleep and to wake.
const SECOND_LOOK: Duration = Duration::from_micros(50);

/// How long the next sleep may last, if the look that follows this answer finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSleep {
    /// At most so long; then look, and ask again. Not armed anew in between, unless a wake came.
    Bounded(Duration),
    /// Until it is rung.
    Unbounded,
}

impl<T> Armed<T> {
    /// Nothing is armed.
    pub const NOTHING: Self = Self { flight: None };

    /// Whether it may be under way, or might when the time was last looked at.
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
    /// A `WANT` word was stored, and a full fence has followed. `in_flight_ns` is how long it and then a store of the far
    /// side's may be under way together; `now` reads the clock, which is not done if that is 0. Of several words the flight that ends last counts.
    #[inline]
    pub fn arm(&mut self, in_flight_ns: u32, now: impl FnOnce() -> T) {
        if in_flight_ns > 0 {
            let now = now();
            let end = now + Duration::from_nanos(in_flight_ns.into());
            self.flight = Some((now, self.flight.map_or(end, |(_, until)| until.max(end))));
        }
    }

    /// How long to sleep next. The time is read here, so **look behind this call**, and sleep only if there is nothing.
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

    /// Whether there is one.
    #[inline]
    pub fn is_bounded(self) -> bool {
        self != Self::Unbounded
    }

    /// `timeout`, or the bound if that is sooner; `None` is for ever.
    #[inline]
    pub fn limit(self, timeout: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Bounded(time) => Some(timeout.map_or(time, |timeout| timeout.min(time))),
            Self::Unbounded => timeout,
        }
    }

    /// That of several sleepers which are one.
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
    fn looks_during_a_long_flight_are_few_and_late_by_less_than_has_passed() {
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
