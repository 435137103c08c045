//! Streams of a large set that a look passes over: *cold* ones, whose far sides ring by name when something comes.
//!
//! A look at a stream loads lines of several pages. Of a thousand streams these are in no cache, and their addresses in no translation
//! buffer, so that each look costs a tenth of a microsecond for each stream, whether it has news or not. In a set of [`MANY`] streams and
//! more those without news are asked to ring, looked at once more, and are cold from then on:
//! ```text
//!   hot --no news for as many looks as a wake takes, or before a sleep: ask for a wake, look again, nothing--> cold
//!   hot <--a wake that names it; its carrier socket's news; epoll_ctl, shutdown------------------ cold
//!   all hot <--a wake that names nobody, or more wakes than the queue takes, so that names may be lost;
//!              a call somewhere that found no room; a stream that another process gets----------- any
//! ```
//! A far side that stores and then finds the request rings; one whose store came before the request was seen by the look behind it
//! ([`crosslane_shm::arm`]). So a stream is never cold where stores may be under way, nor where another process holds it, too.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use crosslane_shm::clock;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// A set of so many streams has cold ones.
const MANY: usize = 64;
/// While no more streams than these are looked at, they stay hot until the thread sleeps: a wake would take longer than looks at them.
const FEW: usize = 8;
/// What the looks at one stream may take without finding anything before it becomes cold: about as long as each side of the wake that it
/// will take then, 1 us, in units of [`Looked`].
const WAKE: u32 = 50 * PART;
/// Parts of a unit of the clock, 20 ns, in which looks are counted.
const PART: u32 = 64;

/// How long looks at one stream have taken so far, in parts of 0.3 ns; it begins again at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked(u32);

impl Looked {
    /// After a look at so many streams, which began at `begin` of [`clock::now`].
    pub fn add(&mut self, begin: u64, streams: usize) {
        // A thread that was interrupted meanwhile has looked no longer.
        let units = clock::now().saturating_sub(begin).min(streams as u64 * u64::from(WAKE / PART / 8));
        let parts = units * u64::from(PART) / streams.max(1) as u64;
        self.0 = self.0.wrapping_add(u32::try_from(parts).unwrap_or(0));
    }

    /// Whether looks have taken as long as a wake since then.
    #[inline]
    pub fn is_past(self, since: Self) -> bool {
        is_tried() || self.0.wrapping_sub(since.0) >= WAKE
    }
}

/// Whether a set of so many streams has cold ones.
#[inline]
pub fn is_many(streams: usize) -> bool {
    streams >= if is_tried() { 1 } else { MANY }
}

/// Whether so many hot streams are few.
#[inline]
pub fn are_few(hot: usize) -> bool {
    hot <= if is_tried() { 0 } else { FEW }
}

/// Whether streams become cold at once in any set, for tests: `CROSSLANE_TEST_COLD`, in builds with assertions.
#[inline]
fn is_tried() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    cfg!(debug_assertions) && *TRIED.get_or_init(|| std::env::var_os("CROSSLANE_TEST_COLD").is_some())
}

/// The name in a wake by which a set has its own sleepers look: no stream's in particular.
pub const HOT: u32 = u32::MAX;

/// Counted when another process may hold a stream of this one from now on.
static SHARED: AtomicU32 = AtomicU32::new(0);

/// Another process may hold streams of this one from now on: sets look at all of theirs again.
pub fn shared() {
    SHARED.fetch_add(1, Release);
}

/// What makes all streams of a process's sets hot again, when it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upheavals {
    shared: u32,
    edges: u32,
}

impl Upheavals {
    /// All so far.
    #[inline]
    pub fn now() -> Self {
        Self { shared: SHARED.load(Acquire), edges: crosslane_client::edges() }
    }
}

/// Which places of a set are cold, and which have which name.
#[derive(Debug, Default)]
pub struct Cold {
    /// A bit for each place that is.
    bits: Vec<u64>,
    count: usize,
    names: BTreeSet<(u32, usize)>,
}

/// Places that a look passes, beginning where the last one ended.
#[derive(Debug)]
pub struct Round {
    at: usize,
    end: usize,
    /// Where it ends behind the last place.
    rest: usize,
}

impl Round {
    /// Round `len` places from `start` on.
    #[inline]
    pub fn new(start: usize, len: usize) -> Self {
        if start < len {
            Self { at: start, end: len, rest: start }
        } else {
            Self { at: 0, end: len, rest: 0 }
        }
    }
}

impl Cold {
    /// The next place of a round that is not cold.
    #[inline]
    pub fn next_hot(&self, round: &mut Round) -> Option<usize> {
        loop {
            if let Some(place) = self.hot_from(round.at, round.end) {
                round.at = place + 1;
                return Some(place);
            }
            (round.at, round.end) = (0, core::mem::take(&mut round.rest));
            if round.end == 0 {
                return None;
            }
        }
    }

    #[inline]
    fn hot_from(&self, mut at: usize, end: usize) -> Option<usize> {
        if self.count == 0 {
            return (at < end).then_some(at);
        }
        while at < end {
            let hot = !self.bits.get(at / 64).copied().unwrap_or(0) >> (at % 64);
            if hot != 0 {
                return Some(at + hot.trailing_zeros() as usize).filter(|&place| place < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// How many are cold.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The stream at this place becomes cold.
    pub fn cool(&mut self, place: usize) {
        if self.bits.len() <= place / 64 {
            self.bits.resize(place / 64 + 1, 0);
        }
        let before = self.bits[place / 64];
        self.bits[place / 64] |= 1 << (place % 64);
        self.count += usize::from(before != self.bits[place / 64]);
    }

    /// The stream at this place is looked at again.
    #[inline]
    pub fn heat(&mut self, place: usize) {
        if let Some(word) = self.bits.get_mut(place / 64) {
            let bit = 1 << (place % 64);
            self.count -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// All are looked at again.
    pub fn heat_all(&mut self) {
        self.bits.clear();
        self.count = 0;
    }

    /// The stream at this place has this name.
    pub fn add(&mut self, name: u32, place: usize) {
        self.heat(place);
        self.names.insert((name, place));
    }

    /// It has gone.
    pub fn remove(&mut self, name: u32, place: usize) {
        self.heat(place);
        self.names.remove(&(name, place));
    }

    /// The streams with this name are looked at again; calls `each` with their places.
    pub fn heat_named(&mut self, name: u32, mut each: impl FnMut(usize)) {
        let mut from = 0;
        while let Some(&(_, place)) = self.names.range((name, from)..=(name, usize::MAX)).next() {
            self.heat(place);
            each(place);
            from = place + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cold: &Cold, start: usize, len: usize) -> Vec<usize> {
        let mut round = Round::new(start, len);
        core::iter::from_fn(|| cold.next_hot(&mut round)).collect()
    }

    #[test]
    fn epoll_round_passes_over_cold_places() {
        let mut cold = Cold::default();
        for (start, len) in [(0, 0), (0, 1), (3, 5), (5, 5), (9, 5), (64, 130)] {
            let start_at = if start < len { start } else { 0 };
            let all: Vec<_> = (start_at..len).chain(0..start_at).collect();
            assert_eq!(round(&cold, start, len), all, "{start} of {len}");
        }
        for place in (0..200).filter(|place| place % 67 != 1) {
            cold.cool(place);
            cold.cool(place);
        }
        assert_eq!((cold.count(), round(&cold, 0, 200)), (197, vec![1, 68, 135]));
        assert_eq!(round(&cold, 69, 200), [135, 1, 68]);
        assert_eq!(round(&cold, 0, 210).len(), 13, "places that were added since are hot");
        [128, 128, 1000].into_iter().for_each(|place| cold.heat(place));
        assert_eq!(cold.count(), 196);
        assert_eq!(round(&cold, 100, 200), [128, 135, 1, 68]);
        cold.heat_all();
        assert_eq!((cold.count(), round(&cold, 0, 200).len()), (0, 200));
    }

    #[test]
    fn epoll_looks_take_as_long_as_a_wake_at_some_time() {
        let (mut looked, since) = (Looked::default(), Looked(u32::MAX - 5));
        assert!(!Looked(since.0.wrapping_add(WAKE - 1)).is_past(since), "it begins again at 0");
        assert!(Looked(since.0.wrapping_add(WAKE)).is_past(since));
        looked.add(clock::now().saturating_sub(u64::from(WAKE / PART)), 20);
        assert!(!looked.is_past(Looked::default()), "a part of a wake each");
        (0..9).for_each(|_| looked.add(0, 1));
        assert_eq!(
            looked.is_past(Looked::default()),
            clock::now() > 0,
            "interrupted looks count an eighth of a wake"
        );
        looked.add(clock::now(), 0);
    }

    #[test]
    fn epoll_names_find_all_places() {
        let mut cold = Cold::default();
        cold.add(7, 3);
        cold.cool(3);
        cold.add(7, 900);
        cold.add(8, 4);
        let named = |cold: &mut Cold, name| {
            let mut places = Vec::new();
            cold.heat_named(name, |place| places.push(place));
            (places, cold.count())
        };
        assert_eq!(named(&mut cold, 8), (vec![4], 1));
        assert_eq!(named(&mut cold, 7), (vec![3, 900], 0));
        cold.cool(3);
        cold.remove(7, 3);
        assert_eq!(named(&mut cold, 7), (vec![900], 0));
        assert_eq!(named(&mut cold, 9), (vec![], 0));
    }
}
