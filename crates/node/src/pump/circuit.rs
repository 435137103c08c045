//! A circuit that passes through: two sides, a direction each way.

use super::flow::{Fault, Flow, Turn};
use super::leg::{Leg, Side};
use super::report::{Report, Reports};
use super::{Traffic, TransitId};
use crosslane_shm::Store;
use crosslane_shm::arm::Armed;
use crosslane_shm::wait::Budget;
use crosslane_shm::wake::{Receiver, Waker};
use crosslane_wire::WaiterId;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A circuit at work.
#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) transit: TransitId,
    sides: [Side; 2],
    flows: [Flow; 2],
    traffic: Arc<Traffic>,
    /// Rung by those neighbours that were asked for wakes.
    receiver: Arc<Receiver>,
    /// How long it paid, lately, to poll it while nothing moved.
    budget: Budget,
    /// Something has moved since it was last asked.
    moved: bool,
    quiet_since: Option<Instant>,
    /// Both sides were asked for wakes.
    armed: bool,
    /// How long that may be under way: so long the rings are polled after it.
    requests: Armed<Instant>,
    /// Since when it sleeps.
    asleep: Option<Instant>,
    /// A side broke the protocol: nothing moves any more.
    broken: bool,
    /// Legs of which the daemon knows that nothing more lies there.
    told_dry: [bool; 2],
}

impl Circuit {
    /// Takes the legs over, and says so to both neighbours. `limit_ns`: how long it may be polled while nothing moves.
    pub(super) fn new(
        transit: TransitId,
        legs: [Leg; 2],
        waiter: WaiterId,
        receiver: Arc<Receiver>,
        traffic: Arc<Traffic>,
        limit_ns: u32,
    ) -> Self {
        let sides = legs.map(|leg| Side::attach(leg, waiter));
        let [a, b] = &sides;
        let flows = [Flow::new(a, b), Flow::new(b, a)];
        let budget = Budget::default();
        budget.reset(limit_ns);
        Self {
            transit,
            sides,
            flows,
            traffic,
            receiver,
            budget,
            moved: false,
            quiet_since: None,
            armed: false,
            requests: Armed::NOTHING,
            asleep: None,
            broken: false,
            told_dry: [false; 2],
        }
    }

    /// Pumps both ways; whether anything moved.
    pub(super) fn run_once(&mut self, cpu: u16, reports: &Reports) -> bool {
        if self.armed {
            // A turn that finds too little to tell would leave answered requests behind.
            if !self.may_have_work() {
                return false;
            }
            self.disarm();
        }
        let mut moved = false;
        for leg in [0, 1] {
            if self.broken {
                break;
            }
            match self.pump(leg, cpu) {
                Ok(turn) => {
                    moved |= turn.moved;
                    self.traffic.add(leg, turn.bytes);
                }
                Err(fault) => {
                    self.broken = true;
                    reports.push(self.violated(leg, fault));
                }
            }
        }
        if moved {
            self.moved = true;
            self.report(reports);
        }
        moved
    }

    fn pump(&mut self, leg: usize, cpu: u16) -> Result<Turn, Fault> {
        let (flow, from, to) = self.way(leg);
        flow.run_once(from, to, cpu)
    }

    /// The direction that comes from `leg`, with both its sides.
    fn way(&mut self, leg: usize) -> (&mut Flow, &mut Side, &mut Side) {
        let [a, b] = &mut self.sides;
        let (from, to) = if leg == 0 { (a, b) } else { (b, a) };
        (&mut self.flows[leg], from, to)
    }

    fn violated(&self, leg: usize, fault: Fault) -> Report {
        let (leg, why) = match fault {
            Fault::From(why) => (leg, why),
            Fault::To(why) => (1 - leg, why),
        };
        Report::Violated { transit: self.transit, leg, why: why.to_string() }
    }

    /// Tells the daemon what it must do and wants to know.
    fn report(&mut self, reports: &Reports) {
        let transit = self.transit;
        for leg in [0, 1] {
            for waiter in self.sides[leg].unrung.drain(..) {
                reports.push(Report::Wake { transit, leg, waiter });
            }
            if self.sides[leg].closed && self.flows[leg].has_ended() && !self.told_dry[leg] {
                self.told_dry[leg] = true;
                reports.push(Report::Dry { transit, leg });
            }
        }
    }

    /// Nothing more comes from this leg, and nobody reads there.
    pub(super) fn close(&mut self, leg: usize, reports: &Reports) {
        self.sides[leg].closed = true;
        self.report(reports);
    }

    /// The daemon has looked for a waiter of this leg.
    pub(super) fn answer(&mut self, leg: usize, waiter: WaiterId, waker: Option<Waker>) {
        self.sides[leg].wakers.answer(waiter, waker);
    }

    /// Whether a turn would find something to do.
    pub(super) fn may_have_work(&self) -> bool {
        let [a, b] = &self.sides;
        !self.broken && (self.flows[0].may_have_work(a, b) || self.flows[1].may_have_work(b, a))
    }

    /// Whether it is to be polled no longer: nothing has moved for as long as it paid to poll, lately, and both sides
    /// were asked for wakes. To be called now and then between turns.
    pub(super) fn settles(&mut self, now: Instant, limit_ns: u32, cpu: u16, reports: &Reports) -> bool {
        if std::mem::take(&mut self.moved) {
            if self.quiet_since.take().is_some() {
                self.budget.spun(limit_ns);
            }
            self.disarm();
            return false;
        }
        if self.armed {
            return self.has_landed(now);
        }
        let quiet = now - *self.quiet_since.get_or_insert(now);
        let polls = if self.crowds(cpu) { 0 } else { self.budget.ns(limit_ns) };
        quiet >= Duration::from_nanos(polls.into()) && self.arm(now, reports)
    }

    /// Whether a neighbour of the circuit ran on this processor when it wrote last: it cannot run while we do.
    pub(super) fn crowds(&self, cpu: u16) -> bool {
        self.flows.iter().any(|flow| flow.comes_from(cpu))
    }

    /// Whether the requests for wakes, and what they are not answered for, have landed by now, and nothing came.
    fn has_landed(&mut self, now: Instant) -> bool {
        !self.requests.next_sleep(|| now).is_bounded() && !self.may_have_work()
    }

    /// How long nobody need look at it, if it has asked for wakes and only waits until that has landed. To be followed by a
    /// look, [`Self::may_have_work`].
    pub(super) fn rest(&mut self, now: Instant) -> Option<Duration> {
        if !self.armed {
            return None;
        }
        self.requests.next_sleep(|| now).bound().filter(|_| !self.may_have_work())
    }

    /// Asks both sides for wakes; whether nothing came meanwhile and no request is under way.
    fn arm(&mut self, now: Instant, reports: &Reports) -> bool {
        self.armed = true;
        self.requests = Armed::NOTHING;
        self.asleep.get_or_insert(now);
        if self.broken {
            return true;
        }
        for leg in [0, 1] {
            let (flow, from, to) = self.way(leg);
            flow.arm(from, to);
        }
        for side in &self.sides {
            side.leg.outbound.fence();
            self.requests.arm(side.leg.in_flight_ns, Instant::now);
        }
        self.report(reports);
        let maybe_readable = self.may_have_work();
        if maybe_readable {
            self.disarm();
        }
        !maybe_readable && !self.requests.is_under_way()
    }

    fn disarm(&mut self) {
        self.asleep = None;
        if std::mem::take(&mut self.armed) {
            self.sides.iter().for_each(Side::unwant);
        }
    }

    /// Its wake event.
    pub(super) fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Its wake came while it was polled. That may have been an answer to requests that it has made already, to sleep
    /// next: they are made anew.
    pub(super) fn hush(&mut self) {
        self.receiver.clear();
        self.disarm();
    }

    /// Its wake came while it slept: whether it sleeps on. The wake may have been an answer to its requests though nothing
    /// is there, for what was stored before a ring may be consumed before it. So they are made anew.
    pub(super) fn sleeps_on(&mut self, now: Instant, limit_ns: u32, reports: &Reports) -> bool {
        self.receiver.clear();
        let sleeps = !self.may_have_work() && self.arm(now, reports);
        if !sleeps {
            self.wake(now, limit_ns);
        }
        sleeps
    }

    /// It is to be polled again.
    pub(super) fn wake(&mut self, now: Instant, limit_ns: u32) {
        if let Some(asleep) = self.asleep.take() {
            let slept = u64::try_from((now - asleep).as_nanos()).unwrap_or(u64::MAX);
            self.budget.slept(slept, limit_ns);
        }
        self.quiet_since = None;
        self.disarm();
    }
}
