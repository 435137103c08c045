//! One call of `poll`: what is asked of the kernel, what the rings say, and the sleep in between.

use super::WAS_OPEN;
use crate::daemon::process;
use crate::daemon::waiters::{self, Waiter};
use crate::daemon::watch::{self, Watched};
use crate::descriptors::table::{self, Held};
use crate::kernel::clock::timespec_of;
use crate::kernel::{polling, thread};
use crate::socket::carrier;
use crate::waiting::limit::{BLIND, KERNEL_EVERY, KERNEL_EVERY_UNITS, Limit, Timeout};
use crate::waiting::{epoll, wait};
use core::cell::Cell;
use core::ffi::{c_int, c_short};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Ready;
use crosslane_client::link::{Requests, WaitFor};
use crosslane_shm::arm::NextSleep;
use crosslane_shm::clock::Moment;
use crosslane_shm::wait::{Budget, let_others_run};
use crosslane_stream::Direction;
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM, pollfd, sigset_t,
};
use rustix::event::PollFlags;
use std::time::{Duration, Instant};

/// Descriptors of our own behind the program's: the waiter, and the session with the daemon.
pub const EXTRA: usize = 2;
/// Streams that need no allocation.
const FEW_STREAMS: usize = 16;
/// Bits that a ring answers for the receiving direction.
const RECEIVING: c_short = POLLIN | POLLRDNORM | POLLRDHUP;
/// Bits that a ring answers for the sending direction.
const SENDING: c_short = POLLOUT | POLLWRNORM;
/// Bits that are reported without being asked for.
const ALWAYS: c_short = POLLERR | POLLHUP | POLLNVAL;

/// How long to spin when many descriptors are waited for.
static BUDGET: Budget = Budget::new();

/// A stream among the descriptors.
struct Watch {
    at: usize,
    held: Held,
    /// Bits that its rings answer, rather than the kernel.
    rings: c_short,
}

/// One call's descriptors.
pub struct Round<'a> {
    fds: &'a mut [pollfd],
    /// The same for the kernel, with other events for streams, and [`EXTRA`] ones of ours.
    kernel: &'a mut [pollfd],
    few: [Option<Watch>; FEW_STREAMS],
    many: Vec<Watch>,
    /// Whether there are descriptors of the kernel's own, or epoll sets.
    others: bool,
    sets: bool,
    daemon: Option<Watched>,
    /// Whether all descriptors were looked at once, so that one that is not open now was closed by another thread.
    begun: bool,
    /// Places of the kernel's own descriptors that were closed since.
    closed: Vec<usize>,
    /// What the rings were asked for before this sleep.
    armed: Requests,
    /// How long the epoll sets among the descriptors may sleep, when the kernel was last asked.
    sets_next: NextSleep,
}

impl<'a> Round<'a> {
    /// `fds` are the program's, `kernel` is longer by [`EXTRA`].
    pub fn new(fds: &'a mut [pollfd], kernel: &'a mut [pollfd]) -> Self {
        let few = [const { None }; FEW_STREAMS];
        let mut round = Self {
            fds,
            kernel,
            few,
            many: Vec::new(),
            others: false,
            sets: false,
            daemon: None,
            begun: false,
            closed: Vec::new(),
            armed: Requests::default(),
            sets_next: NextSleep::Unbounded,
        };
        let mut count = 0;
        for at in 0..round.fds.len() {
            let asked = round.fds[at];
            round.kernel[at] = pollfd { revents: 0, ..asked };
            if asked.fd < 0 {
                continue;
            }
            let Some(held) = table::stream(asked.fd) else {
                round.others = true;
                round.sets |= epoll::is_shadowed(asked.fd);
                continue;
            };
            let watch = Watch { at, held, rings: 0 };
            match round.few.get_mut(count) {
                Some(place) => *place = Some(watch),
                None => round.many.push(watch),
            }
            count += 1;
        }
        round.watch_daemon();
        round
    }

    /// Waits, fills in `revents`, and returns how many are not zero. `Err` is the error number for the program.
    pub fn wait(mut self, timeout: Timeout, mask: *const sigset_t) -> Result<usize, c_int> {
        self.compose();
        if !self.others && !kernel_is_due() && self.rings_ready() {
            return Ok(self.gather());
        }
        let mask_now = if timeout == Timeout::Now { mask } else { core::ptr::null() };
        self.ask_kernel(Some(Duration::ZERO), mask_now)?;
        let mut ready = self.gather();
        if ready > 0 || timeout == Timeout::Now {
            return Ok(ready);
        }
        let limit = timeout.begin();
        self.begun = true;
        if self.spin(limit)? {
            return Ok(self.gather());
        }
        loop {
            self.sleep(limit, mask)?;
            ready = self.gather();
            if ready > self.closed.len() || limit.is_over() {
                return Ok(ready);
            }
        }
    }

    fn watches(&self) -> impl Iterator<Item = &Watch> {
        self.few.iter().map_while(Option::as_ref).chain(&self.many)
    }

    /// Fills in what to ask the kernel for each stream now, and what its rings answer.
    fn compose(&mut self) {
        let Self { fds, kernel, few, many, .. } = self;
        for watch in few.iter_mut().map_while(Option::as_mut).chain(many) {
            let asked = &fds[watch.at];
            let (events, rings) = share(asked.fd, &watch.held, asked.events);
            // Another thread may have closed it since the call began.
            kernel[watch.at].fd = watch.held.fd(asked.fd).unwrap_or(asked.fd);
            kernel[watch.at].events = events;
            watch.rings = rings;
        }
    }

    fn rings_ready(&self) -> bool {
        self.watches().any(|watch| self.ring_bits(watch) != 0)
    }

    fn ring_bits(&self, watch: &Watch) -> c_short {
        if watch.rings == 0 {
            return 0;
        }
        bits(watch.held.ready(thread::tid())) & watch.rings & (self.fds[watch.at].events | ALWAYS)
    }

    /// Puts the answers of rings and kernel together and counts them.
    fn gather(&mut self) -> usize {
        for (asked, kernel) in self.fds.iter_mut().zip(self.kernel.iter()) {
            asked.revents = kernel.revents;
        }
        for index in 0.. {
            let Some(watch) =
                self.few.get(index).map_or_else(|| self.many.get(index - FEW_STREAMS), Option::as_ref)
            else {
                break;
            };
            let said = self.kernel[watch.at].revents & (!watch.rings | ALWAYS);
            let asked = self.fds[watch.at].events | ALWAYS;
            let ready = said & asked | self.ring_bits(watch);
            let closed = said & POLLNVAL != 0 || self.kernel[watch.at].fd != self.fds[watch.at].fd;
            self.fds[watch.at].revents = if closed { self.of_closed(watch, ready) } else { ready };
        }
        for at in &self.closed {
            self.fds[*at].revents = POLLNVAL;
        }
        self.fds.iter().filter(|asked| asked.revents != 0).count()
    }

    /// Another thread has closed a descriptor since the call began. As in the kernel that ends no wait, but is reported when it is over.
    #[cold]
    fn of_closed(&self, watch: &Watch, ready: c_short) -> c_short {
        let stands = watch.held.fd(self.fds[watch.at].fd).is_some();
        if stands && ready & !POLLNVAL == 0 { 0 } else { POLLNVAL }
    }

    /// The same of a descriptor of the kernel's own: it is asked for no more.
    fn leave_closed(&mut self) {
        for at in 0..self.fds.len() {
            let asked = self.kernel[at];
            if asked.fd >= 0 && asked.revents & POLLNVAL != 0 && !self.watches().any(|watch| watch.at == at) {
                self.kernel[at].fd = -1;
                self.fds[at].events |= WAS_OPEN;
                self.closed.push(at);
            }
        }
    }

    /// Asks the kernel, for at most `timeout`, and notes its events of carrier sockets.
    fn ask_kernel(&mut self, timeout: Option<Duration>, mask: *const sigset_t) -> Result<(), c_int> {
        let mut ready_sets = false;
        self.sets_next = NextSleep::Unbounded;
        if self.sets {
            for asked in self.fds.iter() {
                let prepared = epoll::prepare(asked.fd);
                ready_sets |= prepared.ready;
                self.sets_next = self.sets_next.sooner(prepared.next);
            }
        }
        let timeout = if ready_sets { Some(Duration::ZERO) } else { self.sets_next.limit(timeout) };
        self.poll_all(timeout, mask)?;
        if self.begun && self.others {
            self.leave_closed();
        }
        if self.sets {
            self.correct_sets();
        }
        let session = &self.kernel[self.fds.len() + 1];
        if let Some(daemon) =
            self.daemon.filter(|daemon| daemon.fd == session.fd && session.revents & POLLHUP != 0)
        {
            process::lost(daemon);
        }
        for watch in self.watches() {
            let fd = self.kernel[watch.at].fd;
            let news = self.kernel[watch.at].revents;
            if news & (POLLIN | ALWAYS | POLLRDHUP) != 0 && watch.rings != 0 {
                let news = PollFlags::from_bits_retain(news.cast_unsigned());
                carrier::news(fd, &watch.held, news);
            }
        }
        Ok(())
    }

    /// Asks for the program's descriptors and ours. A limit of descriptors (`sshd`'s is 1) can leave no room for ours: then
    /// it is a short sleep without.
    fn poll_all(&mut self, timeout: Option<Duration>, mask: *const sigset_t) -> Result<(), c_int> {
        let programs = self.fds.len();
        let alone = self.kernel[programs..].iter().all(|ours| ours.fd < 0);
        let mut poll = |count: usize, timeout: Option<Duration>| {
            let time = timeout.map(timespec_of);
            polling::ppoll(&mut self.kernel[..count], time.as_ref(), mask).map(drop)
        };
        if alone {
            return poll(programs, timeout);
        }
        match poll(programs + EXTRA, timeout) {
            Err(libc::EINVAL) => poll(programs, Some(timeout.map_or(BLIND, |timeout| timeout.min(BLIND)))),
            outcome => outcome,
        }
    }

    /// The kernel knows an epoll set's own descriptors; we know whether its streams are ready.
    fn correct_sets(&mut self) {
        for (asked, kernel) in self.fds.iter().zip(self.kernel.iter_mut()) {
            if asked.events & (POLLIN | POLLRDNORM) != 0 && epoll::prepare(asked.fd).ready {
                kernel.revents |= asked.events & (POLLIN | POLLRDNORM);
            }
        }
    }

    /// Looks at the rings for a bounded time. Returns whether it found something.
    fn spin(&mut self, limit: Limit) -> Result<bool, c_int> {
        let ns = self.spin_ns();
        let Some(_spinner) = wait::spinner(ns) else { return Ok(false) };
        let yields = self.watches().any(|watch| watch.held.relayed().is_some());
        let start = Instant::now();
        let mut asked = start;
        loop {
            for _ in 0..16 {
                if self.rings_ready() {
                    self.with_budget(|budget| budget.spun(process::spin_ns()));
                    return Ok(true);
                }
                core::hint::spin_loop();
            }
            if yields {
                let_others_run();
            }
            let now = Instant::now();
            if now - asked >= KERNEL_EVERY {
                asked = now;
                self.compose();
                self.ask_kernel(Some(Duration::ZERO), core::ptr::null())?;
                if self.gather() > self.closed.len() {
                    return Ok(true);
                }
            }
            if (now - start).as_nanos() >= u128::from(ns) || limit.is_over() {
                return Ok(false);
            }
        }
    }

    fn spin_ns(&self) -> u32 {
        let mut watches = self.watches();
        match (watches.next(), watches.next()) {
            (None, _) => 0,
            (Some(one), None) => self.with_budget(|budget| wait::spin_ns(&one.held, budget)),
            _ => BUDGET.ns(process::spin_ns()),
        }
    }

    /// Does `work` with the budget of the only stream, or the one for many.
    fn with_budget<T>(&self, work: impl FnOnce(&Budget) -> T) -> T {
        let mut watches = self.watches();
        match (watches.next(), watches.next()) {
            (Some(one), None) if self.fds[one.at].events & SENDING == 0 => {
                work(&one.held.shared().receiving.budget)
            }
            (Some(one), None) => work(&one.held.shared().sending.budget),
            _ => work(&BUDGET),
        }
    }

    fn sleep(&mut self, limit: Limit, mask: *const sigset_t) -> Result<(), c_int> {
        let start = Instant::now();
        self.compose();
        let waiter = if self.watches().any(|watch| watch.rings & (RECEIVING | SENDING) != 0) {
            process::tend();
            Waiter::take()
        } else {
            None
        };
        let armed = self.arm(waiter);
        self.watch_daemon();
        let blind = !armed || waiter.is_some() && self.daemon.is_none();
        let outcome = self.doze(limit, blind.then_some(BLIND), mask);
        self.disarm(waiter);
        let slept = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.with_budget(|budget| budget.slept(slept, process::spin_ns()));
        outcome
    }

    /// Sleeps when all is armed, for at most `cap`. While a request may be under way it sleeps only until that has arrived, and looks again.
    fn doze(&mut self, limit: Limit, cap: Option<Duration>, mask: *const sigset_t) -> Result<(), c_int> {
        loop {
            let next = self.armed.next_sleep();
            let ready = self.rings_ready();
            let timeout = if ready { Some(Duration::ZERO) } else { limit.left(next.limit(cap)) };
            self.ask_kernel(timeout, mask)?;
            let is_bounded = next.is_bounded() || self.sets_next.is_bounded();
            if ready || !is_bounded || self.had_events() || limit.is_over() {
                return Ok(());
            }
        }
    }

    /// Whether the kernel's last answer had events, of a descriptor of the program's or one of ours.
    fn had_events(&self) -> bool {
        self.kernel.iter().any(|asked| asked.revents != 0)
    }

    /// Asks all rings to ring `waiter`. `false` if not all will.
    fn arm(&mut self, waiter: Option<Waiter>) -> bool {
        let at = self.fds.len();
        self.kernel[at] = pollfd { fd: waiter.map_or(-1, |waiter| waiter.fd), events: POLLIN, revents: 0 };
        let mut requests = Requests::default();
        for watch in self.watches() {
            let asked = self.fds[watch.at].events & watch.rings;
            watch.held.shared().counters.sleeps.fetch_add(1, Relaxed);
            wait::make_good(&watch.held);
            let (data, room) = (asked & RECEIVING != 0, asked & SENDING != 0);
            match (WaitFor::of(data, room), waiter) {
                (Some(what), Some(waiter)) => drop(requests.ask(&watch.held, what, waiter.id)),
                (Some(_), None) => requests.miss(),
                (None, _) => {}
            }
        }
        let mut armed = requests.are_all();
        self.armed = requests;
        if self.sets {
            for asked in self.fds.iter() {
                armed &= epoll::prepare(asked.fd).armed;
            }
        }
        armed
    }

    /// Watches the daemon's session, whose end concerns all streams.
    fn watch_daemon(&mut self) {
        self.daemon = watch::present();
        let fd = self.daemon.map_or(-1, |daemon| daemon.fd);
        let at = self.fds.len() + 1;
        self.kernel[at] = pollfd { fd, events: 0, revents: 0 };
    }

    fn disarm(&mut self, waiter: Option<Waiter>) {
        let Some(waiter) = waiter else { return };
        for watch in self.watches() {
            watch.held.unwant(WaitFor::Either, waiter.id);
            waiters::left(&watch.held);
        }
        let at = self.fds.len();
        self.kernel[at].fd = -1;
        waiter.give();
    }
}

/// Whether this thread has not asked the kernel for a while: a program that always finds rings ready must notice ended
/// connections all the same.
fn kernel_is_due() -> bool {
    thread_local! {
        static ASKED: Cell<Option<Moment>> = const { Cell::new(None) };
    }
    let now = Moment::now();
    let due = |asked: &Cell<Option<Moment>>| {
        let due = asked.get().is_none_or(|asked| asked.is_past(now, KERNEL_EVERY_UNITS));
        if due {
            asked.set(Some(now));
        }
        due
    };
    ASKED.try_with(due).unwrap_or(true)
}

/// Splits a stream's `events`: what to ask the kernel for, and which bits the rings answer.
fn share(fd: c_int, end: &Held, events: c_short) -> (c_short, c_short) {
    if !wait::is_connected(fd, end) {
        // The kernel reports a completed connection by room only, whatever is wanted.
        return (if events & RECEIVING != 0 { events | POLLOUT } else { events }, 0);
    }
    let (mut ask, mut rings) = (events & POLLPRI, ALWAYS);
    if end.rx() == Direction::Tcp {
        ask |= events & RECEIVING;
    } else {
        rings |= RECEIVING;
        if end.shared().status.fin.load(Relaxed) == 0 {
            ask |= POLLIN | POLLRDHUP;
        }
    }
    if end.tx() == Direction::Tcp {
        ask |= events & SENDING;
    } else {
        rings |= SENDING;
    }
    (ask, rings)
}

/// Readiness in the terms of `poll`.
fn bits(ready: Ready) -> c_short {
    let bit = |is: bool, bits: c_short| if is { bits } else { 0 };
    bit(ready.readable, POLLIN | POLLRDNORM)
        | bit(ready.writable, POLLOUT | POLLWRNORM)
        | bit(ready.read_closed, POLLRDHUP)
        | bit(ready.hung_up, POLLHUP)
        | bit(ready.error, POLLERR)
}
