//! Sending and receiving on a stream.

pub mod peeking;
mod receive;
mod transact;
mod write_zcopy;
mod zcopy;

pub use receive::{pass, receive, receive_apart};
pub use transact::transact;

use crate::daemon::waiters;
use crate::descriptors::table::Held;
use crate::kernel::{polling, real, signals, thread};
use crate::socket::carrier;
use crate::waiting::epoll;
use crate::waiting::wait::{self, WaitFor};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Failure;
use crosslane_client::link::{Advance, Send};
use crosslane_client::offload::{self, Allowed};
use crosslane_shm::account::{self, Function, Span};
use crosslane_shm::lock;
use crosslane_stream::Transfer;
use crosslane_wire::WaiterId;
use std::io::IoSlice;
use std::time::{Duration, Instant};
use zcopy::Sent;

/// What came of a call on a stream.
pub enum Outcome {
    /// It moved so many bytes.
    Bytes(usize),
    /// It failed with this error number.
    Errno(c_int),
    /// The direction travels by the kernel's TCP: make the kernel's call.
    Kernel,
}

/// Sends after which a busy program that never sleeps checks whether the far side has died.
const LOOK_EVERY: u32 = 1024;

/// How long a sender that may wait leaves a full ring at its length: some time slices of a busy processor. A program
/// that is both ends, and sends megabytes before it reads, loses this once for each doubling of the ring.
const GROW_AFTER: Duration = Duration::from_millis(20);

/// Sends all of `buffers`, or what fits if the call must not wait.
pub fn send(fd: c_int, end: &Held, buffers: &[IoSlice<'_>], flags: c_int) -> Outcome {
    let _span = account::sending(Function::Rest);
    if let Err(outcome) = connect_first(fd, end, flags) {
        return outcome;
    }
    let mut sending = Send::new(buffers, 0);
    let deadline = wait::deadline(end.shared().status.send_timeout.load(Relaxed));
    let mut awaited = false;
    if sending.total() == 0 {
        // It asks for nothing but what there is to tell.
        carrier::look_at_kernel(fd, end);
    }
    look_now_and_then(fd, end);
    if let [bytes] = buffers
        && (!end.offload() || end.transfer() != Transfer::Auto)
        && let Some(buffer) = zcopy::wanted(end, bytes)
        && !must_not_wait(end, flags)
    {
        match zcopy::send(fd, end, bytes, &buffer, deadline) {
            Ok(Sent::Bytes(count)) if count == sending.total() => return Outcome::Bytes(count),
            Ok(Sent::Bytes(count)) => sending.add(count),
            Ok(Sent::Ended(count, errno)) => return partial(count, errno),
            Err(failure) => return send_failed(fd, end, failure, 0, flags),
        }
    }
    loop {
        let may_wait = !must_not_wait(end, flags);
        let hands_over = may_wait && end.suits_engine(sending.total());
        let advance = {
            let _allowed = hands_over.then(Allowed::begin);
            sending.try_advance(end, thread::tid(), |waiter| wake_far(end, waiter, account::sending))
        };
        let what = match advance {
            Ok(Advance::Done) => return Outcome::Bytes(sending.done()),
            Ok(Advance::Pending(what)) => what,
            Err(failure) => return send_failed(fd, end, failure, sending.done(), flags),
        };
        if !may_wait {
            lock::forget_busy();
            if !end.can_grow() {
                epoll::blocked(end);
                return partial(sending.done(), libc::EAGAIN);
            }
            if awaited || !reader_comes(end) {
                end.request_grow();
            }
            awaited = true;
        } else if let Err(errno) =
            interrupted(hands_over, deadline).and_then(|()| wait_for_room(fd, end, what, deadline))
        {
            return partial(sending.done(), errno);
        }
    }
}

/// Raises `SIGPIPE` in this thread, as a write to a closed stream does.
pub fn broken_pipe(flags: c_int) -> Outcome {
    if flags & libc::MSG_NOSIGNAL == 0 {
        signals::raise(libc::SIGPIPE);
    }
    Outcome::Errno(libc::EPIPE)
}

/// The error to be reported once, if any.
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
    /// The call's value for the program; `kernel` makes the kernel's call if it comes to that.
    #[inline]
    pub fn finish<T: TryFrom<usize> + From<i8>>(self, kernel: impl FnOnce() -> T) -> T {
        match self {
            Self::Bytes(bytes) => T::try_from(bytes).unwrap_or_else(|_| T::from(-1)),
            Self::Errno(errno) => real::fail(errno),
            Self::Kernel => kernel(),
        }
    }
}

/// Waits for room in a full ring. It grows only if its reader has taken nothing for [`GROW_AFTER`]: a reader that has
/// no processor gets one while we sleep, and a ring that fits the caches serves both better.
fn wait_for_room(fd: c_int, end: &Held, what: WaitFor, deadline: Option<Instant>) -> Result<(), c_int> {
    let _span = account::sending(Function::WaitSpace);
    if let Some(busy) = lock::take_busy() {
        return wait::went_by(busy, deadline);
    }
    if what != WaitFor::Credit {
        return wait::wait(fd, end, what, deadline);
    }
    match wait::wait(fd, end, what, Some(Instant::now() + GROW_AFTER)) {
        Err(libc::EAGAIN) => {
            end.request_room();
            Ok(())
        }
        // The deadline was ours, not the program's.
        Err(libc::EINTR) => wait::interrupted(deadline.is_some()),
        outcome => outcome,
    }
}

/// Spins for room, for a nonblocking call on a full ring that is as long as fits the caches. A reader that runs now
/// makes room within a spin; without one the ring had better grow. This happens once: it takes no longer than a large
/// send by the kernel, and is in vain only as often as a ring can double.
fn reader_comes(end: &Held) -> bool {
    let _span = account::sending(Function::WaitSpace);
    let ns = wait::spin_ns(end, &end.shared().sending.budget);
    wait::spinner(ns).is_some_and(|_spinner| end.spin(ns, || end.has_credit()))
}

/// Rings the far waiter, if there is one to ring.
#[inline]
fn wake_far(end: &Held, wake: Option<WaiterId>, span: fn(Function) -> Span) {
    let _span = wake.map(|_| span(Function::Acknowledge));
    waiters::wake(end, wake);
}

/// Called when a call would wait now: whether a signal came while the engine had its bytes, if it got any.
fn interrupted(handed_over: bool, deadline: Option<Instant>) -> Result<(), c_int> {
    if handed_over && offload::take_interrupted() { wait::interrupted(deadline.is_some()) } else { Ok(()) }
}

fn send_failed(fd: c_int, end: &Held, failure: Failure, done: usize, flags: c_int) -> Outcome {
    let failure = match failure {
        Failure::Unheard(bytes) if carrier::have_reset(fd, end, bytes) => Failure::Reset,
        Failure::Ended => {
            carrier::have_reset(fd, end, usize::from(end.gone()));
            failure
        }
        // A reset comes before what is wrong with a buffer.
        Failure::Fault if carrier::have_reset(fd, end, 0) => Failure::Reset,
        failure => failure,
    };
    match failure {
        _ if done > 0 => Outcome::Bytes(done),
        Failure::Tcp => Outcome::Kernel,
        Failure::Unheard(bytes) => Outcome::Bytes(bytes),
        Failure::Ended | Failure::Reset => match pending_error(end) {
            Some(errno) if errno != libc::EPIPE => Outcome::Errno(errno),
            _ => broken_pipe(flags),
        },
        Failure::Reentered | Failure::WouldBlock => Outcome::Errno(libc::EAGAIN),
        Failure::Fault => Outcome::Errno(libc::EFAULT),
        Failure::Violation(_)
        | Failure::OutOfOrder(_)
        | Failure::InvalidReference(_)
        | Failure::Discontinued { .. } => violated(end, failure),
    }
}

/// The far side broke the protocol: the program sees a reset.
fn violated(end: &Held, failure: Failure) -> Outcome {
    end.give_up(&failure.to_string());
    Outcome::Errno(pending_error(end).unwrap_or(libc::ECONNRESET))
}

/// A stream whose `connect` is still under way: a call that must not wait says so, others wait for it.
#[inline(always)]
fn connect_first(fd: c_int, end: &Held, flags: c_int) -> Result<(), Outcome> {
    if end.shared().status.connecting.load(Relaxed) == 0 { Ok(()) } else { connected(fd, end, flags) }
}

#[cold]
fn connected(fd: c_int, end: &Held, flags: c_int) -> Result<(), Outcome> {
    if wait::is_connected(fd, end) {
        return Ok(());
    }
    if let Some(errno) =
        crate::kernel::sockopt::number(fd, libc::SOL_SOCKET, libc::SO_ERROR).filter(|&errno| errno != 0)
    {
        return Err(Outcome::Errno(errno));
    }
    if must_not_wait(end, flags) {
        return Err(Outcome::Errno(libc::EAGAIN));
    }
    let mut pollfd = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    polling::poll_one(&mut pollfd, -1).map_err(Outcome::Errno)?;
    if wait::is_connected(fd, end) { Ok(()) } else { Err(Outcome::Errno(libc::ENOTCONN)) }
}

/// Whether a call with these flags must return at once.
#[inline]
pub fn must_not_wait(end: &Held, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT != 0 || end.shared().status.nonblock.load(Relaxed) != 0
}

#[inline]
fn look_now_and_then(fd: c_int, end: &Held) {
    if end.shared().sending.sends.load(Relaxed) % LOOK_EVERY == LOOK_EVERY - 1 {
        carrier::look_at_kernel(fd, end);
    }
}

fn partial(done: usize, errno: c_int) -> Outcome {
    if done > 0 { Outcome::Bytes(done) } else { Outcome::Errno(errno) }
}
