//! The thread that makes queued stores visible, and the requests of a port to it.

use super::pace::Pace;
use super::schedule::{Place, Schedule, Ticket};
use crate::PortError;
use crosslane_shm::queue::{Reader, Waker, now, sleep, sleep_exactly};
use crosslane_shm::signals::Masked;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The port's end of it. The thread ends with this.
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
}

#[derive(Debug, Default)]
struct Desk {
    orders: Vec<Order>,
    landed: Vec<Ticket>,
    /// Resets that were asked for, and that were done.
    resets: (u64, u64),
}

#[derive(Debug)]
enum Order {
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
        let system = |what: &str, errno| PortError::System { what: what.to_owned(), errno };
        let report = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            desk: Mutex::default(),
            done: Condvar::new(),
            waker: Waker::default(),
            report: report.map_err(|errno| system("eventfd", errno))?,
        });
        let (work, schedule) = (shared.clone(), Schedule::new(pace, combine));
        let thread = std::thread::Builder::new().name("lander".into()).spawn(move || run(&work, schedule));
        let errno = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::AGAIN);
        let thread = thread.map_err(|error| system("start a thread", errno(&error)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Readable when [`Self::landed`] has something.
    pub(super) fn report(&self) -> BorrowedFd<'_> {
        self.shared.report.as_fd()
    }

    /// From now on stores of this queue land.
    pub(super) fn add(&self, place: Place, reader: Reader) {
        self.shared.order(Order::Add(place, Box::new(reader)));
    }

    /// The same of another queue to the memory of one that was added.
    pub(super) fn add_beside(&self, place: Place, queue: OwnedFd) {
        self.shared.order(Order::AddBeside(place, queue));
    }

    /// From now on no store to this place lands.
    pub(super) fn remove(&self, place: Place) {
        self.shared.order(Order::Remove(place));
    }

    /// What removes this place later.
    pub(super) fn remover(&self, place: Place) -> Remover {
        Remover { shared: self.shared.clone(), place }
    }

    /// Puts `ticket` behind all that is under way.
    pub(super) fn put(&self, ticket: Ticket) {
        self.shared.order(Order::Ticket(now(), ticket));
    }

    /// Takes the tickets that have landed.
    pub(super) fn landed(&self) -> Vec<Ticket> {
        let _ = rustix::io::read(&self.shared.report, &mut [0; 8]);
        std::mem::take(&mut self.shared.desk().landed)
    }

    /// Loses all that is under way, and all queues. Nothing lands any more when this returns.
    pub(super) fn reset(&self) {
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
            // Whether it panicked it has said itself.
            let _ = thread.join();
        }
    }
}

/// Lands what is stored until it is told to end.
fn run(shared: &Shared, mut schedule: Schedule) {
    // Signals are for the daemon's other threads.
    let _signals = Masked::new();
    sleep_exactly();
    let (mut armed, mut busy_at, mut landed) = (false, now(), Vec::new());
    loop {
        let value = shared.waker.value();
        let Some(tickets) = obey(shared, &mut schedule) else { return };
        let time = now();
        let took = schedule.scan(time, tickets);
        if schedule.land(time, &mut landed) || took {
            report(shared, &mut landed);
            if armed {
                schedule.disarm();
            }
            (armed, busy_at) = (false, time);
        } else if !armed {
            // One more look, since they may have stored before they could know.
            schedule.arm();
            armed = true;
        } else {
            sleep(schedule.readers(), (&shared.waker, value), schedule.next_due(), time - busy_at);
            schedule.disarm();
            armed = false;
        }
    }
}

/// Does what the port wants; the tickets that it has put, or `None` if that is the end.
fn obey(shared: &Shared, schedule: &mut Schedule) -> Option<Vec<(u64, Ticket)>> {
    let mut tickets = Vec::new();
    let mut desk = shared.desk();
    for order in std::mem::take(&mut desk.orders) {
        match order {
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
        // Fails only if the counter is full, and then it is readable.
        let _ = rustix::io::write(&shared.report, &1_u64.to_ne_bytes());
    }
}
