//! The byte pump of a host between: copies records from one neighbour's channel into another's (decision 10).
//!
//! ```text
//!   neighbour A's ring --Consumer--+            +--Producer--> neighbour B's ring       one Flow each way
//!   credit, ACKED, ORDER <--------+   Circuit  +<-------- credit, ACKED, ORDER
//!                                      Worker: one thread, many circuits, in turns
//! ```
//! The daemon's thread holds [`Pumps`], sends [`Command`]s and receives [`Report`]s. No thread exists before the first
//! circuit, and threads sleep while nothing moves. Each circuit has a wake event of its own, since a neighbour that can
//! wake one circuit must not be able to wake others.

mod acked;
mod circuit;
mod flow;
mod leg;
mod poller;
mod report;
mod wakers;
mod worker;

pub use crosslane_wire::TransitId;
pub use leg::Leg;
pub use report::Report;

use crate::eventfd;
use circuit::Circuit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crosslane_shm::wake::{FarWaker, Receiver};
use crosslane_wire::WaiterId;
use poller::Poller;
use report::Reports;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::{Order, Worker};

/// A command of the daemon to a pump. A command for a circuit that does not exist changes nothing.
#[derive(Debug)]
pub enum Command {
    /// Pump between these two legs from now on. Both neighbours see that their channel is attached.
    Add {
        /// A new id.
        transit: TransitId,
        /// Both sides; their segments are fresh.
        legs: [Leg; 2],
        /// The waiter by which both neighbours wake the circuit; no other circuit has it.
        waiter: WaiterId,
    },
    /// The far side of a leg is gone, in order or not: forward the records that lie there, tell the other side, report [`Report::Dry`].
    Drain {
        /// The circuit.
        transit: TransitId,
        /// The leg, 0 or 1.
        leg: usize,
    },
    /// Stop at once, and report [`Report::Removed`] when the segments are unmapped.
    Remove {
        /// The circuit.
        transit: TransitId,
    },
    /// The answer to [`Report::Wake`].
    Waker {
        /// The circuit.
        transit: TransitId,
        /// The leg of the report.
        leg: usize,
        /// The waiter of the report.
        waiter: WaiterId,
        /// The waiter's waker; `None` if only daemons can wake it.
        waker: Option<FarWaker>,
    },
}

/// Why a circuit cannot be pumped.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// A circuit with this id exists, or a segment is too short for its ring.
    #[error("such legs make no circuit")]
    Legs,
    /// There is no thread, no wake event, or no descriptor for one.
    #[error("cannot start a pump: {0}")]
    System(#[from] std::io::Error),
}

/// Payload forwarded from each leg, bytes.
#[derive(Debug, Default)]
struct Traffic([AtomicU64; 2]);

impl Traffic {
    /// Only the circuit's own thread calls this.
    fn add(&self, leg: usize, bytes: u64) {
        if bytes > 0 {
            self.0[leg].store(self.0[leg].load(Relaxed) + bytes, Relaxed);
        }
    }
}

/// The daemon's handle of one thread.
#[derive(Debug)]
struct Thread {
    orders: Sender<Order>,
    wakeup: Arc<OwnedFd>,
    poller: Arc<Poller>,
    circuits: usize,
    handle: JoinHandle<()>,
}

/// The daemon's handle of one circuit.
#[derive(Debug)]
struct Held {
    thread: usize,
    traffic: Arc<Traffic>,
    waiter: WaiterId,
    receiver: Arc<Receiver>,
}

/// All pumps of a host. Dropping it ends their threads.
#[derive(Debug)]
pub struct Pumps {
    /// Most threads.
    most: usize,
    threads: Vec<Thread>,
    circuits: HashMap<TransitId, Held>,
    reports: Arc<Reports>,
    limit_ns: u32,
}

impl Pumps {
    /// Pumps with at most `threads` threads, at least one. While nothing moves, a circuit is polled for up to `spin`, if
    /// that has paid lately.
    pub fn new(threads: usize, spin: Duration) -> Result<Self, Errno> {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let spin = if alone { Duration::ZERO } else { spin };
        Ok(Self {
            most: threads,
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

    /// Executes a command. Only [`Command::Add`] can fail; its legs are dropped then.
    pub fn command(&mut self, command: Command) -> Result<(), AddError> {
        match command {
            Command::Add { transit, legs, waiter } => return self.add(transit, legs, waiter),
            Command::Drain { transit, leg } => self.order(transit, Order::Drain(transit, leg & 1)),
            Command::Remove { transit } => {
                self.order(transit, Order::Remove(transit));
                if let Some(held) = self.circuits.remove(&transit) {
                    self.threads[held.thread].circuits -= 1;
                }
            }
            Command::Waker { transit, leg, waiter, waker } => {
                self.order(transit, Order::Waker(transit, leg & 1, waiter, waker));
            }
        }
        Ok(())
    }

    /// The waiter by which the circuit's neighbours wake it, and its wake event.
    pub fn receiver_of(&self, transit: TransitId) -> Option<(WaiterId, &Receiver)> {
        self.circuits.get(&transit).map(|held| (held.waiter, held.receiver.as_ref()))
    }

    /// Payload bytes that were forwarded from each leg of a circuit; 0 if there is no such circuit.
    pub fn traffic(&self, transit: TransitId) -> [u64; 2] {
        let Some(held) = self.circuits.get(&transit) else { return [0; 2] };
        [0, 1].map(|leg: usize| held.traffic.0[leg].load(Relaxed))
    }

    fn add(&mut self, transit: TransitId, legs: [Leg; 2], waiter: WaiterId) -> Result<(), AddError> {
        if self.circuits.contains_key(&transit) || !legs.iter().all(Leg::fits) {
            return Err(AddError::Legs);
        }
        let receiver = Arc::new(Receiver::new().map_err(std::io::Error::from)?);
        let thread = self.thread()?;
        self.threads[thread].poller.listen_to(transit, receiver.as_fd()).map_err(std::io::Error::from)?;
        let traffic = Arc::new(Traffic::default());
        let circuit = Circuit::new(transit, legs, waiter, receiver.clone(), traffic.clone(), self.limit_ns);
        self.circuits.insert(transit, Held { thread, traffic, waiter, receiver });
        self.threads[thread].circuits += 1;
        self.order(transit, Order::Add(Box::new(circuit)));
        Ok(())
    }

    /// The thread for the next circuit: a new one as long as there may be more, else the one with the fewest circuits.
    fn thread(&mut self) -> Result<usize, std::io::Error> {
        let least = (0..self.threads.len()).min_by_key(|at| self.threads[*at].circuits);
        let is_full = self.threads.len() >= self.most;
        if let Some(at) = least.filter(|at| is_full || self.threads[*at].circuits == 0) {
            return Ok(at);
        }
        let thread = Thread::start(self.reports.clone(), self.limit_ns, self.threads.len())?;
        self.threads.push(thread);
        Ok(self.threads.len() - 1)
    }

    fn order(&self, transit: TransitId, order: Order) {
        let Some(thread) = self.circuits.get(&transit).and_then(|held| self.threads.get(held.thread)) else {
            return;
        };
        if thread.orders.send(order).is_ok() {
            eventfd::wake(thread.wakeup.as_fd());
        }
    }
}

impl Thread {
    fn start(reports: Arc<Reports>, limit_ns: u32, number: usize) -> Result<Self, std::io::Error> {
        let wakeup = Arc::new(eventfd::new()?);
        let poller = Arc::new(Poller::new(wakeup.as_fd())?);
        let (orders, inbox) = channel();
        let worker = Worker::new(inbox, wakeup.clone(), poller.clone(), reports, limit_ns);
        let handle =
            std::thread::Builder::new().name(format!("pump-{number}")).spawn(move || worker.run())?;
        Ok(Self { orders, wakeup, poller, circuits: 0, handle })
    }
}

impl Drop for Pumps {
    fn drop(&mut self) {
        for Thread { orders, wakeup, handle, .. } in self.threads.drain(..) {
            drop(orders);
            eventfd::wake(wakeup.as_fd());
            // A thread that panicked has ended too.
            let _ = handle.join();
        }
    }
}
