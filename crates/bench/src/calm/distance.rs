//! How far two processors are from each other: how long a cache line is on its way between them; and how fast both are.
//!
//! A virtual machine's processors may run close together in one moment and on two sockets in the next, as the hypervisor
//! places them; what shares memory is several times faster in the one than in the other.

use super::speed::work;
use crate::affinity::{Cores, Pin};
use crate::clock::clock;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// Round trips of a batch, and batches, of which the fastest counts.
const TRIPS: u32 = 50;
const BATCHES: u32 = 5;
/// Time for all of it, ns: the other side may have to wait for its processor.
const PATIENCE: u64 = 20_000_000;

/// Factor by which two distances differ at least, and by which what is measured of one varies.
const APART: f64 = 2.5;
const NEAR: f64 = 1.6;
/// How often a distance is seen before it counts as one.
const SEEN: usize = 3;
/// How much is remembered: of more, every other look is forgotten.
const MOST: usize = 1000;

/// The distances that have been seen.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// ns; nothing is added once there are several distances.
    seen: Vec<f64>,
    /// The nearer one of several, ns.
    near: Option<f64>,
}

impl Known {
    /// Remembers a distance, ns.
    pub(super) fn add(&mut self, distance: f64) {
        if self.near.is_none() {
            if self.seen.len() == MOST {
                self.seen = self.seen.iter().copied().step_by(2).collect();
            }
            let at = self.seen.partition_point(|&other| other < distance);
            self.seen.insert(at, distance);
            self.near = nearer(&self.seen);
        }
    }

    /// Whether processors have been seen near to each other and farther apart.
    pub(super) fn has_several(&self) -> bool {
        self.near.is_some()
    }

    /// The distance of turns, ns: the nearer one, or the only one; `None` if nothing was seen.
    pub(super) fn usual(&self) -> Option<f64> {
        self.near.or_else(|| self.seen.get(self.seen.len() / 2).copied())
    }

    /// Whether turns are taken at such a distance, ns, which is remembered.
    pub(super) fn is_usual(&mut self, distance: f64) -> bool {
        self.add(distance);
        self.near.is_none_or(|near| (near / NEAR..=near * NEAR).contains(&distance))
    }
}

/// The nearer one of several distances among `sorted` ones; `None` if there is one only. Processors that move in the middle of a look give
/// values between two distances, so no gap is looked for: a distance is near if one look in ten finds it or a nearer one.
fn nearer(sorted: &[f64]) -> Option<f64> {
    let nearest = *sorted.get((sorted.len() / 10).max(SEEN - 1))?;
    let far = sorted.partition_point(|&distance| distance <= nearest * APART);
    let near = sorted.partition_point(|&distance| distance <= nearest * NEAR);
    (sorted.len() - far >= SEEN).then(|| sorted[near / 2])
}

/// A word of each side, on cache lines of their own (processors fetch pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// What is seen of two processors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Half a cache line's round trip between them, ns.
    pub(super) distance: f64,
    /// How long [`work`] takes while both do it, by the slower one, ns.
    pub(super) work: f64,
}

/// Looks at `cores`; `None` if they are one, may not be used, or if the other side does not answer in time.
pub(super) fn between(cores: Cores) -> Option<Look> {
    if cores.is_shared() {
        return None;
    }
    let (asked, answered, over) = (Line::default(), Line::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let answerer = || {
            // Without an answer nothing is measured.
            let _there = Pin::to(cores.far).ok()?;
            while !over.load(Relaxed) {
                answered.0.store(asked.0.load(Relaxed), Relaxed);
                spin_loop();
            }
            Some(work())
        };
        let other = thread::Builder::new().spawn_scoped(scope, answerer).ok()?;
        let here = Pin::to(cores.near);
        let distance = here.as_ref().ok().and_then(|_here| fastest(&asked, &answered));
        over.store(true, Relaxed);
        let near = work();
        let far = other.join().ok()??;
        Some(Look { distance: distance?, work: near.max(far) })
    })
}

/// Half a round trip of the fastest batch, ns.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn fastest(asked: &Line, answered: &Line) -> Option<f64> {
    let until = clock() + PATIENCE;
    let mut trip = 0;
    let mut batch = || {
        let begin = clock();
        for _ in 0..TRIPS {
            trip += 1;
            asked.0.store(trip, Relaxed);
            while answered.0.load(Relaxed) != trip {
                if clock() > until {
                    return None;
                }
                spin_loop();
            }
        }
        Some(clock() - begin)
    };
    // The first one waits for the other thread to start.
    batch()?;
    let fastest = (0..BATCHES).map(|_| batch()).collect::<Option<Vec<_>>>()?.into_iter().min()?;
    Some(fastest as f64 / f64::from(2 * TRIPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(distances: &[f64]) -> Known {
        let mut known = Known::default();
        distances.iter().for_each(|&distance| known.add(distance));
        known
    }

    #[test]
    fn distances_are_several_whatever_lies_between_them() {
        let mut looks: Vec<f64> = (0..20).map(|at| 30.0 + f64::from(at % 5)).collect();
        looks.extend([54.0, 75.0, 96.0, 120.0]);
        let mut known = known(&looks);
        assert!(!known.has_several(), "one look is no distance");
        for far in [163.0, 158.0, 161.0] {
            known.add(far);
        }
        assert!(known.has_several() && known.is_usual(31.0) && !known.is_usual(163.0));
        assert!((30.0..35.0).contains(&known.usual().unwrap()));
    }

    #[test]
    fn distance_is_learned_however_long_there_was_one() {
        let mut known = known(&[33.0; 3 * MOST]);
        assert!(!known.has_several() && known.seen.len() <= MOST);
        (0..SEEN).for_each(|_| known.add(160.0));
        assert!(known.has_several() && known.is_usual(33.0) && !known.is_usual(160.0));
    }

    #[test]
    fn distance_of_turns_is_the_nearer_one_if_there_are_several() {
        let mut known = known(&[260.0, 55.0, 262.0, 50.0, 258.0, 58.0]);
        assert_eq!(known.usual(), Some(55.0));
        assert!(known.is_usual(60.0) && known.is_usual(40.0));
        assert!(!known.is_usual(260.0) && !known.is_usual(15.0));
    }

    #[test]
    fn distance_is_always_usual_where_there_is_one() {
        let mut known = known(&[50.0, 60.0, 45.0, 200.0, 55.0, 70.0, 10.0]);
        assert!(!known.has_several(), "one odd value is no distance");
        assert_eq!(known.usual(), Some(55.0));
        assert!(known.is_usual(500.0));
        assert_eq!(Known::default().usual(), None);
    }

    #[test]
    fn distance_is_learned_when_processors_move_later() {
        let mut known = known(&[260.0; 10]);
        assert!(known.is_usual(50.0) && known.is_usual(51.0) && known.is_usual(52.0));
        assert!(known.has_several() && !known.is_usual(260.0));
    }

    #[test]
    fn distance_between_processors_is_some_nanoseconds() {
        let cores = Cores::pick_close().unwrap();
        if let Some(Look { distance, work }) = between(cores) {
            assert!((1.0..1e6).contains(&distance), "{distance} ns");
            assert!((10.0..1e8).contains(&work), "{work} ns");
        }
        assert!(between(Cores { far: cores.near, ..cores }).is_none());
    }
}
