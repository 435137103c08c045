//! Sending and receiving on a stream.

use crate::offer::{self, Landed};
use crate::table::Held;
use crate::wait::{self, For};
use crate::zcopy::{self, Sent};
use crate::{end_of_life, epoll, real, thread, waiters};
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::{Failure, offload};
use crosslane_shm::account::{self, Function, Span};
use crosslane_shm::lock;
use crosslane_shm::wait::spin;
use crosslane_stream::Transfer;
use crosslane_wire::WaiterId;
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

/// What came of a call on a stream.
pub enum Outcome {
    /// It moved so many bytes.
    Bytes(usize),
    /// It failed with this error number.
    Errno(c_int),
    /// The direction travels by the kernel's TCP: make the kernel's call.
    Kernel,
}

/// How often a busy program that never sleeps looks whether the far side has died, in sends.
const LOOK_EVERY: u64 = 1024;

/// How long a sender that may wait leaves a full ring as it is. Some slices of a busy processor's time; a program that
/// sends megabytes before it reads, being both ends, loses no more than this for each time that the ring can double.
const PATIENCE: Duration = Duration::from_millis(20);

/// `MSG_PEEK` that waits for all.
const PEEK_ALL: c_int = libc::MSG_WAITALL | libc::MSG_PEEK;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Sends all of `buffers`, or what fits if the call must not wait.
pub fn send(fd: c_int, end: &Held, buffers: &[IoSlice<'_>], flags: c_int) -> Outcome {
    let _span = account::sending(Function::Rest);
    if let Err(outcome) = connect_first(fd, end, flags) {
        return outcome;
    }
    let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let deadline = wait::deadline(end.shared().status.send_timeout.load(Relaxed));
    let (mut done, mut awaited) = (0, false);
    look_now_and_then(fd, end);
    if let [bytes] = buffers
        && (!end.offload() || end.transfer() != Transfer::Auto)
        && let Some(buffer) = zcopy::wanted(end, bytes)
        && !must_not_wait(end, flags)
    {
        match zcopy::send(fd, end, bytes, &buffer, deadline) {
            Ok(Sent::Bytes(count)) if count == total => return Outcome::Bytes(count),
            Ok(Sent::Bytes(count)) => done = count,
            Ok(Sent::Ended(count, errno)) => return partial(count, errno),
            Err(failure) => return send_failed(end, failure, 0, flags),
        }
    }
    loop {
        let may_wait = !must_not_wait(end, flags);
        let send = || end.try_send(thread::tid(), buffers, done);
        match if may_wait { waiting(end, send) } else { send() } {
            Ok(moved) => {
                ring(end, moved.wake, account::sending);
                done += moved.bytes;
                if done >= total {
                    return Outcome::Bytes(done);
                }
            }
            Err(Failure::WouldBlock) => {}
            Err(failure) => return send_failed(end, failure, done, flags),
        }
        if !may_wait {
            lock::forget_busy();
            if !end.can_be_pressed() {
                epoll::blocked(end);
                return partial(done, libc::EAGAIN);
            }
            if awaited || !reader_comes(end) {
                end.press();
            }
            awaited = true;
        } else if let Err(errno) = wait_for_room(fd, end, deadline) {
            return partial(done, errno);
        }
    }
}

/// Receives into `buffers`: what is there, or all of it with `MSG_WAITALL`.
pub fn receive(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome {
    let _span = account::receiving(Function::Rest);
    if let Err(outcome) = connect_first(fd, end, flags) {
        return outcome;
    }
    if buffers.iter().all(|buffer| buffer.is_empty()) {
        return Outcome::Bytes(0);
    }
    match flags & (libc::MSG_WAITALL | libc::MSG_PEEK) {
        libc::MSG_WAITALL => return receive_all(fd, end, buffers, flags),
        PEEK_ALL => return peek_all(fd, end, buffers, flags),
        _ => {}
    }
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    if let [buffer] = &buffers[..]
        && flags == 0
        && offer::is_wanted(end, buffer)
        && !must_not_wait(end, flags)
    {
        match offer::receive(fd, end, &[], buffer, deadline) {
            Ok(Landed::Bytes(bytes)) => return Outcome::Bytes(bytes),
            Ok(Landed::Ring(_)) => {}
            Ok(Landed::Errno(errno)) => return Outcome::Errno(errno),
            Err(failure) => return receive_failed(end, failure),
        }
    }
    loop {
        match receive_now(end, buffers, flags) {
            Ok(bytes) => return Outcome::Bytes(bytes),
            Err(Failure::WouldBlock) => {}
            Err(failure) => return receive_failed(end, failure),
        }
        if let Err(outcome) = wait_for_data(fd, end, flags, deadline) {
            return outcome;
        }
    }
}

/// Raises `SIGPIPE` in this thread, as a write to a closed stream does.
pub fn broken_pipe(flags: c_int) -> Outcome {
    if flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: a signal to ourselves.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    Outcome::Errno(libc::EPIPE)
}

/// The error that is to be told once, if any.
pub fn pending_error(end: &Held) -> Option<c_int> {
    if end.dead().is_some() {
        end.break_off(libc::ECONNRESET);
    }
    match end.shared().status.error.swap(0, Relaxed) {
        0 => None,
        // Other processes that hold the end may write anything there.
        errno => {
            c_int::try_from(errno).ok().filter(|errno| (1..4096).contains(errno)).or(Some(libc::ECONNRESET))
        }
    }
}

impl Outcome {
    /// The value for the program, with `kernel` making the kernel's call if it comes to that.
    #[inline]
    pub fn finish<T: TryFrom<usize> + From<i8>>(self, kernel: impl FnOnce() -> T) -> T {
        match self {
            Self::Bytes(bytes) => T::try_from(bytes).unwrap_or_else(|_| T::from(-1)),
            Self::Errno(errno) => real::fail(errno),
            Self::Kernel => kernel(),
        }
    }
}

/// The ring is full. One that could be longer becomes so only if its reader has taken nothing for [`PATIENCE`]: a reader
/// that just has no processor gets one while we sleep, and a ring that stays in the caches serves both better.
fn wait_for_room(fd: c_int, end: &Held, deadline: Option<Instant>) -> Result<(), c_int> {
    let _span = account::sending(Function::WaitSpace);
    if end.offload() && offload::take_interrupted() {
        wait::interrupted(deadline.is_some())?;
    }
    if let Some(busy) = lock::take_busy() {
        return wait::went_by(busy, deadline);
    }
    let keeps_too_little = end.keeps_too_little();
    if !(end.can_be_pressed() || keeps_too_little) {
        return wait::wait(fd, end, For::Room, deadline);
    }
    match wait::wait(fd, end, For::Credit, Some(Instant::now() + PATIENCE)) {
        Err(libc::EAGAIN) => {
            if keeps_too_little {
                end.keep_more();
            } else {
                end.press();
            }
            Ok(())
        }
        // The limit of time was ours, not the program's.
        Err(libc::EINTR) => wait::interrupted(deadline.is_some()),
        outcome => outcome,
    }
}

/// The ring is as long as stays in the caches, and full. A reader that runs now makes room within the time of a spin;
/// if none does, the ring is better longer, for a call that must not wait. It does this once: it takes no longer than the
/// kernel takes for a large send, and is in vain only as often as a ring can double.
fn reader_comes(end: &Held) -> bool {
    let _span = account::sending(Function::WaitSpace);
    let ns = wait::spin_ns(end, &end.shared().sending.budget);
    wait::Spinner::among(ns).is_some_and(|_spinner| spin(ns, || end.has_credit()))
}

/// Rings the far waiter, if there is one to be rung.
#[inline]
fn ring(end: &Held, wake: Option<WaiterId>, span: fn(Function) -> Span) {
    let _span = wake.map(|_| span(Function::Acknowledge));
    waiters::ring(end, wake);
}

/// Does `call`, which may wait: for the engine too, where that copies.
#[inline(always)]
fn waiting<T>(end: &Held, call: impl FnOnce() -> T) -> T {
    if end.offload() { offload::allowed(call) } else { call() }
}

fn receive_now(end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Failure> {
    if flags & libc::MSG_PEEK != 0 {
        return end.try_peek(thread::tid(), buffers);
    }
    let mut receive = || end.try_receive(thread::tid(), buffers);
    let moved = if must_not_wait(end, flags) { receive() } else { waiting(end, receive) }?;
    ring(end, moved.wake, account::receiving);
    Ok(moved.bytes)
}

fn receive_all(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome {
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    let mut done = 0;
    for buffer in buffers {
        let mut at = 0;
        while at < buffer.len() {
            match receive_now(end, &mut [IoSliceMut::new(&mut buffer[at..])], flags) {
                Ok(bytes) => {
                    at += bytes;
                    done += bytes;
                }
                Err(Failure::WouldBlock) => match wait_for_data(fd, end, flags, deadline) {
                    Ok(()) => {}
                    Err(_) if done > 0 => return Outcome::Bytes(done),
                    Err(outcome) => return outcome,
                },
                Err(_) if done > 0 => return Outcome::Bytes(done),
                Err(failure) => return receive_failed(end, failure),
            }
        }
    }
    Outcome::Bytes(done)
}

/// A bell tells of the first bytes only; the rest is looked for.
fn peek_all(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome {
    let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    loop {
        // Before the bytes: what the far side stored before its FIN is there then.
        wait::look_at_kernel(fd, end);
        let over = end.ready(thread::tid()).read_closed
            || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match end.try_peek(thread::tid(), buffers) {
            Ok(bytes) => {
                if bytes >= total || over || must_not_wait(end, flags) || !pause() {
                    return Outcome::Bytes(bytes);
                }
            }
            Err(Failure::WouldBlock) => {
                if let Err(outcome) = wait_for_data(fd, end, flags, deadline) {
                    return outcome;
                }
            }
            Err(failure) => return receive_failed(end, failure),
        }
    }
}

/// Sleeps for a moment; `false` if a signal came.
fn pause() -> bool {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: a valid time; what is left is not wanted.
    unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) == 0 }
}

fn wait_for_data(fd: c_int, end: &Held, flags: c_int, deadline: Option<Instant>) -> Result<(), Outcome> {
    if must_not_wait(end, flags) {
        lock::forget_busy();
        look_each_tick(fd, end);
        return Err(Outcome::Errno(libc::EAGAIN));
    }
    let _span = account::receiving(Function::WaitData);
    if end.offload() && offload::take_interrupted() {
        wait::interrupted(deadline.is_some()).map_err(Outcome::Errno)?;
    }
    if let Some(busy) = lock::take_busy() {
        return wait::went_by(busy, deadline).map_err(Outcome::Errno);
    }
    wait::wait(fd, end, For::Data, deadline).map_err(Outcome::Errno)
}

fn send_failed(end: &Held, failure: Failure, done: usize, flags: c_int) -> Outcome {
    match failure {
        _ if done > 0 => Outcome::Bytes(done),
        Failure::Tcp => Outcome::Kernel,
        Failure::Ended => broken_pipe(flags),
        Failure::Reentered | Failure::WouldBlock => Outcome::Errno(libc::EAGAIN),
        Failure::Fault => Outcome::Errno(libc::EFAULT),
        Failure::Reset => match pending_error(end) {
            Some(errno) => Outcome::Errno(errno),
            None => broken_pipe(flags),
        },
        Failure::Violation(_) | Failure::OutOfOrder(_) | Failure::Lie(_) | Failure::Discontinued { .. } => {
            violated(end, failure)
        }
    }
}

pub fn receive_failed(end: &Held, failure: Failure) -> Outcome {
    match failure {
        Failure::Tcp => Outcome::Kernel,
        Failure::Ended => Outcome::Bytes(0),
        Failure::Reentered | Failure::WouldBlock => Outcome::Errno(libc::EAGAIN),
        Failure::Fault => Outcome::Errno(libc::EFAULT),
        // A reset behind the FIN: the end of file stands, and the error is the next sender's.
        Failure::Reset if end.shared().status.error.load(Relaxed) == libc::EPIPE.unsigned_abs() => {
            Outcome::Bytes(0)
        }
        Failure::Reset => pending_error(end).map_or(Outcome::Bytes(0), Outcome::Errno),
        Failure::Violation(_) | Failure::OutOfOrder(_) | Failure::Lie(_) | Failure::Discontinued { .. } => {
            violated(end, failure)
        }
    }
}

/// The far side broke the protocol: the program sees a reset.
fn violated(end: &Held, failure: Failure) -> Outcome {
    end.give_up(&failure.to_string());
    Outcome::Errno(pending_error(end).unwrap_or(libc::ECONNRESET))
}

/// A stream whose `connect` is still under way: a call that must not wait says so, others wait for it.
#[inline]
fn connect_first(fd: c_int, end: &Held, flags: c_int) -> Result<(), Outcome> {
    if end.shared().status.connecting.load(Relaxed) == 0 || wait::is_connected(fd, end) {
        return Ok(());
    }
    if let Some(errno) =
        crate::options::number(fd, libc::SOL_SOCKET, libc::SO_ERROR).filter(|&errno| errno != 0)
    {
        return Err(Outcome::Errno(errno));
    }
    if must_not_wait(end, flags) {
        return Err(Outcome::Errno(libc::EAGAIN));
    }
    let mut pollfd = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd.
    let polled = unsafe { real::poll(&raw mut pollfd, 1, -1) };
    if polled < 0 {
        return Err(Outcome::Errno(real::errno()));
    }
    if wait::is_connected(fd, end) { Ok(()) } else { Err(Outcome::Errno(libc::ENOTCONN)) }
}

#[inline]
fn must_not_wait(end: &Held, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || end.shared().status.nonblock.load(Relaxed) != 0
}

#[inline]
fn look_now_and_then(fd: c_int, end: &Held) {
    let calls = CALLS.try_with(|calls| calls.replace(calls.get() + 1)).unwrap_or(0);
    if calls % LOOK_EVERY == LOOK_EVERY - 1 {
        wait::look_at_kernel(fd, end);
    }
}

/// A program that asks now and then without waiting sees that the far side died as soon as the kernel knows.
fn look_each_tick(fd: c_int, end: &Held) {
    let now = u32::try_from(end_of_life::now_ms() & 0xffff_ffff).unwrap_or(0);
    let looked = &end.shared().status.looked;
    if looked.load(Relaxed) != now {
        looked.store(now, Relaxed);
        wait::look_at_kernel(fd, end);
    }
}

fn partial(done: usize, errno: c_int) -> Outcome {
    if done > 0 { Outcome::Bytes(done) } else { Outcome::Errno(errno) }
}
