//! `epoll_wait` on a set that holds streams.

use super::events::{Call, Events};
use super::registry;
use super::set::{Set, State};
use crate::daemon::{process, watch};
use crate::kernel::{fd, program, real, thread};
use crate::waiting::limit::{BLIND, KERNEL_EVERY, KERNEL_EVERY_UNITS, Limit, Timeout};
use crate::waiting::wait;
use core::ffi::c_int;
use crosslane_client::apart;
use crosslane_shm::clock::Moment;
use crosslane_shm::wait::let_others_run;
use libc::epoll_event;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

/// After so many wake-ups in a row that were meant for another process, by `fork`, the kernel's part is looked at
/// by time only, for a while.
const FOREIGN: u32 = 3;

/// `epoll_wait`; `kernel` makes the kernel's call.
#[inline]
pub fn wait(
    call: Call,
    mut events: Events,
    timeout: impl FnOnce() -> Option<Timeout>,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let Some(set) = registry::of(call.epfd) else { return kernel() };
    if !set.is_shadowed() && is_kernels(set) {
        let outcome = kernel();
        let count = usize::try_from(outcome).unwrap_or(0);
        if !events.accept(count) {
            return outcome;
        }
        if events.len > 0 {
            return events.count();
        }
    }
    let Some(timeout) = timeout() else { return kernel() };
    let mut instead = epoll_event { events: 0, u64: 0 };
    let lost = events.is_nowhere();
    if lost {
        events = Events::one(&mut instead);
    }
    let outcome = run(set, call, &mut events, timeout);
    if events.len == 0 {
        hand_over(set);
    }
    match outcome {
        Ok(()) if lost && events.len > 0 => real::fail(libc::EFAULT),
        Ok(()) => events.count(),
        Err(_) if events.len > 0 => events.count(),
        Err(errno) => real::fail(errno),
    }
}

/// Whether the set is the kernel's alone: a stream that is added from now on wakes its sleepers.
fn is_kernels(set: &Set) -> bool {
    set.looks();
    !set.is_shadowed()
}

fn run(set: &'static Set, call: Call, events: &mut Events, timeout: Timeout) -> Result<(), c_int> {
    let tid = thread::tid();
    set.with(|state| first_look(set, state, call, events, tid))
        .unwrap_or_else(|| events.ask(call).map(drop))?;
    if events.len > 0 {
        return Ok(());
    }
    if timeout == Timeout::Now {
        return last_look(set, call, events, tid);
    }
    let limit = timeout.begin();
    if spin(set, call, events, limit, tid)? {
        return Ok(());
    }
    let mut foreign = 0;
    let sleeping = registry::Call::begin(set);
    let mut start = Instant::now();
    loop {
        let call = Call { epfd: sleeping.epfd(call.epfd), ..call };
        let slept = sleep(set, call, events, limit, foreign >= FOREIGN, tid)?;
        if slept == Slept::Briefly && events.len == 0 && !limit.is_over() {
            continue;
        }
        foreign = if slept == Slept::Strange { foreign + 1 } else { 0 };
        let slept = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        set.with(|state| state.budget.slept(slept, process::spin_ns()));
        if events.len > 0 || limit.is_over() {
            return Ok(());
        }
        start = Instant::now();
    }
}

/// Looks at the streams first, and at the kernel too if it was not asked for a while.
fn first_look(set: &Set, state: &mut State, call: Call, events: &mut Events, tid: u32) -> Result<(), c_int> {
    if state.kernel_first {
        state.kernel_first = false;
        let room = events.max.div_ceil(2);
        ask_kernel(state, call, events, room)?;
    }
    state.scan(events, tid);
    if events.len == 0 {
        return Ok(());
    }
    let now = Moment::now();
    if state.asked.is_none_or(|asked| asked.is_past(now, KERNEL_EVERY_UNITS)) {
        if events.is_full() {
            state.kernel_first = true;
        } else {
            let streams = events.len;
            let had_events = ask_kernel(state, call, events, usize::MAX)?;
            events.put_in_order(0, streams);
            if had_events {
                state.scan_rest(events, tid);
            }
        }
    }
    leave_rest(set, state, events);
    Ok(())
}

/// Wakes other threads that sleep in the set, for what this one leaves and for what comes next.
fn leave_rest(set: &Set, state: &mut State, events: &Events) {
    if set.sleepers.load(core::sync::atomic::Ordering::Relaxed) > 0 {
        state.arm();
        if events.is_full() || (events.len > 0 && state.requests.is_under_way()) {
            set.kick(state);
        }
    }
}

/// This thread leaves, and its last request may still be under way: has another thread that sleeps in the set look once more.
fn hand_over(set: &Set) {
    if set.sleepers.load(core::sync::atomic::Ordering::Relaxed) > 0 {
        set.with(|state| {
            if state.requests.is_under_way() {
                set.kick(state);
            }
        });
    }
}

/// Nothing is ready in the rings, and the call must not wait: asks the kernel whether that is all.
fn last_look(set: &'static Set, call: Call, events: &mut Events, tid: u32) -> Result<(), c_int> {
    set.with(|state| {
        state.look_inside();
    });
    let tagged = events.ask(call)?;
    set.with(|state| {
        if tagged {
            state.take_events();
        }
        state.look_at_quiet(call.epfd);
        state.asked = Some(Moment::now());
        state.scan(events, tid);
        leave_rest(set, state, events);
    });
    if tagged && events.len == 0 {
        events.ask(call)?;
    }
    Ok(())
}

/// Looks at the rings for a bounded time, and at the kernel each 10 us. Returns whether it found something.
fn spin(set: &'static Set, call: Call, events: &mut Events, limit: Limit, tid: u32) -> Result<bool, c_int> {
    let (ns, rounds) = set.with(|state| (spin_ns(state), (32 / state.len().max(1)).max(1))).unwrap_or((0, 1));
    let Some(_spinner) = wait::spinner(ns) else { return Ok(false) };
    let is_pumped = |state: &mut State| state.last().is_some_and(|end| end.relayed().is_some());
    let yields = set.with(|state| is_pumped(state)).unwrap_or(false);
    let start = Instant::now();
    let mut asked = start;
    loop {
        for _ in 0..rounds {
            set.with(|state| {
                state.scan(events, tid);
                if events.len > 0 {
                    state.budget.spun(process::spin_ns());
                    leave_rest(set, state, events);
                }
            });
            if events.len > 0 {
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
            let outcome: Option<Result<(), c_int>> = set.with(|state| {
                ask_kernel(state, call, events, usize::MAX)?;
                state.scan(events, tid);
                Ok(())
            });
            outcome.unwrap_or(Ok(()))?;
            if events.len > 0 {
                return Ok(true);
            }
        }
        if (now - start).as_nanos() >= u128::from(ns) || limit.is_over() {
            return Ok(false);
        }
    }
}

/// How long to spin now, ns: 0 if spinning would keep the far side that was last active from running.
fn spin_ns(state: &State) -> u32 {
    if state.is_all_out() {
        return 0;
    }
    let ns = state.budget.ns(process::spin_ns());
    state.last().map_or(ns, |end| apart::spin_ns(end, ns, !program::sandboxed()))
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// The time is up, or there is news.
    Well,
    /// By an event for another process.
    Strange,
    /// The request is no longer under way: time for another look.
    Briefly,
}

/// Asks for wakes, looks once more, sleeps in the kernel.
fn sleep(
    set: &'static Set,
    call: Call,
    events: &mut Events,
    limit: Limit,
    foreign: bool,
    tid: u32,
) -> Result<Slept, c_int> {
    process::tend();
    let armed = set.with(|state| {
        let made = state.make_wakeup_set(call.epfd).is_ok();
        set.sleeps(true);
        if watch::present().is_none() {
            state.heat_all();
        }
        let inside = state.look_inside();
        let armed = state.arm() && inside.armed && made;
        let next = state.requests.next_sleep(Instant::now).sooner(inside.next);
        state.scan(events, tid);
        if events.len > 0 {
            set.sleeps(false);
            leave_rest(set, state, events);
        } else if armed {
            state.cool_all();
        }
        (armed, next, state.inner())
    });
    if events.len > 0 {
        return Ok(Slept::Well);
    }
    let Some((armed, next, inner)) = armed else { return nap(call, events, limit) };
    // Without a daemon nobody rings, and nobody reports its end.
    let cap = next.limit((!armed || foreign || watch::present().is_none()).then_some(BLIND));
    if foreign {
        doze(inner, limit.left(cap));
    }
    let timeout = if foreign { Some(Duration::ZERO) } else { limit.left(cap) };
    let mut outcome = events.ask_for(call, timeout);
    if outcome == Err(libc::EINTR) {
        // What is ready comes before the signal.
        outcome =
            events.ask(call).and_then(|tagged| if tagged || events.len > 0 { Ok(tagged) } else { outcome });
    }
    let had_events = set.with(|state| {
        set.sleeps(false);
        let had_events = !matches!(outcome, Ok(true)) || state.take_events();
        state.asked = Some(Moment::now());
        let kernels = events.len;
        state.scan(events, tid);
        events.put_in_order(kernels, events.len);
        leave_rest(set, state, events);
        had_events
    });
    let tagged = outcome?;
    Ok(match (had_events, next.is_bounded() && !tagged) {
        _ if events.len > 0 => Slept::Well,
        (Some(false), _) => Slept::Strange,
        (_, true) => Slept::Briefly,
        _ => Slept::Well,
    })
}

/// In a signal handler that interrupted this thread's work on the set: waits for the kernel's part only, and for a short time.
fn nap(call: Call, events: &mut Events, limit: Limit) -> Result<Slept, c_int> {
    events.ask_for(call, limit.left(Some(BLIND))).map(|_| Slept::Well)
}

/// Sleeps on the inner set alone.
fn doze(inner: c_int, timeout: Option<Duration>) {
    if inner < 0 {
        return;
    }
    let mut fds = [PollFd::from_borrowed_fd(fd::borrow(inner), PollFlags::IN)];
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

/// Gets the kernel's ready events, at most `room` more. A set that asks again lives long enough for a wakeup set, by
/// which the kernel reports carrier sockets, too. Returns whether it had news of streams.
fn ask_kernel(state: &mut State, call: Call, events: &mut Events, room: usize) -> Result<bool, c_int> {
    if state.asked.replace(Moment::now()).is_some() && state.wakeup_set.is_none() {
        let _ = state.make_wakeup_set(call.epfd);
    }
    state.look_inside();
    let (first, max, room) = (events.len, events.max, room.min(events.room()));
    let call = Call { mask: core::ptr::null(), ..call };
    events.max = first + room;
    let asked = events.ask(call);
    events.max = max;
    if !asked? {
        return Ok(false);
    }
    let had_events = state.take_events();
    if room == 1 && events.len == first {
        // Our own event took the only place.
        events.ask(call)?;
    }
    Ok(had_events)
}
