//! A circuit that passes through this host: two sides, and a flow in each direction.

use super::flow::{Fault, Flow, Turn};
use super::leg::{Leg, Side};
use super::report::{Report, Reports};
use super::{Traffic, TransitId};
use crosslane_shm::Store;
use crosslane_shm::arm::Armed;
use crosslane_shm::wait::Budget;
use crosslane_shm::wake::{FarWaker, Receiver};
use crosslane_wire::WaiterId;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A circuit that a pump's thread forwards.
#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) transit: TransitId,
    sides: [Side; 2],
    flows: [Flow; 2],
    traffic: Arc<Traffic>,
    /// The wake event by which neighbours that were asked for it wake the pump.
    receiver: Arc<Receiver>,
    /// How long it pays to poll the circuit while nothing moves, from recent waits.
    budget: Budget,
    /// Bytes have moved since the last check.
    moved: bool,
    quiet_since: Option<Instant>,
    /// Both neighbours were asked to wake the pump.
    armed: bool,
    /// How long these requests may be under way: the rings are polled until then.
    requests: Armed<Instant>,
    /// When the circuit went to sleep, if it sleeps.
    asleep: Option<Instant>,
    /// A side broke the protocol: nothing is forwarded any more.
    broken: bool,
    /// Legs for which the daemon was told that nothing more lies there.
    told_dry: [bool; 2],
}

impl Circuit {
    /// Attaches to both legs, which tells the neighbours. `limit_ns`: how long it may be polled while nothing moves.
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

    /// Forwards in both directions; returns whether anything moved.
    pub(super) fn run_once(&mut self, cpu: u16, reports: &Reports) -> bool {
        if self.armed {
            // Otherwise a turn that finds too little to report could leave wake requests behind that were answered already.
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

    /// The flow that comes from `leg`, with both its sides.
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

    /// Reports to the daemon the waiters that it must wake and the legs that are drained.
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

    /// The daemon says that nothing more comes from this leg and that its neighbour does not read any more.
    pub(super) fn close(&mut self, leg: usize, reports: &Reports) {
        self.sides[leg].closed = true;
        self.report(reports);
    }

    /// The daemon's answer to the lookup of a waiter of this leg.
    pub(super) fn answer(&mut self, leg: usize, waiter: WaiterId, waker: Option<FarWaker>) {
        self.sides[leg].wakers.answer(waiter, waker);
    }

    /// Whether a turn would find work.
    pub(super) fn may_have_work(&self) -> bool {
        let [a, b] = &self.sides;
        !self.broken && (self.flows[0].may_have_work(a, b) || self.flows[1].may_have_work(b, a))
    }

    /// Whether polling should stop: nothing has moved for as long as polling pays, and both neighbours were asked to wake
    /// the pump. Called at intervals between turns.
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

    /// Whether a neighbour's last record was written on this processor: the neighbour cannot run while this thread does.
    pub(super) fn crowds(&self, cpu: u16) -> bool {
        let mut sides = self.flows.iter().zip(&self.sides);
        sides.any(|(flow, from)| from.leg.inbound.is_near() && flow.comes_from(cpu))
    }

    /// Whether the wake requests, and all stores that missed them, have landed by now, and nothing has arrived.
    fn has_landed(&mut self, now: Instant) -> bool {
        !self.requests.next_sleep(|| now).is_bounded() && !self.may_have_work()
    }

    /// How long the circuit need not be looked at, if it has requested wakes and only waits until the requests have
    /// landed. The caller must then look by [`Self::may_have_work`].
    pub(super) fn rest(&mut self, now: Instant) -> Option<Duration> {
        if !self.armed {
            return None;
        }
        self.requests.next_sleep(|| now).bound().filter(|_| !self.may_have_work())
    }

    /// Requests wakes from both sides; returns whether nothing has arrived meanwhile and no request is under way.
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

    /// The circuit's wake event.
    pub(super) fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// A wake arrived while the circuit was polled. It may have been the answer to the requests that it has stored in
    /// order to sleep: so they must be stored anew.
    pub(super) fn hush(&mut self) {
        self.receiver.clear();
        self.disarm();
    }

    /// A wake arrived while the circuit slept; returns whether it sleeps on. The wake may have answered a request although
    /// nothing is there, since a record may be consumed before the wake for it arrives. So the requests are stored anew.
    pub(super) fn sleeps_on(&mut self, now: Instant, limit_ns: u32, reports: &Reports) -> bool {
        self.receiver.clear();
        let sleeps = !self.may_have_work() && self.arm(now, reports);
        if !sleeps {
            self.wake(now, limit_ns);
        }
        sleeps
    }

    /// Polls the circuit again.
    pub(super) fn wake(&mut self, now: Instant, limit_ns: u32) {
        if let Some(asleep) = self.asleep.take() {
            let slept = u64::try_from((now - asleep).as_nanos()).unwrap_or(u64::MAX);
            self.budget.slept(slept, limit_ns);
        }
        self.quiet_since = None;
        self.disarm();
    }
}
