//! Waiting for one end.

use super::{Requests, Spinner, WaitFor};
use crate::End;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_wire::WaiterId;
use std::time::{Duration, Instant};

/// Sleep of a thread that the far side cannot wake: another waiter is registered, or the daemon cannot be asked.
pub const BLIND: Duration = Duration::from_millis(5);
/// Sleep of a thread that another thread of this process wakes, in case that one missed it.
const QUEUED: Duration = Duration::from_millis(200);

/// How a program waits: what differs between the preload library, which lives in a program that does not know of it
/// (signals, closed descriptors, limits, sandboxes), and a program that is written for streams.
pub trait Sleeper {
    /// Why a waiting call ends early.
    type Error;
    /// A wake event of this program, registered with the daemon.
    type Waiter;

    /// The kernel's id of this thread.
    fn tid(&self) -> u32;

    /// Longest spin of the host, ns.
    fn spin_limit(&self) -> u32;

    /// Threads of this process that may spin at a time.
    fn spinners(&self) -> u32;

    /// Whether this thread may move to another processor to spin there.
    fn may_move(&self) -> bool;

    /// Called before a sleep.
    fn prepare(&self) {}

    /// Takes a wake event for one sleep; `None`: none is available now.
    fn take(&self) -> Result<Option<Self::Waiter>, Self::Error>;

    /// The waiter's number on this host.
    fn id(waiter: &Self::Waiter) -> WaiterId;

    /// Returns the waiter; `what` is not waited for any more.
    fn give(&self, waiter: Self::Waiter, what: WaitFor);

    /// Another waiter is registered for `what`, perhaps of this process: returns whether its thread will wake this one when it leaves.
    fn queue_up(&self, what: WaitFor, waiter: WaiterId) -> bool {
        let _ = (what, waiter);
        false
    }

    /// Ends what [`Self::queue_up`] began.
    fn leave_queue(&self, waiter: WaiterId) {
        let _ = waiter;
    }

    /// Blocks until the waiter is woken, until the kernel or the daemon reports an event of the end, which this call
    /// handles, or until `until`. Returns whether there was an event.
    fn block(&self, waiter: Option<&Self::Waiter>, until: Option<Instant>) -> Result<bool, Self::Error>;
}

/// How long to spin for `what` at `end`, ns: 0 where a spin keeps the far side from running.
#[inline]
pub(super) fn spin_ns<S: Sleeper>(sleeper: &S, end: &End, what: WaitFor) -> u32 {
    if what.is_long() || end.engine_waited() {
        return 0;
    }
    crate::apart::spin_ns(end, end.budget(what).ns(sleeper.spin_limit()), sleeper.may_move())
}

/// Waits until `what` may have come at `end`, or `also()` returns `true`, for which the far side uses the same wakeup.
/// `Ok(false)`: neither by `deadline`.
#[inline]
pub fn wait<S: Sleeper>(
    sleeper: &S,
    end: &End,
    what: WaitFor,
    deadline: Option<Instant>,
    also: impl Fn() -> bool,
) -> Result<bool, S::Error> {
    let tid = sleeper.tid();
    let ready = || also() || end.has_news(tid, what);
    let (budget, limit) = (end.budget(what), sleeper.spin_limit());
    let ns = spin_ns(sleeper, end, what);
    if let Some(_spinner) = Spinner::among(ns, sleeper.spinners())
        && end.spin(ns, ready)
    {
        budget.spun(limit);
        return Ok(true);
    }
    if is_past(deadline) {
        return Ok(false);
    }
    let start = Instant::now();
    let outcome = sleep(sleeper, end, what, deadline, ready);
    budget.slept(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), limit);
    outcome
}

/// Arms, looks once more, sleeps, disarms.
fn sleep<S: Sleeper>(
    sleeper: &S,
    end: &End,
    what: WaitFor,
    deadline: Option<Instant>,
    ready: impl Fn() -> bool,
) -> Result<bool, S::Error> {
    end.shared().counters.sleeps.fetch_add(1, Relaxed);
    sleeper.prepare();
    let Some(waiter) = sleeper.take()? else {
        return doze(sleeper, end, what, (Requests::default(), Some(BLIND)), (deadline, None), ready);
    };
    let (id, mut requests) = (S::id(&waiter), Requests::default());
    let armed = requests.ask(end, what, id);
    let queued = !armed && sleeper.queue_up(what, id);
    let cap = (!armed).then_some(if queued { QUEUED } else { BLIND });
    let heard = (armed || queued).then_some(&waiter);
    let outcome = doze(sleeper, end, what, (requests, cap), (deadline, heard), ready);
    end.unwant(what, id);
    if queued {
        sleeper.leave_queue(id);
    }
    sleeper.give(waiter, what);
    outcome
}

/// Looks, then sleeps for `cap` at most. While a request may be under way, sleeps only until it has landed, and looks again.
fn doze<S: Sleeper>(
    sleeper: &S,
    end: &End,
    what: WaitFor,
    (mut requests, cap): (Requests, Option<Duration>),
    (deadline, waiter): (Option<Instant>, Option<&S::Waiter>),
    ready: impl Fn() -> bool,
) -> Result<bool, S::Error> {
    loop {
        let next = requests.next_sleep();
        if ready() || end.is_over(what) {
            return Ok(true);
        }
        let bound = next.limit(cap).map(|bound| Instant::now() + bound);
        if sleeper.block(waiter, deadline.into_iter().chain(bound).min())? {
            return Ok(true);
        }
        if is_past(deadline) {
            return Ok(ready());
        }
        if !next.is_bounded() {
            return Ok(true);
        }
    }
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
