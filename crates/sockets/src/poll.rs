//! `poll` and `ppoll` over streams and kernel descriptors together.
//!
//! ```text
//!   look at streams, and at the kernel's descriptors every 10 us   -> something is ready: done
//!   spin for a bounded time
//!   arm the streams, look once more, sleep in the kernel's ppoll with one wake event for all streams
//! ```

use crate::hook::hook;
use crate::table::{self, Held};
use crate::waiters::Waiter;
use crate::{process, real, thread, wait};
use core::ffi::{c_int, c_short};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::wait::Budget;
use crosslane_stream::Direction;
use libc::{nfds_t, pollfd, sigset_t, timespec};
use rustix::event::PollFlags;
use std::time::{Duration, Instant};

/// While it spins, a call looks at kernel descriptors this often.
const KERNEL_EVERY: Duration = Duration::from_micros(10);
/// Longest sleep of a call of whose streams one cannot be armed, because another waiter is.
const BLIND: Duration = Duration::from_millis(5);
/// How long calls of this process spin.
static BUDGET: Budget = Budget::new();

/// What the kernel is asked of a stream's quiet socket, in `poll` terms, for a program that asked for `events`.
pub fn kernel_events(fd: c_int, end: &Held, events: c_short) -> c_short {
    if !wait::is_connected(fd, end) {
        return events;
    }
    let mut asked = events & libc::POLLPRI;
    if end.rx() == Direction::Tcp {
        asked |= events & (libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP);
    } else if end.shared().status.fin.load(Relaxed) == 0 {
        asked |= libc::POLLIN | libc::POLLRDHUP;
    }
    if end.tx() == Direction::Tcp {
        asked |= events & (libc::POLLOUT | libc::POLLWRNORM);
    }
    asked
}

/// What a stream is ready for, in `poll` terms; `kernel` is what the kernel said of its socket.
pub fn stream_events(fd: c_int, end: &Held, events: c_short, kernel: c_short) -> c_short {
    if end.shared().status.connecting.load(Relaxed) != 0 && !wait::is_connected(fd, end) {
        return kernel & (events | libc::POLLERR | libc::POLLHUP);
    }
    let ready = end.ready(thread::tid());
    let mut revents = kernel & events & libc::POLLPRI;
    let mut set = |on: bool, bits: c_short| revents |= if on { bits } else { 0 };
    let tcp_in = end.rx() == Direction::Tcp && kernel & (libc::POLLIN | libc::POLLRDNORM) != 0;
    let tcp_out = end.tx() == Direction::Tcp && kernel & (libc::POLLOUT | libc::POLLWRNORM) != 0;
    set(ready.readable || tcp_in, events & (libc::POLLIN | libc::POLLRDNORM));
    set(ready.writable || tcp_out, events & (libc::POLLOUT | libc::POLLWRNORM));
    set(ready.read_closed, events & libc::POLLRDHUP);
    set(ready.hung_up, libc::POLLHUP);
    set(ready.error, libc::POLLERR);
    revents
}

/// One call: the program's descriptors, which of them are streams, and what the kernel is asked.
struct Set<'a> {
    fds: &'a mut [pollfd],
    streams: Vec<(usize, Held)>,
    kernel: Vec<pollfd>,
}

/// Waits for one of `fds` until `deadline`, with the signal mask `mask` if there is one; the value for the program.
///
/// # Safety
/// `mask` is null or a valid signal mask.
pub unsafe fn poll_until(
    fds: &mut [pollfd],
    deadline: Option<Instant>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let streams: Vec<(usize, Held)> = fds
        .iter()
        .enumerate()
        .filter_map(|(index, pollfd)| Some((index, table::stream(pollfd.fd)?)))
        .collect();
    if streams.is_empty() {
        return None;
    }
    let kernel = Vec::with_capacity(fds.len() + 1);
    let mut set = Set { fds, streams, kernel };
    // SAFETY: the caller's promise.
    Some(unsafe { set.run(deadline, mask) })
}

impl Set<'_> {
    unsafe fn run(&mut self, deadline: Option<Instant>, mask: *const sigset_t) -> c_int {
        loop {
            let ready = self.look_at_all();
            if ready != 0 || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return ready;
            }
            let ready = self.spin();
            if ready != 0 {
                return ready;
            }
            let start = Instant::now();
            // SAFETY: the caller's promise.
            let slept = unsafe { self.sleep(deadline, mask) };
            BUDGET.slept(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), process::spin_ns());
            if slept < 0 {
                return slept;
            }
        }
    }

    /// Spins over the streams; looks at the kernel's descriptors by time.
    fn spin(&mut self) -> c_int {
        let limit = self.streams.iter().map(|(_, end)| wait::spin_ns(end, &BUDGET)).min().unwrap_or(0);
        let limit = Duration::from_nanos(u64::from(limit));
        let start = Instant::now();
        let mut looked = Duration::ZERO;
        loop {
            for _ in 0..16 {
                if self.streams.iter().any(|(index, end)| self.ready_now(*index, end)) {
                    BUDGET.spun(process::spin_ns());
                    return self.look_at_all();
                }
                core::hint::spin_loop();
            }
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return 0;
            }
            if elapsed - looked >= KERNEL_EVERY {
                looked = elapsed;
                let ready = self.look_at_all();
                if ready != 0 {
                    return ready;
                }
            }
        }
    }

    fn ready_now(&self, index: usize, end: &Held) -> bool {
        let events = self.fds[index].events;
        let wants_in = events & (libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP) != 0;
        let wants_out = events & (libc::POLLOUT | libc::POLLWRNORM) != 0;
        (wants_in && end.stirred()) || (wants_out && end.has_room())
    }

    /// Fills in all `revents` from the streams and a look at the kernel's descriptors; counts the ready ones.
    fn look_at_all(&mut self) -> c_int {
        self.ask_kernel();
        let zero = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: our own array, no mask.
        let polled = unsafe {
            real::ppoll(self.kernel.as_mut_ptr(), self.kernel.len() as nfds_t, &raw const zero, core::ptr::null())
        };
        if polled < 0 {
            self.kernel.iter_mut().for_each(|pollfd| pollfd.revents = 0);
        }
        self.answer()
    }

    fn ask_kernel(&mut self) {
        self.kernel.clear();
        self.kernel.extend_from_slice(self.fds);
        for (index, end) in &self.streams {
            let entry = &mut self.kernel[*index];
            entry.events = kernel_events(entry.fd, end, entry.events);
        }
    }

    /// From the kernel's answer and the streams' state to the program's `revents`.
    fn answer(&mut self) -> c_int {
        for (pollfd, kernel) in self.fds.iter_mut().zip(&self.kernel) {
            pollfd.revents = kernel.revents;
        }
        for (index, end) in &self.streams {
            let pollfd = &mut self.fds[*index];
            let kernel = self.kernel[*index].revents;
            if kernel != 0 && end.shared().status.connecting.load(Relaxed) == 0 {
                wait::quiet_news(pollfd.fd, end, PollFlags::from_bits_retain(kernel.cast_unsigned()));
            }
            pollfd.revents = stream_events(pollfd.fd, end, pollfd.events, kernel);
        }
        let ready = self.fds.iter().filter(|pollfd| pollfd.revents != 0).count();
        c_int::try_from(ready).unwrap_or(c_int::MAX)
    }

    unsafe fn sleep(&mut self, deadline: Option<Instant>, mask: *const sigset_t) -> c_int {
        let waiter = Waiter::take();
        let armed = waiter.is_some_and(|waiter| self.arm(waiter));
        let outcome = if self.look_at_all() != 0 {
            0
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.doze(waiter, armed, deadline, mask) }
        };
        if let Some(waiter) = waiter {
            let errno = real::errno();
            self.disarm(waiter);
            waiter.give();
            real::set_errno(errno);
        }
        outcome
    }

    /// Asks all streams to ring; `false` if one of them is taken.
    fn arm(&self, waiter: Waiter) -> bool {
        self.streams.iter().fold(true, |all, (index, end)| {
            end.shared().counters.sleeps.fetch_add(1, Relaxed);
            let events = self.fds[*index].events;
            let data = end.rx() == Direction::Tcp || end.want_data(waiter.id);
            let wants_room = events & (libc::POLLOUT | libc::POLLWRNORM) != 0 && end.tx() != Direction::Tcp;
            data & (!wants_room || end.want_room(waiter.id)) & all
        })
    }

    fn disarm(&self, waiter: Waiter) {
        for (_, end) in &self.streams {
            end.unwant_data(waiter.id);
            end.unwant_room(waiter.id);
        }
    }

    unsafe fn doze(
        &mut self,
        waiter: Option<Waiter>,
        armed: bool,
        deadline: Option<Instant>,
        mask: *const sigset_t,
    ) -> c_int {
        self.ask_kernel();
        if let Some(waiter) = waiter {
            self.kernel.push(pollfd { fd: waiter.fd, events: libc::POLLIN, revents: 0 });
        }
        let blind = Instant::now() + BLIND;
        let limit = if armed { deadline } else { Some(deadline.map_or(blind, |deadline| deadline.min(blind))) };
        let timeout = wait::time_left(limit).map(|left| timespec { tv_sec: left.tv_sec, tv_nsec: left.tv_nsec });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: our own array; the mask is the caller's promise.
        let polled =
            unsafe { real::ppoll(self.kernel.as_mut_ptr(), self.kernel.len() as nfds_t, timeout, mask) };
        polled.min(0)
    }
}

/// The program's array; `None` if it is not one that we look at.
///
/// # Safety
/// `fds` must be valid for `count` entries.
unsafe fn array<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let count = usize::try_from(count).ok().filter(|&count| count > 0 && count <= table::MAX_FDS)?;
    // SAFETY: the caller's promise.
    (!fds.is_null()).then(|| unsafe { core::slice::from_raw_parts_mut(fds, count) })
}

hook! {
    /// `poll(2)`.
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        let deadline = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        // SAFETY: the program's promise to `poll`.
        let done = unsafe { array(fds, count).and_then(|fds| poll_until(fds, deadline, core::ptr::null())) };
        // SAFETY: as above.
        done.unwrap_or_else(|| unsafe { real::poll(fds, count, timeout) })
    }

    /// `poll` as `_FORTIFY_SOURCE` has it.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: libc::size_t) -> c_int {
        check(count, room);
        // SAFETY: the program's promise.
        unsafe { poll(fds, count, timeout) }
    }

    /// `ppoll(2)`.
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: the program's promise to `ppoll`.
        let deadline = unsafe { timeout.as_ref() }.map(|timeout| Instant::now() + duration(timeout));
        // SAFETY: as above.
        let done = unsafe { array(fds, count).and_then(|fds| poll_until(fds, deadline, mask)) };
        // SAFETY: as above.
        done.unwrap_or_else(|| unsafe { real::ppoll(fds, count, timeout, mask) })
    }

    /// `ppoll` as `_FORTIFY_SOURCE` has it.
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: libc::size_t) -> c_int {
        check(count, room);
        // SAFETY: the program's promise.
        unsafe { ppoll(fds, count, timeout, mask) }
    }
}

/// A time of the program's; one that makes no sense is no time at all.
pub fn duration(time: &timespec) -> Duration {
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn check(count: nfds_t, room: libc::size_t) {
    if usize::try_from(count).is_ok_and(|count| count > room / size_of::<pollfd>()) {
        // SAFETY: ends the process, as the C library would.
        unsafe { libc::abort() }
    }
}
