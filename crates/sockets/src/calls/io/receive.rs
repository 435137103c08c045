//! Receiving on a stream.

use super::write_zcopy::{self, Landed};
use super::{Outcome, connect_first, interrupted, must_not_wait, peeking, pending_error, violated, wake_far};
use crate::descriptors::table::Held;
use crate::kernel::{clock, signals, thread};
use crate::socket::carrier;
use crate::waiting::wait::{self, WaitFor};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Failure;
use crosslane_client::link::{Advance, Receive};
use crosslane_client::offload::Allowed;
use crosslane_shm::account::{self, Function};
use crosslane_shm::lock;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// How long a peek that wants more bytes than there are sleeps before it looks again.
const PEEK_PAUSE: Duration = Duration::from_millis(1);

/// Receives into `buffers` what is there: at least `SO_RCVLOWAT` bytes, or all with `MSG_WAITALL`.
#[inline]
pub fn receive(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome {
    if peeking::is_on(end) {
        return receive_behind(fd, end, buffers, flags);
    }
    receive_apart(fd, end, buffers, flags)
}

/// The same, but ignores the offset of `SO_PEEK_OFF` and does not move it.
pub fn receive_apart(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome {
    let least = end.shared().status.low_water.load(Relaxed) as usize;
    receive_least(fd, end, buffers, flags, least)
}

/// The same on a stream that has `SO_PEEK_OFF`.
#[cold]
fn receive_behind(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome {
    if flags & libc::MSG_PEEK != 0 {
        let peek = |all: &mut [IoSliceMut<'_>], least| match connect_first(fd, end, flags) {
            Ok(()) => peek_enough(fd, end, all, flags, least),
            Err(outcome) => outcome,
        };
        if let Some(outcome) = peeking::peek(end, buffers, flags, peek) {
            return outcome;
        }
    }
    let outcome = receive_apart(fd, end, buffers, flags);
    peeking::received(fd, end, &outcome);
    outcome
}

/// The same, but at least `least` bytes, or as many as there is room for, if the call may wait.
fn receive_least(
    fd: c_int,
    end: &Held,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
) -> Outcome {
    let _span = account::receiving(Function::Rest);
    if let Err(outcome) = connect_first(fd, end, flags) {
        return outcome;
    }
    let total = buffers.iter().map(|buffer| buffer.len()).sum::<usize>();
    if total == 0 {
        return Outcome::Bytes(0);
    }
    let mut least = least;
    if least > 1 || flags & libc::MSG_WAITALL != 0 {
        least = if flags & libc::MSG_WAITALL != 0 { total } else { least.min(total) };
        if flags & libc::MSG_PEEK != 0 {
            return peek_enough(fd, end, buffers, flags, least);
        }
    }
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    if let [buffer] = &buffers[..]
        && flags == 0
        && least <= 1
        && write_zcopy::is_wanted(end, buffer)
        && !must_not_wait(end, flags)
    {
        match write_zcopy::receive(fd, end, &[], buffer, deadline) {
            Ok(Landed::Bytes(bytes)) => return Outcome::Bytes(bytes),
            Ok(Landed::Ring(_)) => {}
            Ok(Landed::Errno(errno)) => return Outcome::Errno(errno),
            Err(failure) => return receive_failed(fd, end, failure),
        }
    }
    let mut receiving = Receive::new(buffers, least);
    loop {
        let hands_over = end.suits_engine(total) && flags & libc::MSG_PEEK == 0 && !must_not_wait(end, flags);
        match advance(end, &mut receiving, flags, hands_over) {
            Ok(Advance::Done) => return Outcome::Bytes(receiving.done()),
            Ok(Advance::Pending(_)) => {}
            Err(_) if receiving.done() > 0 => return Outcome::Bytes(receiving.done()),
            Err(failure) => return receive_failed(fd, end, failure),
        }
        let interrupted = interrupted(hands_over, deadline).map_err(Outcome::Errno);
        match interrupted.and_then(|()| wait_for_data(fd, end, flags, deadline)) {
            Ok(()) => {}
            Err(_) if receiving.done() > 0 => return Outcome::Bytes(receiving.done()),
            Err(outcome) => return outcome,
        }
    }
}

#[inline]
fn advance(
    end: &Held,
    receiving: &mut Receive<'_, '_>,
    flags: c_int,
    hands_over: bool,
) -> Result<Advance, Failure> {
    if flags & libc::MSG_PEEK != 0 {
        return receiving.try_peek(end, thread::tid());
    }
    let _allowed = hands_over.then(Allowed::begin);
    receiving.try_advance(end, thread::tid(), |waiter| wake_far(end, waiter, account::receiving))
}

/// Hands arrived bytes to `takes` through `buffer`, and consumes as many as it took; waits for some if the call may.
/// `takes` must not wait, and returns why it took nothing.
pub fn pass(
    fd: c_int,
    end: &Held,
    buffer: &mut [u8],
    mut takes: impl FnMut(&[u8]) -> Result<usize, c_int>,
) -> Outcome {
    if let Err(outcome) = connect_first(fd, end, 0) {
        return outcome;
    }
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    loop {
        let mut refused = None;
        let passed = end.try_pass(thread::tid(), buffer, |bytes| {
            takes(bytes).unwrap_or_else(|errno| {
                refused = Some(errno);
                0
            })
        });
        match (passed, refused) {
            (Ok(moved), _) => {
                wake_far(end, moved.wake, account::receiving);
                return Outcome::Bytes(moved.bytes);
            }
            (Err(_), Some(errno)) => return Outcome::Errno(errno),
            (Err(Failure::WouldBlock), None) => {}
            (Err(failure), None) => return receive_failed(fd, end, failure),
        }
        if let Err(outcome) = wait_for_data(fd, end, 0, deadline) {
            return outcome;
        }
    }
}

/// Peeks until there are enough bytes. A wake reports the first bytes only, so this polls for the rest.
fn peek_enough(fd: c_int, end: &Held, buffers: &mut [IoSliceMut<'_>], flags: c_int, least: usize) -> Outcome {
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    loop {
        // Before the bytes: what the far side stored before its FIN is there then.
        carrier::look_at_kernel(fd, end);
        let over = end.ready(thread::tid()).read_closed
            || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match end.try_peek(thread::tid(), buffers) {
            Ok(bytes) => {
                if bytes >= least || over || must_not_wait(end, flags) || !signals::pause(PEEK_PAUSE) {
                    return Outcome::Bytes(bytes);
                }
            }
            Err(Failure::WouldBlock) => {
                if let Err(outcome) = wait_for_data(fd, end, flags, deadline) {
                    return outcome;
                }
            }
            Err(failure) => return receive_failed(fd, end, failure),
        }
    }
}

fn wait_for_data(fd: c_int, end: &Held, flags: c_int, deadline: Option<Instant>) -> Result<(), Outcome> {
    if must_not_wait(end, flags) {
        lock::forget_busy();
        return if looked_again(fd, end) { Ok(()) } else { Err(Outcome::Errno(libc::EAGAIN)) };
    }
    let _span = account::receiving(Function::WaitData);
    if let Some(busy) = lock::take_busy() {
        return wait::went_by(busy, deadline).map_err(Outcome::Errno);
    }
    wait::wait(fd, end, WaitFor::Data, deadline).map_err(Outcome::Errno)
}

pub fn receive_failed(fd: c_int, end: &Held, failure: Failure) -> Outcome {
    let failure = match failure {
        Failure::Ended if was_reset_since(fd, end) => Failure::Reset,
        failure => failure,
    };
    match failure {
        Failure::Tcp => Outcome::Kernel,
        Failure::Ended | Failure::Unheard(_) => Outcome::Bytes(0),
        Failure::Reentered | Failure::WouldBlock => Outcome::Errno(libc::EAGAIN),
        Failure::Fault => Outcome::Errno(libc::EFAULT),
        // A reset behind the FIN: receives return end of file, and the next send gets the error.
        Failure::Reset if end.shared().status.error.load(Relaxed) == libc::EPIPE.unsigned_abs() => {
            Outcome::Bytes(0)
        }
        Failure::Reset => pending_error(end).map_or(Outcome::Bytes(0), Outcome::Errno),
        Failure::Violation(_)
        | Failure::OutOfOrder(_)
        | Failure::InvalidReference(_)
        | Failure::Discontinued { .. } => violated(end, failure),
    }
}

/// A receiving side that was shut ends at once, while the far side may have sent to it, which its kernel answers by a reset.
fn was_reset_since(fd: c_int, end: &Held) -> bool {
    let status = &end.shared().status;
    if status.read_shut.load(Relaxed) != 0 {
        carrier::look_at_kernel(fd, end);
    }
    status.reset.load(Relaxed) != 0
}

/// Looks at the kernel again, for a program that polls without waiting: it sees that the far side died as soon as the
/// kernel knows, or at once if the far side says that it has gone. Returns whether the stream has ended only now.
fn looked_again(fd: c_int, end: &Held) -> bool {
    let now = u32::try_from(clock::now_ms() & 0xffff_ffff).unwrap_or(0);
    let status = &end.shared().status;
    let ended = || (status.reset.load(Relaxed), status.fin.load(Relaxed));
    let before = ended();
    if status.looked.load(Relaxed) == now && (before != (0, 0) || !end.gone()) {
        return false;
    }
    status.looked.store(now, Relaxed);
    carrier::look_at_kernel(fd, end);
    ended() != before
}
