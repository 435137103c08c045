//! A cable under test, and the events that its ports reported.

use super::Cable;
use crate::{DownReason, Event, Port};
use crosslane_wire::SegmentRange;
use crosslane_wire::segment::PAGE;
use std::time::{Duration, Instant};

/// How long a check waits for a condition before it fails.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes behind each window that [`Rig::new`] sets: twice as much fits into the smallest bridges, of 1 MB.
pub(super) const WINDOW: u64 = 112 * PAGE;

/// Events that one side has reported since the last check.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Doorbells, once for each report.
    pub(super) bells: Vec<u32>,
    /// Link-ups.
    pub(super) ups: usize,
    /// The reason of each link-down.
    pub(super) downs: Vec<DownReason>,
}

impl Seen {
    fn note(&mut self, event: Event) {
        match event {
            Event::LinkUp => self.ups += 1,
            Event::LinkDown(reason) => self.downs.push(reason),
            Event::Doorbell(bits) => self.bells.push(bits),
        }
    }

    /// All doorbells reported.
    pub(super) fn bits(&self) -> u32 {
        self.bells.iter().fold(0, |all, bits| all | bits)
    }
}

/// A cable, with what its ports reported.
#[derive(Debug)]
pub struct Rig<C> {
    pub(super) cable: C,
    pub(super) a: Seen,
    pub(super) b: Seen,
    b_lives: bool,
}

impl<C: Cable> Rig<C> {
    /// Takes a cable with both sides plugged in.
    pub fn new(mut cable: C) -> Self {
        set_windows(cable.a());
        set_windows(cable.b());
        Self { cable, a: Seen::default(), b: Seen::default(), b_lives: true }
    }

    /// Polls both sides for all their events, then lets time pass.
    pub(super) fn turn(&mut self) {
        self.poll();
        self.cable.pass();
        self.poll();
    }

    /// Polls side A for all its events.
    pub(super) fn poll_a(&mut self) {
        drain(self.cable.a(), &mut self.a);
    }

    fn poll(&mut self) {
        self.poll_a();
        if self.b_lives {
            drain(self.cable.b(), &mut self.b);
        }
    }

    /// Waits until `done` returns `true`.
    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !done(self) {
            assert!(
                Instant::now() < deadline,
                "not within {DEADLINE:?}: {what}; saw {:?} and {:?}",
                self.a,
                self.b
            );
            self.turn();
        }
    }

    /// Waits until both sides are up, and forgets the events up to then.
    pub(super) fn up(&mut self) -> &mut Self {
        self.until("both sides are up", |rig| rig.cable.a().is_up() && rig.cable.b().is_up());
        (self.a, self.b) = (Seen::default(), Seen::default());
        self
    }

    /// Kills side B and waits until side A has seen it.
    pub(super) fn kill_b(&mut self) {
        self.cable.kill_b();
        self.b_lives = false;
        self.until("side a saw the death", |rig| !rig.cable.a().is_up());
    }

    /// Revives side B and waits until both are up.
    pub(super) fn revive_b(&mut self) {
        self.cable.revive_b();
        self.b_lives = true;
        set_windows(self.cable.b());
        self.up();
    }
}

/// A range of whole pages.
pub(super) fn pages(first: u64, count: u64) -> SegmentRange {
    SegmentRange { offset: first * PAGE, len: count * PAGE }
}

pub(super) fn set_windows(port: &mut impl Port) {
    for window in 0..port.info().windows {
        // Windows that have segments keep their length.
        let _ = port.set_inbound(window, WINDOW);
    }
}

fn drain(port: &mut impl Port, seen: &mut Seen) {
    // Bounded: a port that never stops reporting is broken.
    for _ in 0..100_000 {
        let Some(event) = port.poll_event() else { return };
        seen.note(event);
    }
    panic!("events without end: {seen:?}");
}
