//! How a stream ends: the last close, a circuit that was not needed, a peer that broke the protocol.

use crate::daemon::{fd_exhausted, process, waiters};
use crate::descriptors::internal_fds;
use crate::descriptors::table::{self, Held};
use crate::kernel::{clock, fd, program, real, sockopt, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use crosslane_client::Failure;
use crosslane_shm::wake::NOBODY;
use crosslane_stream::{Direction, Side};
use crosslane_wire::WaiterId;
use std::time::Duration;

/// Called before a descriptor of the stream is closed, while `fd` is still open. Returns whether unread bytes ask for a
/// reset instead of a FIN, as in the kernel.
pub fn closing(held: &Held) -> bool {
    end_by(held, || table::release(held))
}

/// The same; `release` gives up this process's hold and returns whether it was the last one.
fn end_by(held: &Held, release: impl FnOnce() -> bool) -> bool {
    let last_anywhere = held.shared().counters.release();
    let unread = last_anywhere && finish(held);
    if release() {
        let waiting = &held.shared().waiting;
        waiters::wake_own(WaiterId(waiting.data.load(Relaxed)), NOBODY);
        waiters::wake_own(WaiterId(waiting.room.load(Relaxed)), NOBODY);
    }
    unread
}

/// The program closes `last`, its last descriptor of the stream, while other threads are in calls on it. As in the
/// kernel the calls go on, and the connection ends with the last of them. `false` if that cannot be.
pub fn outlived(held: &Held, last: c_int) -> bool {
    if program::sandboxed() || !table::is_in_call(held) {
        return false;
    }
    let Ok(copy) = fd::duplicate(last) else { return false };
    table::stand_in(held, internal_fds::hide(copy));
    true
}

/// The last call has ended on a stream that has no descriptor of the program's any more; `fd` stood for it.
pub fn left(held: &Held, fd: c_int) {
    let errno = real::errno();
    if end_by(held, || true) {
        sockopt::reset_on_close(fd);
    }
    internal_fds::close(fd);
    real::set_errno(errno);
}

/// One more descriptor, of this process or a forked one, refers to the stream.
pub fn referred(held: &Held) {
    held.shared().counters.refs.fetch_add(1, Relaxed);
}

/// A child that nobody counts may hold the stream from now on: no close is known to be the last one any more, and the
/// kernel's FIN shows when it was.
pub fn lent(held: &Held) {
    /// More descriptors than such a child has of one stream.
    const SOME: u32 = 16;
    held.shared().counters.refs.fetch_add(SOME, Relaxed);
}

/// Drops a reference without the effects of a close; for descriptors that exec closes.
pub fn unreferred(held: &Held) {
    held.shared().counters.refs.fetch_sub(1, AcqRel);
}

/// A circuit whose connection did not come about.
pub fn give_up(held: &Held) {
    close_circuit(held, true);
    held.shared().counters.refs.store(0, Relaxed);
    table::release(held);
}

/// Ends the connection, whoever has copies of its socket: both sides are reset, as the kernel does.
pub fn abort(held: &Held) {
    held.shared().status.linger.store(1, Relaxed);
    held.break_off(libc::ECONNRESET);
    close_circuit(held, true);
}

/// Sends the end of this direction (`shutdown(SHUT_WR)`, close). `false`: it is not in the far side's ring yet, because
/// another process holds the lock or the stream is moving: the kernel's FIN must not overtake it.
pub fn end_sending(held: &Held) -> bool {
    let outcome = held.end_sending(thread::tid());
    if let Ok(moved) = &outcome {
        waiters::wake(held, moved.wake);
    }
    !matches!(outcome, Err(Failure::WouldBlock | Failure::Reentered)) && held.fin_may_go()
}

/// Ends the direction as soon as possible, on a thread of its own: the lock's holder may be killed, or the stream may
/// resume, while everybody else sleeps. If there can be no thread, whoever releases the lock does it.
pub fn end_sending_later(held: &Held) {
    if program::sandboxed() || !held.become_ender(std::process::id()) {
        return;
    }
    let ended = held.clone();
    if !fd_exhausted::spawn_quietly(move || await_ending(&ended)) {
        held.resign_as_ender();
    }
}

/// Checks the lock, and whether the stream has resumed, less and less often.
fn await_ending(held: &Held) {
    const FIRST: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_secs(1);
    let mut pause = FIRST;
    while !held.fin_may_go() && held.dead().is_none() && !end_sending(held) {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
        held.attend(thread::tid());
    }
    held.resign_as_ender();
}

/// Ends a stream that nobody holds any more.
fn finish(held: &Held) -> bool {
    // The handshake may lie unread before the bytes.
    let unread = held.unread(thread::tid()).is_ok_and(|bytes| bytes > 0) && held.rx() == Direction::Open;
    let linger_zero = held.shared().status.linger.load(Relaxed) == 1;
    let abort = unread || linger_zero;
    if !(abort || end_sending(held)) {
        held.await_sent(thread::tid());
    }
    held.leave();
    close_circuit(held, false);
    remember(held);
    unread
}

fn remember(held: &Held) {
    if held.side() == Side::Client {
        let (status, counters) = (&held.shared().status, &held.shared().counters);
        let bytes = counters.tx_bytes.load(Relaxed).saturating_add(counters.rx_bytes.load(Relaxed));
        let lived = clock::now_ms().saturating_sub(status.born.load(Relaxed));
        crate::socket::short_lived_peers::ended(held.tuple().server, lived, bytes);
    }
}

fn close_circuit(held: &Held, abort: bool) {
    process::tell(&held.closing(abort));
}
