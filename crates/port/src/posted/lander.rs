//! The lander: the thread that makes queued stores visible, and a port's requests to it.

use super::pace::Pace;
use super::schedule::{Landed, Place, Schedule, Ticket};
use super::wakers::Wakers;
use crate::soft::Carried;
use crate::{Pacing, PortError};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_pcie::Cable;
use crosslane_shm::queue::{Reader, Waker, now, sleep, sleep_exactly};
use crosslane_shm::signals::block_for_good;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The port's handle of the lander. The thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Lander {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Removes a place when it is dropped.
#[derive(Debug)]
pub(super) struct Remover {
    shared: Arc<Shared>,
    place: Place,
}

#[derive(Debug)]
struct Shared {
    desk: Mutex<Desk>,
    /// Notified when a reset is done.
    done: Condvar,
    /// Wakes the thread.
    waker: Waker,
    /// Readable when tickets have landed.
    report: OwnedFd,
    landed: Tally,
    wakers: Wakers,
}

/// What has landed, for [`Pacing`].
#[derive(Debug, Default)]
struct Tally {
    bytes: AtomicU64,
    late: AtomicU64,
    worst: AtomicU64,
    /// Bytes of the peer's stores that were acknowledged.
    acknowledged: AtomicU64,
}

impl Tally {
    fn add(&self, landed: &Landed) {
        self.bytes.fetch_add(landed.bytes, Relaxed);
        self.late.fetch_add(landed.late, Relaxed);
        self.worst.fetch_max(landed.worst, Relaxed);
    }
}

#[derive(Debug, Default)]
struct Desk {
    orders: Vec<Order>,
    landed: Vec<Ticket>,
    /// Number of resets requested, and number executed.
    resets: (u64, u64),
}

#[derive(Debug)]
enum Order {
    Link(Carried),
    Add(Place, Box<Reader>),
    AddBeside(Place, OwnedFd),
    Remove(Place),
    Ticket(u64, Ticket),
    Reset,
    End,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) {
        self.desk().orders.push(order);
        self.waker.wake();
    }
}

impl Lander {
    /// Starts the thread.
    pub(super) fn new(pace: Box<dyn Pace>, combine: bool) -> Result<Self, PortError> {
        let report = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            desk: Mutex::default(),
            done: Condvar::new(),
            waker: Waker::default(),
            report: report.map_err(PortError::system("eventfd"))?,
            landed: Tally::default(),
            wakers: Wakers::default(),
        });
        let (work, schedule) = (shared.clone(), Schedule::new(pace, combine));
        let thread = std::thread::Builder::new().name("lander".into()).spawn(move || run(&work, schedule));
        let errno = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::AGAIN);
        let thread = thread.map_err(|error| PortError::system("start a thread")(errno(&error)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Readable when [`Self::landed`] has tickets.
    pub(super) fn report(&self) -> BorrowedFd<'_> {
        self.shared.report.as_fd()
    }

    /// The link is up: acknowledgements of what the peer's stores carry take time of this direction from now on.
    pub(super) fn link(&self, carried: Carried) {
        self.shared.order(Order::Link(carried));
    }

    /// Makes the stores of this queue land from now on.
    pub(super) fn add(&self, place: Place, reader: Reader) {
        self.shared.order(Order::Add(place, Box::new(reader)));
    }

    /// As [`Self::add`], for another queue to the memory of a queue that was added.
    pub(super) fn add_beside(&self, place: Place, queue: OwnedFd) {
        self.shared.order(Order::AddBeside(place, queue));
    }

    /// Stores to this place do not land any more.
    pub(super) fn remove(&self, place: Place) {
        self.shared.order(Order::Remove(place));
    }

    /// A guard that removes this place when dropped.
    pub(super) fn remover(&self, place: Place) -> Remover {
        Remover { shared: self.shared.clone(), place }
    }

    /// The peer's sleepers, whom entries of queues wake.
    pub(super) fn wakers(&self) -> &Wakers {
        &self.shared.wakers
    }

    /// Puts `ticket` behind all stores that are under way.
    pub(super) fn put(&self, ticket: Ticket) {
        self.shared.order(Order::Ticket(now(), ticket));
    }

    /// How well the times of `cable` were kept.
    pub(super) fn pacing(&self, cable: Cable) -> Pacing {
        let Tally { bytes, late, worst, acknowledged } = &self.shared.landed;
        Pacing {
            cable,
            landed_bytes: bytes.load(Relaxed),
            late_bytes: late.load(Relaxed),
            worst_ns: worst.load(Relaxed),
            acknowledged_bytes: acknowledged.load(Relaxed),
        }
    }

    /// Takes the tickets that have landed.
    pub(super) fn landed(&self) -> Vec<Ticket> {
        let _ = rustix::io::read(&self.shared.report, &mut [0; 8]);
        std::mem::take(&mut self.shared.desk().landed)
    }

    /// Drops all stores that are under way, and all queues. When this returns, nothing lands any more.
    pub(super) fn reset(&self) {
        self.shared.wakers.clear();
        let mut desk = self.shared.desk();
        desk.resets.0 += 1;
        desk.orders.push(Order::Reset);
        self.shared.waker.wake();
        let lives = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while desk.resets.1 < desk.resets.0 && lives() {
            let waited = self.shared.done.wait_timeout(desk, Duration::from_millis(10));
            desk = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        self.shared.order(Order::Remove(self.place));
    }
}

impl Drop for Lander {
    fn drop(&mut self) {
        self.shared.order(Order::End);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by the thread.
            let _ = thread.join();
        }
    }
}

/// Makes stores land until told to end.
fn run(shared: &Shared, mut schedule: Schedule) {
    // Signals are handled by the daemon's other threads.
    block_for_good();
    sleep_exactly();
    let (mut armed, mut busy_at, mut landed) = (false, now(), Vec::new());
    loop {
        let value = shared.waker.value();
        let Some(tickets) = obey(shared, &mut schedule) else { return };
        let time = now();
        let acknowledged = schedule.acknowledge(time);
        if acknowledged > 0 {
            shared.landed.acknowledged.fetch_add(acknowledged, Relaxed);
        }
        let took = schedule.scan(time, tickets);
        let now_landed = schedule.land(time, &mut landed);
        let has_landed = now_landed.is_some();
        if let Some(now_landed) = now_landed {
            shared.landed.add(&now_landed);
            shared.wakers.wake(now_landed.wakes);
        }
        if has_landed || took {
            report(shared, &mut landed);
            if armed {
                schedule.disarm();
            }
            (armed, busy_at) = (false, time);
        } else if !armed && schedule.wants_wakes() {
            // Look once more: writers may have stored before they could see that the lander wants wakes.
            schedule.arm();
            armed = true;
        } else if !armed {
            sleep([].into_iter(), false, (&shared.waker, value), schedule.next_due(), time - busy_at);
        } else {
            let others = schedule.has_others();
            sleep(schedule.awaited(), others, (&shared.waker, value), schedule.next_due(), time - busy_at);
            schedule.disarm();
            armed = false;
        }
    }
}

/// Executes the port's requests; returns the tickets that it has put, or `None` at the end.
fn obey(shared: &Shared, schedule: &mut Schedule) -> Option<Vec<(u64, Ticket)>> {
    let mut tickets = Vec::new();
    let mut desk = shared.desk();
    for order in std::mem::take(&mut desk.orders) {
        match order {
            Order::Link(carried) => schedule.link(carried),
            Order::Add(place, reader) => schedule.add(place, *reader),
            Order::AddBeside(place, queue) => schedule.add_beside(place, &queue),
            Order::Remove(place) => schedule.remove(place),
            Order::Ticket(at, ticket) => tickets.push((at, ticket)),
            Order::End => return None,
            Order::Reset => {
                schedule.clear();
                tickets.clear();
                desk.landed.clear();
                desk.resets.1 += 1;
                shared.done.notify_all();
            }
        }
    }
    Some(tickets)
}

fn report(shared: &Shared, landed: &mut Vec<Ticket>) {
    if !landed.is_empty() {
        shared.desk().landed.append(landed);
        // Fails only if the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&shared.report, &1_u64.to_ne_bytes());
    }
}
