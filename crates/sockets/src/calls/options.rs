//! Options, flags and controls that mean something to a stream as well as to the kernel's socket.

use crate::calls::io;
use crate::calls::io_timeouts::{self, Timeout};
use crate::daemon::waiters;
use crate::descriptors::table::{Held, Kind};
use crate::kernel::user::Value;
use crate::kernel::{sockopt, thread};
use crate::socket::{carrier, end_of_life, handshake, inq, port};
use crate::waiting::{epoll, wait};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;

/// Whether a socket that is about to connect must stay TCP: it wants its SYN delayed until the first data, or zero-copy
/// completions.
pub fn are_tcp_only(fd: c_int) -> bool {
    let is_set = |level, name| sockopt::number(fd, level, name).is_some_and(|value| value != 0);
    is_set(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) || is_set(libc::SOL_SOCKET, libc::SO_ZEROCOPY)
}

/// Why an option must not reach the carrier socket of a stream, or a listener of ours: the error of kernels built
/// without the option, which programs handle. Options that the kernel refuses, or that ask for nothing, pass.
pub fn refused(kind: Kind, level: c_int, name: c_int, value: &Value) -> Option<c_int> {
    if c_int::try_from(value.len()).is_err() {
        return None;
    }
    let asks = |for_it: fn(c_int) -> bool| value.number().is_ok_and(for_it);
    match (kind, level, name) {
        // Encryption in the kernel (kTLS) would see nothing of what the stream carries.
        (Kind::Stream, libc::IPPROTO_TCP, libc::TCP_ULP) if value.has_a_byte() => Some(libc::ENOENT),
        // Zero-copy completions would never be reported.
        (Kind::Stream | Kind::Listener, libc::SOL_SOCKET, libc::SO_ZEROCOPY) if asks(|value| value == 1) => {
            Some(libc::EOPNOTSUPP)
        }
        _ => None,
    }
}

/// An option of `SOL_SOCKET` whose value in the kernel counts for the stream as well.
struct Mirrored {
    /// The numbers that it is set by.
    names: &'static [c_int],
    /// Whether the kernel's value counts even if the program never set it.
    counts: fn(c_int) -> bool,
    /// Copies the value to the stream.
    take: fn(c_int, &Held),
}

/// All mirrored options: copied when a socket becomes a stream, and at each change.
const MIRRORED: [Mirrored; 6] = [
    Mirrored {
        names: &io_timeouts::RECEIVE_NAMES,
        counts: |_| true,
        take: |fd, end| io_timeouts::take(fd, end, Timeout::Receive),
    },
    Mirrored {
        names: &io_timeouts::SEND_NAMES,
        counts: |_| true,
        take: |fd, end| io_timeouts::take(fd, end, Timeout::Send),
    },
    Mirrored { names: &[libc::SO_LINGER], counts: |_| true, take: take_linger },
    Mirrored { names: &[libc::SO_RCVLOWAT], counts: |_| true, take: take_low_water },
    Mirrored { names: &[libc::SO_PEEK_OFF], counts: |_| true, take: io::peeking::take },
    Mirrored {
        names: &[libc::SO_SNDBUF, libc::SO_SNDBUFFORCE],
        counts: is_send_buffer_locked,
        take: take_send_buffer,
    },
];

/// Applies the options that were set before the socket became a stream.
pub fn inherit(fd: c_int, end: &Held) {
    for option in MIRRORED.iter().filter(|option| (option.counts)(fd)) {
        (option.take)(fd, end);
    }
}

/// Whether the program has set `SO_SNDBUF`, by `SO_BUF_LOCK` (Linux 5.16).
fn is_send_buffer_locked(fd: c_int) -> bool {
    const SO_BUF_LOCK: c_int = 72;
    const SEND: c_int = 1;
    sockopt::number(fd, libc::SOL_SOCKET, SO_BUF_LOCK).is_some_and(|locked| locked & SEND != 0)
}

/// After the kernel accepted an option for `fd`.
pub fn changed(fd: c_int, end: &Held, level: c_int, name: c_int) {
    if level == libc::IPPROTO_TCP {
        handshake::changed(fd, end, name);
        inq::changed(end, name);
    }
    if level != libc::SOL_SOCKET {
        return;
    }
    if let Some(option) = MIRRORED.iter().find(|option| option.names.contains(&name)) {
        (option.take)(fd, end);
    }
    if name == libc::SO_REUSEADDR {
        port::chosen_by_program(end);
    }
}

/// After a successful `fcntl(F_SETFL)`.
pub fn flags_changed(end: &Held, flags: c_int) {
    set_nonblock(end, flags & libc::O_NONBLOCK != 0);
}

/// Sets `O_NONBLOCK`, whichever call changed it.
pub fn set_nonblock(end: &Held, on: bool) {
    end.shared().status.nonblock.store(u32::from(on), Relaxed);
}

/// `ioctl` on a stream. `Some` is the answer; `None`: the kernel answers, called before or after as the caller likes.
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

/// Bytes that the far side has surely not read. Credit comes back a quarter of the ring at a time, so less than that
/// counts as 0: a program that waits for 0 gets there.
fn unsent(end: &Held) -> c_int {
    let slack = end.shared().producer.cap() / 4;
    c_int::try_from(end.unconfirmed().saturating_sub(slack)).unwrap_or(c_int::MAX)
}

/// Handles `shutdown` of a stream before the kernel does; returns what the kernel is to do, if anything. The far side
/// must not see our FIN before our end record, since a FIN alone means that nobody is left here. And to the kernel a
/// shut receiving side looks like the far side's FIN, which must stay visible as long as we send.
pub fn shutting_down(fd: c_int, end: &Held, how: c_int) -> Option<c_int> {
    let status = &end.shared().status;
    carrier::look_at_kernel(fd, end);
    if !wait::is_connected(fd, end) || status.reset.load(Relaxed) != 0 {
        return Some(how);
    }
    let (mut receiving, mut sending) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return Some(how),
    };
    if sending {
        sending = end_of_life::end_sending(end);
        if !sending {
            end_of_life::end_sending_later(end);
        }
        // The kernel wakes nobody for this on a socket that was always writable.
        waiters::wake_here(end, WaiterId(end.shared().waiting.room.load(Relaxed)));
    }
    if receiving {
        status.read_shut.store(1, Relaxed);
        waiters::wake_here(end, WaiterId(end.shared().waiting.data.load(Relaxed)));
    }
    let deaf = status.read_shut.load(Relaxed) != 0 && end.tx() == Direction::Ended;
    if deaf {
        end.deafen();
    }
    receiving = deaf || receiving && end.rx() == Direction::Tcp;
    epoll::shut(end);
    match (receiving, sending) {
        (true, true) => Some(libc::SHUT_RDWR),
        (true, false) => Some(libc::SHUT_RD),
        (false, true) => Some(libc::SHUT_WR),
        (false, false) => None,
    }
}

fn take_send_buffer(fd: c_int, end: &Held) {
    if let Some(bytes) =
        sockopt::number(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).and_then(|bytes| u64::try_from(bytes).ok())
    {
        end.limit_sending(bytes);
    }
}

fn take_low_water(fd: c_int, end: &Held) {
    let bytes =
        sockopt::number(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).and_then(|bytes| u32::try_from(bytes).ok());
    end.shared().status.low_water.store(bytes.unwrap_or(1), Relaxed);
}

fn take_linger(fd: c_int, end: &Held) {
    if let Some(value) = sockopt::linger(fd) {
        let seconds = u32::try_from(value.l_linger).unwrap_or(0);
        end.shared()
            .status
            .linger
            .store(if value.l_onoff == 0 { 0 } else { seconds.saturating_add(1) }, Relaxed);
    }
}
