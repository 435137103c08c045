//! A pump's thread: circuits in turns, a poll for as long as that has paid lately, else sleep.
//!
//! ```text
//!        Add, Drain            nothing moved for a while: WANT words, fence, one more look
//!   ------------------> hot ------------------------------------------------------------> idle
//!                        ^       bell: those of them that are stirred                      |
//!                        +-----------------------------------------------------------------+
//!   none is hot: the thread sleeps until a bell or an order comes
//! ```

use super::TransitId;
use super::circuit::Circuit;
use super::report::{Report, Reports};
use crate::eventfd;
use crosslane_wire::WaiterId;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Rounds over all hot circuits between two looks at the clock.
const ROUNDS: u32 = 32;
/// How long a busy pump does not hear the bell of idle circuits.
const LOOK_EVERY: Duration = Duration::from_micros(10);

/// What the daemon's thread says to a pump's.
#[derive(Debug)]
pub(super) enum Order {
    Add(Box<Circuit>),
    Drain(TransitId, usize),
    Remove(TransitId),
    Bell(TransitId, usize, WaiterId, Option<OwnedFd>),
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) orders: Receiver<Order>,
    /// Rung when there are orders; nobody else has it.
    pub(super) door: Arc<OwnedFd>,
    /// Rung by neighbours.
    pub(super) bell: Arc<OwnedFd>,
    pub(super) reports: Arc<Reports>,
    /// How long a circuit may be polled while nothing moves, ns.
    pub(super) limit_ns: u32,
    /// Circuits that are polled.
    hot: Vec<Circuit>,
    /// Circuits whose sides were asked for bells.
    idle: Vec<Circuit>,
    /// When the bell was last listened to.
    heard: Instant,
    cpu: u16,
}

impl Worker {
    pub(super) fn new(
        orders: Receiver<Order>,
        door: Arc<OwnedFd>,
        bell: Arc<OwnedFd>,
        reports: Arc<Reports>,
        limit_ns: u32,
    ) -> Self {
        let (hot, idle) = (Vec::new(), Vec::new());
        Self { orders, door, bell, reports, limit_ns, hot, idle, heard: Instant::now(), cpu: 0 }
    }

    /// Pumps until nobody can give orders any more.
    pub(super) fn run(mut self) {
        let mut rounds = 0_u32;
        while self.obey() {
            if self.hot.is_empty() {
                self.sleep();
                continue;
            }
            let moved = self.round();
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(ROUNDS) {
                self.settle();
                if !moved {
                    std::thread::yield_now();
                }
            } else if !moved {
                core::hint::spin_loop();
            }
        }
    }

    /// A turn for each hot circuit; whether anything moved.
    fn round(&mut self) -> bool {
        let mut moved = false;
        for circuit in &mut self.hot {
            moved |= circuit.turn(self.cpu, &self.reports);
        }
        moved
    }

    /// Sends to sleep what has been quiet, and wakes what was rung for.
    fn settle(&mut self) {
        self.cpu = u16::try_from(rustix::thread::sched_getcpu()).unwrap_or(0);
        let now = Instant::now();
        let mut at = 0;
        while let Some(circuit) = self.hot.get_mut(at) {
            if circuit.settles(now, self.limit_ns, self.cpu, &self.reports) {
                self.idle.push(self.hot.swap_remove(at));
            } else {
                at += 1;
            }
        }
        if !self.idle.is_empty() && now - self.heard >= LOOK_EVERY {
            self.heard = now;
            if eventfd::drain(self.bell.as_fd()) {
                self.wake(now);
            }
        }
    }

    /// Looks at all idle circuits: a bell does not say which of them it is for.
    fn wake(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(circuit) = self.idle.get_mut(at) {
            if circuit.sleeps_on(now, self.limit_ns, &self.reports) {
                at += 1;
            } else {
                self.hot.push(self.idle.swap_remove(at));
            }
        }
    }

    fn sleep(&mut self) {
        let mut fds = [&self.door, &self.bell].map(|fd| PollFd::new(fd.as_ref(), PollFlags::IN));
        // An error (a signal) is nothing but a look too many.
        let _ = poll(&mut fds, None);
        eventfd::drain(self.door.as_fd());
        eventfd::drain(self.bell.as_fd());
        self.heard = Instant::now();
        self.wake(self.heard);
    }

    /// Does what was ordered; `false` if nobody can order anything any more.
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
                drop(self.take(transit));
                self.reports.push(Report::Removed { transit });
            }
            Order::Bell(transit, leg, waiter, bell) => {
                let mut circuits = self.hot.iter_mut().chain(&mut self.idle);
                if let Some(circuit) = circuits.find(|circuit| circuit.transit == transit) {
                    circuit.answer(leg, waiter, bell);
                }
            }
        }
    }

    fn take(&mut self, transit: TransitId) -> Option<Circuit> {
        [&mut self.hot, &mut self.idle].into_iter().find_map(|list| {
            let at = list.iter().position(|circuit| circuit.transit == transit)?;
            Some(list.swap_remove(at))
        })
    }
}
