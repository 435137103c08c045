//! The byte pump of a host between: copies what comes from one neighbour's channel into another's (decision 10).
//!
//! ```text
//!   neighbour A's ring --Consumer--+            +--Producer--> neighbour B's ring       one Flow each way
//!   credit, LANDED, ORDER <--------+   Circuit  +<-------- credit, LANDED, ORDER
//!                                      Worker: one thread, many circuits, in turns
//! ```
//! The daemon's thread holds [`Pumps`], gives [`Command`]s and hears [`Report`]s; there is no thread before the first
//! circuit, and those there are sleep while nothing moves.

mod bells;
mod circuit;
mod flow;
mod landed;
mod leg;
mod report;
mod worker;

pub use crosslane_wire::TransitId;
pub use leg::Leg;
pub use report::Report;

use crate::eventfd;
use circuit::Circuit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crosslane_wire::WaiterId;
use report::Reports;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::{Order, Worker};

/// What the daemon wants of a pump. One that names a circuit which is not there changes nothing.
#[derive(Debug)]
pub enum Command {
    /// Pump between these two from now on. Both neighbours see that their channel is attached.
    Add {
        /// A new name.
        transit: TransitId,
        /// Both sides, their slices fresh.
        legs: [Leg; 2],
    },
    /// The far side of a leg is gone, in order or not: pump on what lies there, tell the other side, report
    /// [`Report::Dry`].
    Drain {
        /// The circuit.
        transit: TransitId,
        /// Which leg, 0 or 1.
        leg: usize,
    },
    /// Stop at once, and report [`Report::Removed`] when the mappings are gone.
    Remove {
        /// The circuit.
        transit: TransitId,
    },
    /// The answer to [`Report::Ring`].
    Bell {
        /// The circuit.
        transit: TransitId,
        /// The leg of the report.
        leg: usize,
        /// The waiter of the report.
        waiter: WaiterId,
        /// Its eventfd; `None` if it must go on to be rung through daemons.
        bell: Option<OwnedFd>,
    },
}

/// Why a circuit is not pumped.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// A circuit of this name is there, or a slice is too short for its ring.
    #[error("such legs make no circuit")]
    Legs,
    /// No thread, or none of what it needs.
    #[error("cannot start a pump: {0}")]
    System(#[from] std::io::Error),
}

/// Payload pumped from each leg, bytes.
#[derive(Debug, Default)]
struct Traffic([AtomicU64; 2]);

impl Traffic {
    /// Only the circuit's own thread adds.
    fn add(&self, leg: usize, bytes: u64) {
        if bytes > 0 {
            self.0[leg].store(self.0[leg].load(Relaxed) + bytes, Relaxed);
        }
    }
}

/// The daemon's hold on one thread.
#[derive(Debug)]
struct Thread {
    waiter: WaiterId,
    orders: Sender<Order>,
    door: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    circuits: usize,
    handle: JoinHandle<()>,
}

/// All pumps of a host. Dropping it ends them.
#[derive(Debug)]
pub struct Pumps {
    /// Waiters of threads that do not run yet.
    spare: Vec<WaiterId>,
    threads: Vec<Thread>,
    circuits: HashMap<TransitId, (usize, Arc<Traffic>)>,
    reports: Arc<Reports>,
    limit_ns: u32,
}

impl Pumps {
    /// At most one thread for each of these waiters, by which neighbours name it when they wake it; at least one.
    /// A circuit is polled for up to `spin` while nothing moves, if that has paid lately.
    pub fn new(waiters: &[WaiterId], spin: Duration) -> Result<Self, Errno> {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let spin = if alone { Duration::ZERO } else { spin };
        Ok(Self {
            spare: waiters.iter().rev().copied().collect(),
            threads: Vec::new(),
            circuits: HashMap::new(),
            reports: Arc::new(Reports::new()?),
            limit_ns: u32::try_from(spin.as_nanos()).unwrap_or(u32::MAX),
        })
    }

    /// Readable when reports wait.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.reports.event_fd()
    }

    /// The next report.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop()
    }

    /// Does as is said. Only an [`Command::Add`] can fail; its legs are dropped then.
    pub fn command(&mut self, command: Command) -> Result<(), AddError> {
        match command {
            Command::Add { transit, legs } => return self.add(transit, legs),
            Command::Drain { transit, leg } => self.order(transit, Order::Drain(transit, leg & 1)),
            Command::Remove { transit } => {
                self.order(transit, Order::Remove(transit));
                if let Some((thread, _)) = self.circuits.remove(&transit) {
                    self.threads[thread].circuits -= 1;
                }
            }
            Command::Bell { transit, leg, waiter, bell } => {
                self.order(transit, Order::Bell(transit, leg & 1, waiter, bell));
            }
        }
        Ok(())
    }

    /// The waiter by which the circuit's neighbours name its thread, and its eventfd, which they ring.
    pub fn bell_of(&self, transit: TransitId) -> Option<(WaiterId, BorrowedFd<'_>)> {
        let (thread, _) = self.circuits.get(&transit)?;
        let thread = self.threads.get(*thread)?;
        Some((thread.waiter, thread.bell.as_fd()))
    }

    /// Payload bytes that came from each leg of a circuit and were pumped on; 0 if there is no such circuit.
    pub fn traffic(&self, transit: TransitId) -> [u64; 2] {
        let Some((_, traffic)) = self.circuits.get(&transit) else { return [0; 2] };
        [0, 1].map(|leg: usize| traffic.0[leg].load(Relaxed))
    }

    fn add(&mut self, transit: TransitId, legs: [Leg; 2]) -> Result<(), AddError> {
        if self.circuits.contains_key(&transit) || !legs.iter().all(Leg::fits) {
            return Err(AddError::Legs);
        }
        let at = self.thread()?;
        let (traffic, waiter) = (Arc::new(Traffic::default()), self.threads[at].waiter);
        let circuit = Circuit::new(transit, legs, waiter, traffic.clone(), self.limit_ns);
        self.circuits.insert(transit, (at, traffic));
        self.threads[at].circuits += 1;
        self.order(transit, Order::Add(Box::new(circuit)));
        Ok(())
    }

    /// The thread for the next circuit: a new one as long as there may be more, else the one with the fewest.
    fn thread(&mut self) -> Result<usize, std::io::Error> {
        let least = (0..self.threads.len()).min_by_key(|at| self.threads[*at].circuits);
        if let Some(at) = least.filter(|at| self.spare.is_empty() || self.threads[*at].circuits == 0) {
            return Ok(at);
        }
        let waiter = self.spare.last().copied().unwrap_or_default();
        let thread = Thread::start(waiter, self.reports.clone(), self.limit_ns, self.threads.len())?;
        self.spare.pop();
        self.threads.push(thread);
        Ok(self.threads.len() - 1)
    }

    fn order(&self, transit: TransitId, order: Order) {
        let Some(thread) = self.circuits.get(&transit).and_then(|(at, _)| self.threads.get(*at)) else {
            return;
        };
        if thread.orders.send(order).is_ok() {
            eventfd::ring(thread.door.as_fd());
        }
    }
}

impl Thread {
    fn start(
        waiter: WaiterId,
        reports: Arc<Reports>,
        limit_ns: u32,
        number: usize,
    ) -> Result<Self, std::io::Error> {
        let (door, bell) = (Arc::new(eventfd::new()?), Arc::new(eventfd::new()?));
        let (orders, inbox) = channel();
        let worker = Worker::new(inbox, door.clone(), bell.clone(), reports, limit_ns);
        let handle =
            std::thread::Builder::new().name(format!("pump-{number}")).spawn(move || worker.run())?;
        Ok(Self { waiter, orders, door, bell, circuits: 0, handle })
    }
}

impl Drop for Pumps {
    fn drop(&mut self) {
        for Thread { orders, door, handle, .. } in self.threads.drain(..) {
            drop(orders);
            eventfd::ring(door.as_fd());
            // One that panicked has ended too.
            let _ = handle.join();
        }
    }
}
