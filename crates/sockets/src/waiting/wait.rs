//! Blocking calls: spin for a while, then sleep until the far side, the kernel's TCP or a signal has news.

pub use crosslane_client::link::WaitFor;

use crate::daemon::process;
use crate::daemon::waiters::{self, Waiter};
use crate::daemon::watch::{self, Watched};
use crate::descriptors::table::{self, Held};
use crate::kernel::{fd, program, signals, thread};
use crate::socket::{carrier, handshake, port};
use crate::waiting::fd_limit;
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use crosslane_client::apart;
use crosslane_client::link::{self, Sleeper, Spinner};
use crosslane_shm::lock::Busy;
use crosslane_shm::wait::Budget;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// The right to spin for `ns` ns, if this process may have one more spinner.
#[inline]
pub fn spinner(ns: u32) -> Option<Spinner> {
    Spinner::among(ns, process::spinners())
}

/// Waits until `end` may be ready. `Err` is the error number for the program: `EINTR`, or `EAGAIN` past `deadline`. If
/// another thread closes `fd` meanwhile the wait goes on, as in the kernel; `EBADF` comes only if no other descriptor
/// of the stream can stand in.
pub fn wait(fd: c_int, end: &Held, what: WaitFor, deadline: Option<Instant>) -> Result<(), c_int> {
    wait_until(fd, end, what, deadline, || false)
}

/// As [`wait`]. Also returns when `also()` is true; the far side uses the same wakeup for that as for `what`.
pub fn wait_until(
    fd: c_int,
    end: &Held,
    what: WaitFor,
    deadline: Option<Instant>,
    also: impl Fn() -> bool,
) -> Result<(), c_int> {
    let call = Call { fd, end, timed: deadline.is_some(), sleeps: Cell::new(false) };
    let outcome = match link::wait(&call, end, what, deadline, also) {
        Ok(true) => Ok(()),
        Ok(false) => Err(libc::EAGAIN),
        Err(errno) => Err(errno),
    };
    if !call.sleeps.get() {
        return outcome;
    }
    // Another thread may have closed the descriptor, and its number may be something else by now: then the kernel cannot be called.
    let is_tcp = match what {
        WaitFor::Data | WaitFor::Either => end.rx() == Direction::Tcp,
        _ => end.tx() == Direction::Tcp,
    };
    match end.fd(fd) {
        Some(present) if present == fd || !is_tcp => outcome,
        _ => Err(libc::EBADF),
    }
}

/// A call of the program's that waits: signals may end it, and other threads may close its descriptor.
struct Call<'a> {
    fd: c_int,
    end: &'a Held,
    /// Whether it has a time-out.
    timed: bool,
    /// Whether it has slept.
    sleeps: Cell<bool>,
}

impl Sleeper for Call<'_> {
    type Error = c_int;
    type Waiter = Waiter;

    #[inline]
    fn tid(&self) -> u32 {
        thread::tid()
    }

    #[inline]
    fn spin_limit(&self) -> u32 {
        process::spin_ns()
    }

    #[inline]
    fn spinners(&self) -> u32 {
        process::spinners()
    }

    #[inline]
    fn may_move(&self) -> bool {
        !program::sandboxed()
    }

    fn prepare(&self) {
        self.sleeps.set(true);
        process::tend();
        make_good(self.end);
    }

    fn take(&self) -> Result<Option<Waiter>, c_int> {
        Ok(Waiter::take())
    }

    fn id(waiter: &Waiter) -> WaiterId {
        waiter.id
    }

    fn give(&self, waiter: Waiter, _: WaitFor) {
        waiter.give();
        waiters::left(self.end);
    }

    fn queue_up(&self, what: WaitFor, waiter: WaiterId) -> bool {
        queue_up(self.end, what, waiter)
    }

    fn leave_queue(&self, waiter: WaiterId) {
        waiters::leave_queue(waiter);
    }

    fn block(&self, waiter: Option<&Waiter>, until: Option<Instant>) -> Result<bool, c_int> {
        doze(self.fd, self.end, waiter.copied(), until, self.timed)
    }
}

/// Before a sleep: finishes what a killed process that held the end left undone. Costs nothing where this process alone
/// holds it.
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

/// A call waited for a lock that another process holds: it is retried until `deadline`, or until a signal ends it.
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
    Timespec::try_from(deadline?.saturating_duration_since(Instant::now())).ok()
}

/// How long to spin for this end now, ns: 0 if spinning would keep the far side from running.
pub fn spin_ns(end: &Held, budget: &Budget) -> u32 {
    apart::spin_ns(end, budget.ns(process::spin_ns()), !program::sandboxed())
}

/// Another waiter is registered: it wakes us when it leaves, if it belongs to this process.
fn queue_up(end: &Held, what: WaitFor, waiter: WaiterId) -> bool {
    let owner = match what {
        WaitFor::Data | WaitFor::Either => &end.shared().waiting.data,
        _ => &end.shared().waiting.room,
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

/// Sleeps until `until`. Returns whether there was news. `timed`: a signal ends it, whatever its handler asks for.
fn doze(
    fd: c_int,
    end: &Held,
    waiter: Option<Waiter>,
    until: Option<Instant>,
    timed: bool,
) -> Result<bool, c_int> {
    let daemon = watch::present();
    let cap = daemon.is_none().then(|| Instant::now() + link::BLIND);
    let timeout = time_left(until.into_iter().chain(cap).min());
    let mut fds = vec![carrier::polled(fd, end)];
    if let Some(waiter) = waiter {
        fds.push(PollFd::from_borrowed_fd(fd::borrow(waiter.fd), PollFlags::IN));
    }
    let at = fds.len();
    fds.extend(daemon.map(Watched::poll));
    let heard = match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(count) => {
            let news = fds[0].revents();
            if !news.is_empty() {
                carrier::news(fd, end, news);
            }
            carrier::ended(daemon, fds.get(at));
            Ok(count > 0)
        }
        // More descriptors than the limit allows.
        Err(Errno::INVAL) => fd_limit::doze(fd, end, waiter, timeout, link::BLIND),
        Err(errno) => Err(errno),
    };
    match heard {
        Err(Errno::INTR) => interrupted(timed).map(|()| true),
        heard => heard.map_err(Errno::raw_os_error),
    }
}

/// Called after a signal handler ran. As in the kernel, a blocked call goes on if every handler that may have run has
/// `SA_RESTART`; a call with a timeout never does.
pub fn interrupted(timed: bool) -> Result<(), c_int> {
    if timed || program::sandboxed() || signals::any_handler_interrupts() { Err(libc::EINTR) } else { Ok(()) }
}
