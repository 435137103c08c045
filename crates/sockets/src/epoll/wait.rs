//! `epoll_wait`: scan the streams, look at the kernel by time, spin, arm, sleep.

use super::set::{EDGE, IN, Inside, Interest, ONESHOT, OUT, PRI, RDHUP, Set, WAKE, kernel_mask};
use crate::table::Held;
use crate::{process, real, thread, wait};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use crosslane_client::Ready;
use libc::{epoll_event, sigset_t, timespec};
use rustix::event::PollFlags;
use std::time::{Duration, Instant};

/// While streams keep a program busy, the kernel's part of the set is looked at this often, in ticks of the processor's
/// clock: some 10 us.
const KERNEL_EVERY: u64 = 25_000;
/// Longest sleep when a stream could not be armed, because another waiter is.
const BLIND: Duration = Duration::from_millis(5);
const ERR: u32 = libc::EPOLLERR.cast_unsigned();
const HUP: u32 = libc::EPOLLHUP.cast_unsigned();
const ALWAYS: u32 = ERR | HUP;

std::thread_local! {
    static LOOKED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Where events go.
pub struct Room {
    events: *mut epoll_event,
    max: usize,
    filled: usize,
}

/// The program's array.
pub fn room(events: *mut epoll_event, max: c_int) -> Room {
    Room { events, max: usize::try_from(max).unwrap_or(0), filled: 0 }
}

impl Room {
    fn is_full(&self) -> bool {
        self.filled >= self.max
    }

    unsafe fn push(&mut self, events: u32, data: u64) {
        // SAFETY: the caller made sure that there is room in the program's array.
        unsafe { self.events.add(self.filled).write_unaligned(epoll_event { events, u64: data }) };
        self.filled += 1;
    }

    fn count(&self) -> c_int {
        c_int::try_from(self.filled).unwrap_or(c_int::MAX)
    }
}

/// The call; the value for the program.
///
/// # Safety
/// `room` is the program's array; `mask` is null or a valid signal mask.
pub unsafe fn wait(
    set: &Set,
    epfd: c_int,
    mut room: Room,
    deadline: Option<Instant>,
    no_wait: bool,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        loop {
            scan(set, &mut room);
            if room.filled == 0 || kernel_is_due() {
                look_at_kernel(set, epfd, &mut room, Some(Duration::ZERO), core::ptr::null());
            }
            if room.filled > 0 || no_wait || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return room.count();
            }
            if spin(set) {
                continue;
            }
            let start = Instant::now();
            let outcome = sleep(set, epfd, &mut room, deadline, mask);
            let slept = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            set.budget.slept(slept, process::spin_ns());
            if outcome < 0 || room.filled > 0 {
                return if outcome < 0 { outcome } else { room.count() };
            }
        }
    }
}

/// For `poll` on the epoll descriptor: whether a stream is ready, and whether all are armed.
pub fn ready_or_armed(set: &Set) -> super::Prepared {
    let Some(mut inside) = set.lock() else { return super::Prepared::default() };
    let ready = |inside: &Inside| inside.streams.values().any(is_stirred);
    if ready(&inside) {
        return super::Prepared { ready: true, armed: true };
    }
    let armed = arm(set, &mut inside);
    super::Prepared { ready: ready(&inside), armed }
}

/// Tells of all streams that are ready, beginning behind the one where the last scan stopped.
unsafe fn scan(set: &Set, room: &mut Room) {
    let Some(mut guard) = set.lock() else { return };
    let inside: &mut Inside = &mut guard;
    let tid = thread::tid();
    let start = inside.next;
    let mut stopped = None;
    let mut visit = |fd: &c_int, interest: &mut Interest, room: &mut Room| {
        if room.is_full() {
            stopped.get_or_insert(*fd);
            return;
        }
        let events = news(set, *fd, interest, tid);
        if events != 0 {
            // SAFETY: there is room, as just seen.
            unsafe { room.push(events, interest.data) };
        }
    };
    for (fd, interest) in inside.streams.range_mut(start..) {
        visit(fd, interest, room);
    }
    for (fd, interest) in inside.streams.range_mut(..start) {
        visit(fd, interest, room);
    }
    inside.next = stopped.unwrap_or(0);
}

/// What is to be told of one stream now.
#[inline]
fn news(set: &Set, fd: c_int, interest: &mut Interest, tid: u32) -> u32 {
    if interest.dormant || interest.spent || is_quiet(interest) {
        return 0;
    }
    let end = &interest.end;
    if end.shared().status.connecting.load(Relaxed) != 0 && !wait::is_connected(fd, end) {
        return 0;
    }
    let watched = kernel_mask(fd, end, interest.events);
    if watched != interest.watched {
        interest.watched = watched;
        set.tell_kernel(libc::EPOLL_CTL_MOD, fd, watched);
    }
    let bits = bits_of(end.ready(tid)) & (interest.events | ALWAYS);
    if interest.events & EDGE != 0 && !is_edge(interest, bits) {
        return 0;
    }
    interest.spent = bits != 0 && interest.events & ONESHOT != 0;
    bits
}

/// What a stream is ready for, in `epoll` terms.
fn bits_of(ready: Ready) -> u32 {
    let bit = |on: bool, bits: u32| if on { bits } else { 0 };
    bit(ready.readable, IN)
        | bit(ready.writable, OUT)
        | bit(ready.read_closed, RDHUP)
        | bit(ready.hung_up, HUP)
        | bit(ready.error, ERR)
}

/// Whether nothing can have happened since the last look: a handful of loads.
#[inline]
fn is_quiet(interest: &Interest) -> bool {
    let status = &interest.end.shared().status;
    let over = status.fin.load(Relaxed) | status.reset.load(Relaxed) | status.read_shut.load(Relaxed);
    let room_wanted = interest.events & OUT != 0
        && (interest.events & EDGE == 0
            || interest.blocked != Some(interest.end.shared().sending.blocked.load(Relaxed)));
    over == 0
        && !room_wanted
        && !interest.end.stirred()
        && interest.end.tx() == crosslane_stream::Direction::Open
        && matches!(
            interest.end.rx(),
            crosslane_stream::Direction::Open | crosslane_stream::Direction::Greeting
        )
}

fn is_stirred(interest: &Interest) -> bool {
    !interest.dormant && !interest.spent && !is_quiet(interest)
}

/// Whether something is new since the program was last told; remembers what is told now.
fn is_edge(interest: &mut Interest, bits: u32) -> bool {
    let arrived = interest.end.arrivals(&mut interest.seen) && bits & IN != 0;
    let blocked = interest.end.shared().sending.blocked.load(Relaxed);
    let room = bits & OUT != 0 && interest.blocked != Some(blocked);
    if room {
        interest.blocked = Some(blocked);
    }
    let [ends, ..] = (u32::from(bits & RDHUP != 0)
        | u32::from(bits & HUP != 0) << 1
        | u32::from(bits & ERR != 0) << 2
        | u32::from(bits & IN != 0 && is_over(&interest.end)) << 3)
        .to_le_bytes();
    let ended = ends & !interest.ends_told != 0;
    interest.ends_told = ends;
    arrived || room || ended
}

fn is_over(end: &Held) -> bool {
    let status = &end.shared().status;
    status.fin.load(Relaxed) | status.reset.load(Relaxed) | status.read_shut.load(Relaxed) != 0
        || end.rx() != crosslane_stream::Direction::Open
}

/// Whether it is time to look at the kernel's part although streams are ready.
fn kernel_is_due() -> bool {
    let now = ticks();
    LOOKED.with(|looked| {
        let due = now.wrapping_sub(looked.get()) >= KERNEL_EVERY;
        if due {
            looked.set(now);
        }
        due
    })
}

fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec.unsigned_abs() * 5 / 2;
}

/// The kernel's `epoll_pwait2`, with our own events taken out of what it tells.
unsafe fn look_at_kernel(
    set: &Set,
    epfd: c_int,
    room: &mut Room,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    if room.is_full() {
        return 0;
    }
    let time = timeout.map(|left| timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let free = c_int::try_from(room.max - room.filled).unwrap_or(c_int::MAX);
    // SAFETY: the rest of the program's array; the mask is the caller's promise.
    let told = unsafe { real::epoll_pwait2(epfd, room.events.add(room.filled), free, time, mask) };
    let Ok(told) = usize::try_from(told) else { return told };
    let first = room.filled;
    for index in first..first + told {
        // SAFETY: just filled by the kernel.
        let event = unsafe { room.events.add(index).read_unaligned() };
        match set.own_event(&event) {
            // SAFETY: there is room, since what is kept is never more than what was told.
            None => unsafe { room.push(event.events, event.u64) },
            Some(WAKE) => {
                if let Some(waiter) = set.lock().and_then(|inside| inside.waiter) {
                    waiter.clear();
                }
            }
            Some(fd) => {
                let told = quiet_socket(set, c_int::try_from(fd).unwrap_or(-1), event.events);
                if let Some((events, data)) = told {
                    // SAFETY: as above.
                    unsafe { room.push(events, data) };
                }
            }
        }
    }
    0
}

/// The kernel has news of a stream's socket; what of it is the program's.
fn quiet_socket(set: &Set, fd: c_int, events: u32) -> Option<(u32, u64)> {
    let mut inside = set.lock()?;
    let interest = inside.streams.get_mut(&fd)?;
    let end = interest.end.clone();
    let [e0, e1, ..] = events.to_le_bytes();
    let kernel = u16::from_le_bytes([e0, e1]);
    if end.shared().status.connecting.load(Relaxed) != 0 && !wait::is_connected(fd, &end) && !interest.dormant {
        let told = events & (interest.events | ALWAYS);
        interest.spent |= told != 0 && interest.events & ONESHOT != 0;
        return (told != 0).then_some((told, interest.data));
    }
    wait::quiet_news(fd, &end, PollFlags::from_bits_retain(kernel));
    if interest.spent || interest.dormant {
        return None;
    }
    let by_tcp = interest.watched & interest.events & (IN | OUT | PRI);
    let rx_tcp = end.rx() == crosslane_stream::Direction::Tcp;
    let tx_tcp = end.tx() == crosslane_stream::Direction::Tcp;
    let mine = if rx_tcp { IN | RDHUP } else { 0 } | if tx_tcp { OUT } else { 0 } | PRI;
    if events & by_tcp & mine == 0 {
        return None;
    }
    let told = events & by_tcp & mine | bits_of(end.ready(thread::tid())) & (interest.events | ALWAYS);
    interest.spent = told != 0 && interest.events & ONESHOT != 0;
    (told != 0).then_some((told, interest.data))
}

/// Spins over the streams for a bounded time. Whether there is something to look at.
fn spin(set: &Set) -> bool {
    let limit = set.lock().and_then(|inside| {
        inside.streams.values().map(|interest| wait::spin_ns(&interest.end, &set.budget)).max()
    });
    let limit = Duration::from_nanos(u64::from(limit.unwrap_or(0)));
    if limit.is_zero() {
        return false;
    }
    let start = Instant::now();
    loop {
        if stirs_soon(set) {
            set.budget.spun(process::spin_ns());
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        if kernel_is_due() {
            return true;
        }
    }
}

/// A few rounds over the streams; the lock is held no longer than that.
fn stirs_soon(set: &Set) -> bool {
    let Some(inside) = set.lock() else { return false };
    (0..16).any(|_| {
        core::hint::spin_loop();
        inside.streams.values().any(|interest| !interest.dormant && !interest.spent && interest.end.stirred())
    })
}

/// Asks the far sides to ring, once for each stream that had news since it was last asked. `false`: some could not be
/// asked.
fn arm(set: &Set, inside: &mut Inside) -> bool {
    let Some(waiter) = set.waiter(inside) else { return false };
    let mut all = true;
    for interest in inside.streams.values_mut().filter(|interest| !interest.dormant) {
        let end = &interest.end;
        let position = end.shared().consumer.position();
        if interest.armed_at != Some(position) && end.rx() != crosslane_stream::Direction::Tcp {
            end.shared().counters.sleeps.fetch_add(1, Relaxed);
            let armed = end.want_data(waiter.id);
            interest.armed_at = armed.then_some(position);
            all &= armed;
        }
        if interest.events & OUT != 0 && !interest.spent && !end.has_room() {
            all &= end.want_room(waiter.id);
        }
    }
    all
}

unsafe fn sleep(
    set: &Set,
    epfd: c_int,
    room: &mut Room,
    deadline: Option<Instant>,
    mask: *const sigset_t,
) -> c_int {
    set.sleepers.fetch_add(1, SeqCst);
    let armed = set.lock().is_none_or(|mut inside| arm(set, &mut inside));
    // SAFETY: the caller's promise, here and below.
    unsafe { scan(set, room) };
    let outcome = if room.filled > 0 {
        0
    } else {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = if armed { left } else { Some(left.map_or(BLIND, |left| left.min(BLIND))) };
        // SAFETY: as above.
        unsafe { look_at_kernel(set, epfd, room, left, mask) }
    };
    set.sleepers.fetch_sub(1, SeqCst);
    outcome
}
