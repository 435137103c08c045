//! A pump's thread: gives circuits turns, polls for as long as that has paid lately, then sleeps.
//!
//! ```text
//!        Add, Drain            nothing moved for a while: WANT words, fence, one more look
//!   ------------------> hot ------------------------------------------------------------> idle
//!                        ^       it is woken, and may have work                            |
//!                        +-----------------------------------------------------------------+
//!   no circuit is hot: the thread sleeps until a wake or an order comes
//! ```

use super::TransitId;
use super::circuit::Circuit;
use super::poller::{Poller, Ring};
use super::report::{Report, Reports};
use crate::eventfd;
use crosslane_shm::signals::block_for_good;
use crosslane_shm::wake::FarWaker;
use crosslane_wire::WaiterId;
use rustix::event::Timespec;
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Rounds over all hot circuits between two looks at the clock.
const ROUNDS: u32 = 32;
/// Interval at which a busy pump looks for wakes of idle circuits.
const LOOK_EVERY: Duration = Duration::from_micros(10);
/// Shortest time between two changes of the processor.
const ASIDE_EVERY: Duration = Duration::from_millis(1);
/// A time-out for a look without waiting.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An order of the daemon's thread to a pump's thread.
#[derive(Debug)]
pub(super) enum Order {
    Add(Box<Circuit>),
    Drain(TransitId, usize),
    Remove(TransitId),
    Waker(TransitId, usize, WaiterId, Option<FarWaker>),
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Worker {
    orders: Receiver<Order>,
    /// Woken by the daemon when there are orders; no other process has it.
    wakeup: Arc<OwnedFd>,
    poller: Arc<Poller>,
    reports: Arc<Reports>,
    /// How long a circuit may be polled while nothing moves, ns.
    limit_ns: u32,
    /// Circuits that are polled.
    hot: Vec<Circuit>,
    /// Circuits whose sides were asked for wakes.
    idle: HashMap<TransitId, Circuit>,
    /// The sources of the last wakes.
    rings: Vec<Ring>,
    /// When the thread last looked for wakes.
    heard: Instant,
    cpu: u16,
    /// When the thread last left its processor to a neighbour.
    aside: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        orders: Receiver<Order>,
        wakeup: Arc<OwnedFd>,
        poller: Arc<Poller>,
        reports: Arc<Reports>,
        limit_ns: u32,
    ) -> Self {
        Self {
            orders,
            wakeup,
            poller,
            reports,
            limit_ns,
            hot: Vec::new(),
            idle: HashMap::new(),
            rings: Vec::new(),
            heard: Instant::now(),
            cpu: 0,
            aside: None,
        }
    }

    /// Pumps until the daemon's thread has dropped its sender of orders.
    pub(super) fn run(mut self) {
        block_for_good();
        let mut rounds = 0_u32;
        while self.obey() {
            if self.hot.is_empty() {
                self.listen(None);
                continue;
            }
            let moved = self.round();
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(ROUNDS) {
                self.update_hot();
                match self.rest() {
                    Some(time) => self.listen(Some(&time)),
                    None if !moved => std::thread::yield_now(),
                    None => {}
                }
            } else if !moved {
                core::hint::spin_loop();
            }
        }
    }

    /// How long the thread may sleep although circuits are hot: all of them only wait until their requests have landed.
    fn rest(&mut self) -> Option<Timespec> {
        let now = Instant::now();
        let least = self.hot.iter_mut().try_fold(None, |least: Option<Duration>, circuit| {
            let time = circuit.rest(now)?;
            Some(Some(least.map_or(time, |least| least.min(time))))
        })?;
        Timespec::try_from(least?).ok()
    }

    /// Gives each hot circuit a turn; returns whether anything moved.
    fn round(&mut self) -> bool {
        let mut moved = false;
        for circuit in &mut self.hot {
            moved |= circuit.run_once(self.cpu, &self.reports);
        }
        moved
    }

    /// Sends quiet circuits to sleep, and looks for wakes of idle ones.
    fn update_hot(&mut self) {
        self.cpu = u16::try_from(sched_getcpu()).unwrap_or(0);
        let now = Instant::now();
        let mut at = 0;
        while let Some(circuit) = self.hot.get_mut(at) {
            if circuit.settles(now, self.limit_ns, self.cpu, &self.reports) {
                let circuit = self.hot.swap_remove(at);
                if circuit.crowds(self.cpu) {
                    self.step_aside(now);
                }
                self.idle.insert(circuit.transit, circuit);
            } else {
                at += 1;
            }
        }
        if !self.idle.is_empty() && now - self.heard >= LOOK_EVERY {
            self.listen(Some(&AT_ONCE));
        }
    }

    /// Moves to another processor, at most once in [`ASIDE_EVERY`], if a circuit's neighbour is on this one: otherwise
    /// each would wait for the other to sleep, and be woken for each record, although another processor is idle. The
    /// kernel does not move them while most processors are busy.
    fn step_aside(&mut self, now: Instant) {
        if self.aside.is_some_and(|before| now - before < ASIDE_EVERY) {
            return;
        }
        self.aside = Some(now);
        let Ok(all) = sched_getaffinity(None) else { return };
        let mut others = all;
        others.unset(sched_getcpu());
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            let _ = sched_setaffinity(None, &all);
        }
    }

    /// Makes circuits hot whose wakes have come; waits for one for `timeout` at most, `None` for ever.
    fn listen(&mut self, timeout: Option<&Timespec>) {
        let mut rings = std::mem::take(&mut self.rings);
        self.poller.hear(timeout, &mut rings);
        self.heard = Instant::now();
        for ring in rings.drain(..) {
            match ring {
                Ring::Wakeup => drop(eventfd::drain(self.wakeup.as_fd())),
                Ring::Circuit(transit) => self.wake(transit),
            }
        }
        self.rings = rings;
    }

    fn wake(&mut self, transit: TransitId) {
        let Some(circuit) = self.idle.get_mut(&transit) else {
            return self.hot.iter_mut().filter(|circuit| circuit.transit == transit).for_each(Circuit::hush);
        };
        if !circuit.sleeps_on(self.heard, self.limit_ns, &self.reports) {
            self.hot.extend(self.idle.remove(&transit));
        }
    }

    /// Executes the waiting orders; `false` if the daemon's thread has dropped its sender.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.follow(order),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Add(circuit) => self.hot.push(*circuit),
            Order::Drain(transit, leg) => {
                if let Some(mut circuit) = self.take(transit) {
                    circuit.wake(Instant::now(), self.limit_ns);
                    circuit.close(leg, &self.reports);
                    self.hot.push(circuit);
                }
            }
            Order::Remove(transit) => {
                if let Some(circuit) = self.take(transit) {
                    self.poller.forget(circuit.receiver());
                }
                self.reports.push(Report::Removed { transit });
            }
            Order::Waker(transit, leg, waiter, waker) => {
                let mut circuits = self.hot.iter_mut().chain(self.idle.get_mut(&transit));
                if let Some(circuit) = circuits.find(|circuit| circuit.transit == transit) {
                    circuit.answer(leg, waiter, waker);
                }
            }
        }
    }

    fn take(&mut self, transit: TransitId) -> Option<Circuit> {
        let at = self.hot.iter().position(|circuit| circuit.transit == transit);
        at.map(|at| self.hot.swap_remove(at)).or_else(|| self.idle.remove(&transit))
    }
}
