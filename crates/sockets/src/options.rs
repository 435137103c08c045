//! Options, flags and controls that mean something to a stream as well as to the kernel's socket.

use crate::table::{Held, Kind};
use crate::{end_of_life, real, thread, wait, waiters};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::shared::Status;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use libc::socklen_t;

/// An option whose value is one int.
pub fn number(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = socklen_t::try_from(size_of::<c_int>()).ok()?;
    // SAFETY: an int and its length.
    let outcome = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (outcome == 0).then_some(value)
}

/// Sets an option whose value is one int; whether the kernel accepted it.
pub fn set_number(fd: c_int, level: c_int, name: c_int, value: c_int) -> bool {
    let Ok(len) = socklen_t::try_from(size_of::<c_int>()) else { return false };
    // SAFETY: an int and its length.
    unsafe { real::setsockopt(fd, level, name, (&raw const value).cast(), len) == 0 }
}

/// Whether a socket that is about to connect must stay TCP: it wants its SYN to wait for the first data, or the
/// kernel's word when data may be overwritten.
pub fn are_tcp_only(fd: c_int) -> bool {
    let is_set = |level, name| number(fd, level, name).is_some_and(|value| value != 0);
    is_set(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) || is_set(libc::SOL_SOCKET, libc::SO_ZEROCOPY)
}

/// Why an option must not reach the quiet socket of a stream, or a listener of ours; programs know these answers from
/// kernels that were built without it, and do without.
pub fn refused(kind: Kind, level: c_int, name: c_int) -> Option<c_int> {
    match (kind, level, name) {
        // Encryption in the kernel (kTLS) would see nothing of what the stream carries.
        (Kind::Stream, libc::IPPROTO_TCP, libc::TCP_ULP) => Some(libc::ENOENT),
        // Nobody would ever tell that a buffer may be overwritten.
        (Kind::Stream | Kind::Listener, libc::SOL_SOCKET, libc::SO_ZEROCOPY) => Some(libc::EOPNOTSUPP),
        _ => None,
    }
}

/// A socket becomes a stream: the options that were set before count for it too.
pub fn inherit(fd: c_int, status: &Status) {
    note_timeout(fd, libc::SO_RCVTIMEO, status);
    note_timeout(fd, libc::SO_SNDTIMEO, status);
    note_linger(fd, status);
}

/// `SO_SNDBUF` that was set before the socket became a stream; `SO_BUF_LOCK` tells (Linux 5.16).
pub fn inherit_buffer(fd: c_int, end: &Held) {
    const SO_BUF_LOCK: c_int = 72;
    const SEND: c_int = 1;
    if number(fd, libc::SOL_SOCKET, SO_BUF_LOCK).is_some_and(|locked| locked & SEND != 0) {
        note_buffer(fd, end);
    }
}

/// After the kernel accepted a time-out for `fd`: a negative one is over at once, though the kernel says afterwards that there
/// is none. Here it is over in the shortest time that there is.
pub fn timeout_given(end: &Held, name: c_int, given: libc::timeval) {
    let status = &end.shared().status;
    if given.tv_sec < 0 {
        let word = if name == libc::SO_RCVTIMEO { &status.receive_timeout } else { &status.send_timeout };
        word.store(1, Relaxed);
    }
}

/// After the kernel accepted an option for `fd`.
pub fn changed(fd: c_int, end: &Held, level: c_int, name: c_int) {
    let status = &end.shared().status;
    if level != libc::SOL_SOCKET {
        return;
    }
    match name {
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => note_timeout(fd, name, status),
        libc::SO_LINGER => note_linger(fd, status),
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => note_buffer(fd, end),
        _ => {}
    }
}

/// After a successful `fcntl(F_SETFL)`.
pub fn flags_changed(end: &Held, flags: c_int) {
    set_nonblock(end, flags & libc::O_NONBLOCK != 0);
}

/// `O_NONBLOCK` by whatever call.
pub fn set_nonblock(end: &Held, on: bool) {
    end.shared().status.nonblock.store(u32::from(on), Relaxed);
}

/// `ioctl` on a stream: `Some` is the answer; `None`: the kernel's, made before or after as the caller likes.
pub fn control(end: &Held, request: libc::c_ulong) -> Option<Result<c_int, c_int>> {
    match request {
        libc::FIONREAD if end.rx() != Direction::Tcp => {
            let unread = end.unread(thread::tid()).unwrap_or(0);
            Some(Ok(c_int::try_from(unread).unwrap_or(c_int::MAX)))
        }
        libc::TIOCOUTQ if end.tx() != Direction::Tcp => Some(Ok(unsent(end))),
        _ => None,
    }
}

/// Bytes that the far side has surely not read: credit comes back when a quarter of the ring is due, so less than
/// that may be nothing at all, and a program that waits for 0 gets there.
fn unsent(end: &Held) -> c_int {
    let slack = end.shared().producer.cap() / 4;
    c_int::try_from(end.unconfirmed().saturating_sub(slack)).unwrap_or(c_int::MAX)
}

/// `shutdown` of a stream, before the kernel's. `false`: the far side must not see the kernel's FIN yet, which without ours
/// says that nobody is left here.
pub fn shutting_down(fd: c_int, end: &Held, how: c_int) -> bool {
    if !wait::is_connected(fd, end) {
        return true;
    }
    let mut ended = true;
    if matches!(how, libc::SHUT_WR | libc::SHUT_RDWR) {
        ended = end_of_life::end_sending(end);
        if !ended {
            end_of_life::end_sending_later(end);
        }
        // The kernel wakes nobody for this on a socket that was always writable.
        waiters::ring_own(WaiterId(end.shared().waiting.room.load(Relaxed)));
    }
    if matches!(how, libc::SHUT_RD | libc::SHUT_RDWR) {
        end.shared().status.read_shut.store(1, Relaxed);
    }
    ended
}

fn note_buffer(fd: c_int, end: &Held) {
    if let Some(bytes) =
        number(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).and_then(|bytes| u64::try_from(bytes).ok())
    {
        end.limit_sending(bytes);
    }
}

fn note_timeout(fd: c_int, name: c_int, status: &Status) {
    // SAFETY: all-zero bytes are a valid timeval.
    let mut value: libc::timeval = unsafe { core::mem::zeroed() };
    if !get(fd, name, &mut value) {
        return;
    }
    let ms = value.tv_sec.saturating_mul(1000).saturating_add((value.tv_usec + 999) / 1000);
    let word = if name == libc::SO_RCVTIMEO { &status.receive_timeout } else { &status.send_timeout };
    word.store(u32::try_from(ms).unwrap_or(u32::MAX), Relaxed);
}

fn note_linger(fd: c_int, status: &Status) {
    let mut value = libc::linger { l_onoff: 0, l_linger: 0 };
    if get(fd, libc::SO_LINGER, &mut value) {
        let seconds = u32::try_from(value.l_linger).unwrap_or(0);
        status.linger.store(if value.l_onoff == 0 { 0 } else { seconds.saturating_add(1) }, Relaxed);
    }
}

fn get<T>(fd: c_int, name: c_int, value: &mut T) -> bool {
    let mut len = socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let value: *mut c_void = core::ptr::from_mut(value).cast();
    // SAFETY: a value and its length.
    unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, value, &raw mut len) == 0 }
}
