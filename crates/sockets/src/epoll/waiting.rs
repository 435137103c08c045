//! `epoll_wait` on a set that holds streams.

use super::set::{Set, State};
use super::{bed, registry};
use crate::poll::{BLIND, KERNEL_EVERY, Limit, timespec_of};
use crate::wait::Spinner;
use crate::{process, real, thread, watch};
use core::ffi::c_int;
use crosslane_client::ready::same_processor;
use libc::{epoll_event, sigset_t};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// After so many wake-ups in a row that were meant for another process, by `fork`, the kernel's part is looked at
/// by time only, for a while.
const FOREIGN: u32 = 3;

/// The program's array of events.
pub struct Events {
    base: *mut epoll_event,
    len: usize,
    max: usize,
}

/// The program's call.
#[derive(Clone, Copy)]
pub struct Call {
    /// The set.
    pub epfd: c_int,
    /// Signals that are held back while it waits; may be null.
    pub mask: *const sigset_t,
    /// Whether its timeout has nanoseconds.
    pub fine: bool,
}

/// `epoll_wait`; `kernel` makes the kernel's call.
#[inline]
pub fn wait(
    call: Call,
    mut events: Events,
    limit: impl FnOnce() -> Option<Limit>,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let Some(set) = registry::of(call.epfd) else { return kernel() };
    if !set.is_shadowed() {
        let outcome = kernel();
        let count = usize::try_from(outcome).unwrap_or(0);
        if !events.accept(count) {
            return outcome;
        }
        if events.len > 0 {
            return events.count();
        }
    }
    let Some(limit) = limit() else { return kernel() };
    match run(set, call, &mut events, limit) {
        Ok(()) => events.count(),
        Err(_) if events.len > 0 => events.count(),
        Err(errno) => real::fail(errno),
    }
}

fn run(set: &'static Set, call: Call, events: &mut Events, limit: Limit) -> Result<(), c_int> {
    let tid = thread::tid();
    set.with(|state| first_look(set, state, call, events, tid))
        .unwrap_or_else(|| events.ask(call).map(drop))?;
    if events.len > 0 {
        return Ok(());
    }
    if limit == Limit::Now {
        return last_look(set, call, events, tid);
    }
    if spin(set, call, events, limit, tid)? {
        return Ok(());
    }
    let mut foreign = 0;
    loop {
        let start = Instant::now();
        let strange = sleep(set, call, events, limit, foreign >= FOREIGN, tid)?;
        foreign = if strange { foreign + 1 } else { 0 };
        let slept = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        set.with(|state| state.budget.slept(slept, process::spin_ns()));
        if events.len > 0 || limit.is_over() {
            return Ok(());
        }
    }
}

/// Streams first; the kernel too if it was not asked for a while.
fn first_look(set: &Set, state: &mut State, call: Call, events: &mut Events, tid: u32) -> Result<(), c_int> {
    if state.turn {
        state.turn = false;
        state.asked = Some(Instant::now());
        let room = events.max.div_ceil(2);
        ask_kernel(state, call, events, room)?;
    }
    state.scan(events, tid);
    if events.len == 0 {
        return Ok(());
    }
    let now = Instant::now();
    if state.asked.is_none_or(|asked| now - asked >= KERNEL_EVERY) {
        if events.is_full() {
            state.turn = true;
        } else {
            state.asked = Some(now);
            ask_kernel(state, call, events, usize::MAX)?;
        }
    }
    leave_rest(set, state, events);
    Ok(())
}

/// Other threads that sleep in the set must wake for what this one leaves, and for what comes next.
fn leave_rest(set: &Set, state: &mut State, events: &Events) {
    if set.sleepers.load(core::sync::atomic::Ordering::Relaxed) > 0 {
        state.arm();
        if events.is_full() {
            set.kick(state);
        }
    }
}

/// Nothing is ready in the rings, and the call must not wait: whether that is all, the kernel says.
fn last_look(set: &'static Set, call: Call, events: &mut Events, tid: u32) -> Result<(), c_int> {
    set.with(|state| {
        state.look_inside();
    });
    let tagged = events.ask(call)?;
    set.with(|state| {
        if tagged {
            state.hear();
        }
        state.asked = Some(Instant::now());
        state.scan(events, tid);
        leave_rest(set, state, events);
    });
    if tagged && events.len == 0 {
        events.ask(call)?;
    }
    Ok(())
}

/// Looks at the rings for a bounded time, and at the kernel each 10 us. Whether it found something.
fn spin(set: &'static Set, call: Call, events: &mut Events, limit: Limit, tid: u32) -> Result<bool, c_int> {
    let (ns, rounds) = set.with(|state| (spin_ns(state), (32 / state.len().max(1)).max(1))).unwrap_or((0, 1));
    let Some(_spinner) = Spinner::among(ns) else { return Ok(false) };
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
        let now = Instant::now();
        if now - asked >= KERNEL_EVERY {
            asked = now;
            let outcome: Option<Result<(), c_int>> = set.with(|state| {
                state.asked = Some(now);
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

/// How long to spin now: not at all if that would keep the far side that was last heard of from running.
fn spin_ns(state: &State) -> u32 {
    if state.is_all_out() {
        return 0;
    }
    let ns = state.budget.ns(process::spin_ns());
    if ns > 0 && state.last().is_some_and(|end| same_processor(end)) { 0 } else { ns }
}

/// Asks for bells, looks once more, sleeps in the kernel. Whether the kernel woke us for news of another process.
fn sleep(
    set: &'static Set,
    call: Call,
    events: &mut Events,
    limit: Limit,
    foreign: bool,
    tid: u32,
) -> Result<bool, c_int> {
    process::tend();
    let armed = set.with(|state| {
        let made = state.make_bed(call.epfd).is_ok();
        set.sleeps(true);
        let inside = state.look_inside();
        let armed = state.arm() && inside.armed && made;
        state.scan(events, tid);
        if events.len > 0 {
            set.sleeps(false);
            leave_rest(set, state, events);
        }
        (armed, state.inner())
    });
    if events.len > 0 {
        return Ok(false);
    }
    let Some((armed, inner)) = armed else { return nap(call, events, limit) };
    // Without a daemon nobody rings, nor tells of its end.
    let cap = (!armed || foreign || watch::present().is_none()).then_some(BLIND);
    if foreign {
        doze(inner, limit.left(cap));
    }
    let timeout = if foreign { Some(Duration::ZERO) } else { limit.left(cap) };
    let outcome = events.ask_for(call, timeout);
    let heard = set.with(|state| {
        set.sleeps(false);
        let heard = !matches!(outcome, Ok(true)) || state.hear();
        state.asked = Some(Instant::now());
        state.scan(events, tid);
        leave_rest(set, state, events);
        heard
    });
    outcome?;
    Ok(heard == Some(false) && events.len == 0)
}

/// In a signal handler that interrupted this thread's work on the set: only the kernel's part, for a short time.
fn nap(call: Call, events: &mut Events, limit: Limit) -> Result<bool, c_int> {
    events.ask_for(call, limit.left(Some(BLIND))).map(|_| false)
}

/// Sleeps on the inner set alone.
fn doze(inner: c_int, timeout: Option<Duration>) {
    if inner < 0 {
        return;
    }
    // SAFETY: our own descriptor, open as long as the set is.
    let mut fds = [PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(inner) }, PollFlags::IN)];
    let timeout = timeout.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

/// What the kernel has ready now, as far as there is room for at most `room` more.
fn ask_kernel(state: &mut State, call: Call, events: &mut Events, room: usize) -> Result<(), c_int> {
    state.look_inside();
    let max = events.max;
    events.max = max.min(events.len.saturating_add(room));
    let asked = events.ask(Call { mask: core::ptr::null(), ..call });
    events.max = max;
    if asked? {
        state.hear();
    }
    Ok(())
}

impl Events {
    /// The program's array; `None` if the kernel is to say what is wrong with it.
    ///
    /// # Safety
    /// `base` must be valid for `max` events, or null.
    #[inline]
    pub unsafe fn new(base: *mut epoll_event, max: c_int) -> Option<Self> {
        let max = usize::try_from(max).ok().filter(|&max| max > 0)?;
        (!base.is_null()).then_some(Self { base, len: 0, max })
    }

    /// Appends an event; there is room.
    #[inline]
    pub fn push(&mut self, event: epoll_event) {
        debug_assert!(self.len < self.max);
        // SAFETY: below `max`, see `new`.
        unsafe { self.base.add(self.len).write_unaligned(event) };
        self.len += 1;
    }

    /// How many more there is room for.
    #[inline]
    pub fn room(&self) -> usize {
        self.max - self.len
    }

    /// Whether there is no more room.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= self.max
    }

    fn count(&self) -> c_int {
        c_int::try_from(self.len).unwrap_or(c_int::MAX)
    }

    /// What the kernel has ready now.
    fn ask(&mut self, call: Call) -> Result<bool, c_int> {
        self.ask_for(call, Some(Duration::ZERO))
    }

    /// Waits for the kernel's events for at most `timeout`. Whether our own one was among them.
    fn ask_for(&mut self, call: Call, timeout: Option<Duration>) -> Result<bool, c_int> {
        let Call { epfd, mask, fine } = call;
        let room = c_int::try_from(self.max - self.len).unwrap_or(c_int::MAX);
        // SAFETY: the rest of the program's array.
        let base = unsafe { self.base.add(self.len) };
        let count = if fine && timeout.is_none_or(|time| !time.is_zero()) {
            let time = timeout.map(timespec_of);
            let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: as above; the mask is the program's.
            unsafe { real::epoll_pwait2(epfd, base, room, time, mask) }
        } else {
            // SAFETY: as above.
            unsafe { real::epoll_pwait(epfd, base, room, timeout.map_or(-1, milliseconds), mask) }
        };
        let count = usize::try_from(count).map_err(|_| real::errno())?;
        Ok(self.accept(count))
    }

    /// The kernel has appended `count` events. Removes our own one, and says whether it was there.
    fn accept(&mut self, count: usize) -> bool {
        let tag = bed::tag();
        let mut tagged = false;
        for at in self.len..(self.len + count).min(self.max) {
            // SAFETY: filled by the kernel.
            let event = unsafe { self.base.add(at).read_unaligned() };
            if event.u64 == tag {
                tagged = true;
            } else {
                self.push(event);
            }
        }
        tagged
    }
}

/// Rounded up, so that no wait is too short.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_event_is_never_reported() {
        let mut array = [1, bed::tag(), 2].map(|u64| epoll_event { events: 1, u64 });
        // SAFETY: three events.
        let mut events = unsafe { Events::new(array.as_mut_ptr(), 3) }.unwrap();
        assert!(events.accept(3));
        assert_eq!(events.count(), 2);
        assert_eq!([array[0].u64, array[1].u64], [1, 2]);
    }

    #[test]
    fn a_wait_is_never_shorter_than_asked() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(3)), 3);
        assert_eq!(milliseconds(Duration::MAX), c_int::MAX);
    }
}
