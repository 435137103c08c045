//! The thread that makes texts of snapshots, and serves the readers of the metrics.

use super::queue::{Group, Queue};
use super::send::send_aside;
use super::{Asked, Text};
use crate::eventfd;
use crate::inbox::{Letter, Letterbox};
use crate::metrics::{Server, Waits};
use crate::sight::Sight;
use crate::snapshot::Snapshot;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Snapshots that wait for the thread, at most: those who ask meanwhile wait for another.
const BEHIND: usize = 2;
/// How long readers of the metrics get the same text.
const FRESH: Duration = Duration::from_millis(100);
/// How far the thread gives way to others: packets go first where there are few processors.
const NICE: i32 = 5;
const WAKEUP: u64 = 1;
const SERVER: u64 = 2;

enum Order {
    Write(Box<Snapshot>, Vec<Asked>),
    Serve(Box<Server>),
}

/// What gives the thread its work; dropped, the thread ends.
pub struct Writer {
    orders: Option<Sender<Order>>,
    wakeup: Arc<OwnedFd>,
    waiting: Arc<AtomicUsize>,
}

impl Writer {
    /// Starts the thread, which tells in `letterbox` what became of the texts.
    ///
    /// # Errors
    /// There are no descriptors, or no threads.
    pub fn start(letterbox: Letterbox) -> Result<Self, Errno> {
        let (orders, work) = channel();
        let (wakeup, waiting) = (Arc::new(eventfd::new()?), Arc::new(AtomicUsize::new(0)));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)?;
        let desk = Desk {
            orders: work,
            wakeup: wakeup.clone(),
            waiting: waiting.clone(),
            letterbox,
            epoll,
            server: None,
            waits: Waits::None,
            asked_for_one: false,
            queue: Queue::default(),
            snapshot: None,
            metrics: None,
        };
        let thread = std::thread::Builder::new().name("texts".into());
        thread.spawn(move || desk.work()).map_err(|_| Errno::AGAIN)?;
        Ok(Self { orders: Some(orders), wakeup, waiting })
    }

    /// Whether so many snapshots wait for the thread that another would be of no use.
    pub fn is_behind(&self) -> bool {
        self.waiting.load(Relaxed) >= BEHIND
    }

    /// Has texts made of a snapshot for those who have asked. Never waits.
    pub fn write(&self, snapshot: Snapshot, asked: Vec<Asked>) {
        self.waiting.fetch_add(1, Relaxed);
        self.order(Order::Write(Box::new(snapshot), asked));
    }

    /// Has the readers of the metrics served.
    pub fn serve(&self, server: Server) {
        self.order(Order::Serve(Box::new(server)));
    }

    fn order(&self, order: Order) {
        // Fails only when the thread has ended.
        if self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok()) {
            eventfd::wake(self.wakeup.as_fd());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.orders = None;
        eventfd::wake(self.wakeup.as_fd());
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

/// The thread's state.
struct Desk {
    orders: Receiver<Order>,
    wakeup: Arc<OwnedFd>,
    waiting: Arc<AtomicUsize>,
    letterbox: Letterbox,
    epoll: OwnedFd,
    server: Option<Box<Server>>,
    /// Whether readers wait for the metrics, and whether a snapshot was asked for them.
    waits: Waits,
    asked_for_one: bool,
    queue: Queue,
    /// The newest one.
    snapshot: Option<Box<Snapshot>>,
    /// What readers got last, and until when others get it.
    metrics: Option<(Instant, Arc<str>)>,
}

impl Desk {
    fn work(mut self) {
        let thread = rustix::thread::gettid();
        let _ = rustix::process::setpriority_process(Some(thread), NICE);
        while self.take_orders() {
            self.serve();
            if let Some(group) = self.queue.take() {
                self.tell(group);
            }
            self.wait();
        }
    }

    /// Takes what there is to do; `false` if there will never be more.
    fn take_orders(&mut self) -> bool {
        eventfd::drain(self.wakeup.as_fd());
        loop {
            match self.orders.try_recv() {
                Ok(Order::Write(snapshot, asked)) => {
                    self.waiting.fetch_sub(1, Relaxed);
                    for Asked { text, uid, session, socket } in asked {
                        let sight = Sight::of(socket.as_fd(), uid, snapshot.head.operators);
                        self.queue.add(text, (uid, sight), (session, socket));
                    }
                    self.snapshot = Some(snapshot);
                    self.refresh();
                }
                Ok(Order::Serve(server)) => {
                    let data = epoll::EventData::new_u64(SERVER);
                    match epoll::add(&self.epoll, server.event_fd(), data, epoll::EventFlags::IN) {
                        Ok(()) => self.server = Some(server),
                        Err(errno) => tracing::error!(%errno, "readers of the metrics are not served"),
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// A snapshot has come: readers of the metrics may have asked for it.
    fn refresh(&mut self) {
        if std::mem::take(&mut self.asked_for_one) {
            self.metrics = self.text_of(Text::Metrics, Sight::All).map(|text| (Instant::now() + FRESH, text));
        }
    }

    fn serve(&mut self) {
        let Some(server) = &mut self.server else { return };
        let now = Instant::now();
        self.metrics.take_if(|(until, _)| *until <= now);
        self.waits = server.serve(now, self.metrics.as_ref().map(|(_, text)| text));
        if self.waits == Waits::Some && !self.asked_for_one {
            self.asked_for_one = true;
            self.letterbox.post(Letter::Scrape);
        }
    }

    /// Makes a text, and has it sent.
    fn tell(&mut self, group: Group) {
        let text = self.text_of(group.text, group.sight);
        for (session, socket) in group.sessions {
            match &text {
                Some(text) => send_aside(&self.letterbox, (session, group.uid), &socket, text.clone()),
                None => self.letterbox.post(Letter::Told { session, uid: group.uid, bytes: 0, heard: false }),
            }
        }
    }

    /// The text, unless making it fails, which is a fault of ours.
    fn text_of(&self, text: Text, sight: Sight) -> Option<Arc<str>> {
        let snapshot = self.snapshot.as_ref()?;
        let make = || match text {
            Text::Status => snapshot.status(sight),
            Text::Metrics => snapshot.metrics(),
            Text::Explain(pid) => snapshot.explain(pid, sight),
            Text::Hosts => snapshot.addresses(),
        };
        catch_unwind(AssertUnwindSafe(make)).ok().map(Arc::from)
    }

    /// Until there is something to do.
    fn wait(&mut self) {
        if self.queue.is_empty() {
            // Nobody needs what it has any more.
            self.snapshot = None;
        }
        let deadline = self.server.as_ref().and_then(|server| server.deadline());
        let timeout = match deadline {
            _ if !self.queue.is_empty() => Some(Duration::ZERO),
            deadline => deadline.map(|at| at.saturating_duration_since(Instant::now())),
        };
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut events = Vec::with_capacity(4);
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
    }
}
