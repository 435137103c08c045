//! Blocking calls: spin for a while, then sleep until the far side, the kernel's TCP or a signal has news.

use crate::daemon::process;
use crate::daemon::waiters::{self, Waiter};
use crate::daemon::watch::{self, Watched};
use crate::descriptors::table::{self, Held};
use crate::kernel::{program, thread};
use crate::socket::{handshake, port, quiet};
use crate::waiting::fd_limit;
use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use crosslane_client::apart;
use crosslane_client::end::zcopy::announce::Announcement;
use crosslane_shm::arm::Armed;
use crosslane_shm::lock::Busy;
use crosslane_shm::wait::Budget;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// What a blocked call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Data, end of file, or an error.
    Data,
    /// Room in the ring, or that it may grow, or an error.
    Room,
    /// That the reader gave back a quarter of the ring, or an error.
    Credit,
    /// That what was announced is fetched as a whole, or must be taken back, or an error.
    Answer(Announcement),
}

/// Announced memory, bytes, from which on fetching it takes longer than waking up.
const LONG: u32 = 256 * 1024;
/// Sleep of those who cannot be rung: another waiter is there first, or the daemon cannot be asked.
const BLIND: Duration = Duration::from_millis(5);
/// Sleep of those who are woken by another thread of this process, should that one have missed them.
const QUEUED: Duration = Duration::from_millis(200);

/// Threads of this process that spin now.
static SPINNERS: AtomicU32 = AtomicU32::new(0);

/// The right to spin. Half of the processors may be spun on by one process: when more threads wait than that, those
/// that they wait for need the processors.
pub struct Spinner(());

impl Spinner {
    /// `None` if too many spin already, or if there is no time (`ns` is 0) to spin.
    #[inline]
    pub fn among(ns: u32) -> Option<Self> {
        if ns == 0 {
            return None;
        }
        let before = SPINNERS.fetch_add(1, Relaxed);
        let spinner = Self(());
        (before < process::spinners()).then_some(spinner)
    }

    /// In the child of `fork` nobody spins.
    pub fn forget_all() {
        SPINNERS.store(0, Relaxed);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Relaxed);
    }
}

/// Waits until `end` may be ready. `Err` is the error number for the program: `EINTR`, `EAGAIN` past
/// `deadline`. If another thread closes `fd` meanwhile the wait goes on, as in the kernel, and `EBADF` comes only where no other
/// descriptor of the stream can stand for it.
pub fn wait(fd: c_int, end: &Held, what: WaitFor, deadline: Option<Instant>) -> Result<(), c_int> {
    wait_until(fd, end, what, deadline, || false)
}

/// As [`wait`]. Also returns when `also()` is true; the far side signals that with the same wakeup as `what`.
pub fn wait_until(
    fd: c_int,
    end: &Held,
    what: WaitFor,
    deadline: Option<Instant>,
    also: impl Fn() -> bool,
) -> Result<(), c_int> {
    let ready = || also() || maybe_readable(end, what);
    let budget = match what {
        WaitFor::Data => &end.shared().receiving.budget,
        WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => &end.shared().sending.budget,
    };
    let ns = if is_long(what) || end.engine_waited() { 0 } else { spin_ns(end, budget) };
    if let Some(_spinner) = Spinner::among(ns)
        && end.spin(ns, ready)
    {
        budget.spun(process::spin_ns());
        return Ok(());
    }
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Err(libc::EAGAIN);
    }
    let start = Instant::now();
    let outcome = sleep(fd, end, what, deadline, ready);
    budget.slept(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), process::spin_ns());
    // Another thread may have closed the descriptor, and its number may be something else by now: then the kernel cannot be called.
    let is_tcp = match what {
        WaitFor::Data => end.rx() == Direction::Tcp,
        WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => end.tx() == Direction::Tcp,
    };
    match end.fd(fd) {
        Some(present) if present == fd || !is_tcp => outcome,
        _ => Err(libc::EBADF),
    }
}

/// Before a sleep: what another process that held the end left undone when it was killed is done. Costs nothing where this
/// process alone holds it.
pub fn make_good(end: &Held) {
    if end.shared().counters.refs.load(Relaxed) > table::descriptors(end) {
        for waiter in end.make_good(thread::tid()) {
            waiters::wake(end, waiter);
        }
    }
}

/// Whether the connection of a non-blocking `connect` is made by now.
pub fn is_connected(fd: c_int, end: &Held) -> bool {
    let connecting = &end.shared().status.connecting;
    if connecting.load(Relaxed) != 0 && crate::kernel::address::remote(end.fd(fd).unwrap_or(fd)).is_some() {
        handshake::done(fd, end);
        port::share(fd, end);
    }
    connecting.load(Relaxed) == 0
}

/// A call waited for a lock that another process keeps: it is made again until `deadline`, or until a signal ends it.
pub fn went_by(busy: Busy, deadline: Option<Instant>) -> Result<(), c_int> {
    if busy.interrupted {
        interrupted(deadline.is_some())?;
    }
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) { Err(libc::EAGAIN) } else { Ok(()) }
}

/// The timeout of calls that wait for nothing.
pub const AT_ONCE: u32 = u32::MAX;

/// When a timeout of `ms` milliseconds from now ends; 0 is never, and [`AT_ONCE`] is now.
pub fn deadline(ms: u32) -> Option<Instant> {
    match ms {
        0 => None,
        AT_ONCE => Some(Instant::now()),
        ms => Some(Instant::now() + Duration::from_millis(u64::from(ms))),
    }
}

/// Time left, for the kernel; `None` is for ever.
pub fn time_left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Some(Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    })
}

/// How long to spin for this end now: not at all if that would keep the far side from running.
pub fn spin_ns(end: &Held, budget: &Budget) -> u32 {
    apart::spin_ns(end, budget.ns(process::spin_ns()), !program::sandboxed())
}

/// Whether what is waited for takes so long that a processor is better left to somebody else.
fn is_long(what: WaitFor) -> bool {
    matches!(what, WaitFor::Answer(open) if open.len() > LONG)
}

#[inline]
fn maybe_readable(end: &Held, what: WaitFor) -> bool {
    match what {
        WaitFor::Data => end.maybe_readable(),
        WaitFor::Room => end.has_room(thread::tid()) || is_nobodys(end),
        WaitFor::Answer(open) => end.is_answered(&open) || is_nobodys(end),
        WaitFor::Credit => (end.has_credit() && end.has_room(thread::tid())) || is_nobodys(end),
    }
}

/// Whether nobody is there any more who could make room.
fn is_nobodys(end: &Held) -> bool {
    end.dead().is_some() || end.gone()
}

fn sleep(
    fd: c_int,
    end: &Held,
    what: WaitFor,
    deadline: Option<Instant>,
    ready: impl Fn() -> bool,
) -> Result<(), c_int> {
    end.shared().counters.sleeps.fetch_add(1, Relaxed);
    process::tend();
    make_good(end);
    let waiter = Waiter::take();
    let armed = waiter.is_some_and(|waiter| match what {
        WaitFor::Data => end.want_data(waiter.id),
        WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => end.want_room(waiter.id),
    });
    let queued = !armed && waiter.is_some_and(|waiter| queue_up(end, what, waiter.id));
    let cap = if armed {
        None
    } else if queued {
        Some(QUEUED)
    } else {
        Some(BLIND)
    };
    let mut requests = Armed::NOTHING;
    if armed {
        requests.arm(end.in_flight_ns(), Instant::now);
    }
    let outcome = loop {
        let next = requests.next_sleep(Instant::now);
        if ready() || over(end, what) {
            break Ok(());
        }
        match doze(fd, end, waiter.filter(|_| armed || queued), next.limit(cap), deadline) {
            Ok(false) if next.is_bounded() => {}
            outcome => break outcome.map(drop),
        }
    };
    if let Some(waiter) = waiter {
        match what {
            WaitFor::Data => end.unwant_data(waiter.id),
            WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => end.unwant_room(waiter.id),
        }
        if queued {
            waiters::leave_queue(waiter.id);
        }
        waiter.give();
        waiters::left(end);
    }
    outcome
}

/// Another waiter is registered: it wakes us when it leaves, if it is one of this process.
fn queue_up(end: &Held, what: WaitFor, waiter: WaiterId) -> bool {
    let owner = match what {
        WaitFor::Data => &end.shared().waiting.data,
        WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => &end.shared().waiting.room,
    };
    if !waiters::queue_up(end, WaiterId(owner.load(Relaxed)), waiter) {
        return false;
    }
    // It may have left before it saw us.
    let stays = owner.load(SeqCst) != 0;
    if !stays {
        waiters::leave_queue(waiter);
    }
    stays
}

/// Whether nothing more is to be waited for.
fn over(end: &Held, what: WaitFor) -> bool {
    let status = &end.shared().status;
    status.reset.load(Relaxed) != 0
        || match what {
            WaitFor::Data => {
                (end.has_fin() && !end.is_moving())
                    || status.read_shut.load(Relaxed) != 0
                    || !matches!(end.rx(), Direction::Open | Direction::Handshake)
            }
            WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => end.tx() != Direction::Open || end.gone(),
        }
}

/// Sleeps until `deadline`, or for `cap` at most. Whether something was heard.
fn doze(
    fd: c_int,
    end: &Held,
    waiter: Option<Waiter>,
    cap: Option<Duration>,
    deadline: Option<Instant>,
) -> Result<bool, c_int> {
    let daemon = watch::present();
    let cap = cap.or(daemon.is_none().then_some(BLIND)).map(|cap| Instant::now() + cap);
    let timeout = time_left(deadline.into_iter().chain(cap).min());
    let mut fds = vec![quiet::polled(fd, end)];
    if let Some(waiter) = waiter {
        // SAFETY: our own descriptor, open as long as the waiter is.
        fds.push(PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(waiter.fd) }, PollFlags::IN));
    }
    let at = fds.len();
    fds.extend(daemon.map(Watched::poll));
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(0) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => Err(libc::EAGAIN),
        Ok(count) => {
            let news = fds[0].revents();
            if !news.is_empty() {
                quiet::news(fd, end, news);
            }
            quiet::ended(daemon, fds.get(at));
            Ok(count > 0)
        }
        Err(Errno::INTR) => interrupted(deadline.is_some()).map(|()| true),
        // More descriptors than the limit allows.
        Err(Errno::INVAL) => match fd_limit::doze(fd, end, waiter, timeout, BLIND) {
            Ok(heard) => Ok(heard),
            Err(Errno::INTR) => interrupted(deadline.is_some()).map(|()| true),
            Err(errno) => Err(errno.raw_os_error()),
        },
        Err(errno) => Err(errno.raw_os_error()),
    }
}

/// After a signal handler ran: a blocked call goes on if every handler that could have been it asks for that
/// (`SA_RESTART`), as the kernel has it; a call with a timeout never does.
pub fn interrupted(timed: bool) -> Result<(), c_int> {
    if timed || program::sandboxed() || any_handler_interrupts() { Err(libc::EINTR) } else { Ok(()) }
}

fn any_handler_interrupts() -> bool {
    (1..=64).any(|signal| {
        // SAFETY: all-zero bytes are a valid action; the kernel fills it.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: only asks.
        let known = unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut action) } == 0;
        let handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        known && handled && action.sa_flags & libc::SA_RESTART == 0
    })
}
