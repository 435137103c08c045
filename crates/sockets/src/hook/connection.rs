//! `socket`, `connect`, `listen`, `accept`, `shutdown` and options.

use super::hook;
use crate::calls::attach::{self, Decision};
use crate::calls::io_timeouts::{self, Timeout};
use crate::calls::{io, options, sol_crosslane};
use crate::descriptors::table::{self, Kind};
use crate::kernel::user::{self, Place, Value};
use crate::kernel::{address, real};
use crate::socket::{deferral, handshake, own_calls, port};
use core::ffi::{c_int, c_void};
use crosslane_wire::local::Plain;
use libc::{sockaddr, socklen_t};

/// Bytes of an IPv4 address.
#[expect(clippy::cast_possible_truncation, reason = "16")]
const V4_LEN: socklen_t = size_of::<libc::sockaddr_in>() as socklen_t;

hook! {
    /// `socket(2)`; the families of SDP are TCP sockets that ask to be streams.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int |kernel| {
        const TYPE: c_int = 0xf;
        if !address::is_sdp(domain) || kind & TYPE != libc::SOCK_STREAM {
            return kernel();
        }
        // SAFETY: plain numbers.
        let fd = unsafe { real::socket(libc::AF_INET, kind, libc::IPPROTO_TCP) };
        if fd >= 0 {
            table::enter(fd, Kind::Sdp, domain.unsigned_abs());
        }
        fd
    }

    /// `bind(2)`; the kernel does not know the families of SDP.
    fn bind(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int |kernel| {
        let outcome = kernel();
        if outcome == 0 || real::errno() != libc::EAFNOSUPPORT {
            return outcome;
        }
        // SAFETY: the kernel has read the address.
        match unsafe { address::without_sdp(to, len, || is_sdp(fd)) } {
            // SAFETY: our own copy, of its own length.
            Some(v4) => unsafe { real::bind(fd, (&raw const v4).cast(), V4_LEN) },
            None => outcome,
        }
    }

    /// `connect(2)`.
    fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
        if !address::is_there(to, len) {
            // SAFETY: the kernel says what is wrong with it.
            return unsafe { real::connect(fd, to, len) };
        }
        // SAFETY: the program's promise to `connect`.
        let v4 = unsafe { address::without_sdp(to, len, || is_sdp(fd)) };
        let (to, len) = v4.as_ref().map_or((to, len), |v4| (core::ptr::from_ref(v4).cast(), V4_LEN));
        // SAFETY: as above, or our own copy.
        let remote = unsafe { address::read(to, len) };
        // SAFETY: as above.
        let kernel = || unsafe { real::connect(fd, to, len) };
        if let Some(end) = table::stream(fd) {
            // SAFETY: as above.
            if remote.is_none() && unsafe { address::is_none(to, len) } {
                return dissolve(fd, &end, kernel);
            }
            if remote.is_none() || !attach::leave_for(fd, &end, remote) {
                return connect_again(fd, kernel);
            }
        }
        match remote.map_or(Decision::Plain, |remote| attach::announce(fd, remote)) {
            Decision::Plain => kernel(),
            Decision::Refused => real::fail(libc::ECONNREFUSED),
            Decision::Announced(announced) => {
                let outcome = kernel();
                let errno = real::errno();
                announced.connected(fd, outcome, errno);
                real::set_errno(errno);
                outcome
            }
        }
    }

    /// `listen(2)`.
    fn listen(fd: c_int, backlog: c_int) -> c_int |kernel| {
        let outcome = kernel();
        if outcome == 0 {
            attach::listening(fd);
        }
        outcome
    }

    /// `accept(2)`.
    fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int |kernel| {
        accepted(fd, kernel)
    }

    /// `accept4(2)`.
    fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int |kernel| {
        accepted(fd, kernel)
    }

    /// `shutdown(2)`.
    fn shutdown(fd: c_int, how: c_int) -> c_int {
        let how = match table::stream(fd) {
            Some(end) => options::shutting_down(fd, &end, how),
            None => Some(how),
        };
        let Some(how) = how else { return 0 };
        // SAFETY: plain numbers.
        unsafe { real::shutdown(fd, how) }
    }

    /// `setsockopt(2)`.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int |kernel| {
        // SAFETY: the program's promise to `setsockopt`.
        let given = unsafe { Value::new(value, len) };
        if level == sol_crosslane::SOL_CROSSLANE && let Some(outcome) = sol_crosslane::set(fd, name, &given) {
            return outcome.map_or_else(real::fail, |()| 0);
        }
        let kind = table::look(fd).map(|entry| entry.kind);
        if let Some(errno) = kind.and_then(|kind| options::refused(kind, level, name, &given)) {
            return real::fail(errno);
        }
        let outcome = kernel();
        if outcome == 0 {
            match kind {
                Some(Kind::Listener) => deferral::changed(fd, level, name),
                Some(_) => if let Some(end) = table::stream(fd) {
                    options::changed(fd, &end, level, name);
                },
                None => {}
            }
            if level == libc::SOL_SOCKET && let Some(which) = Timeout::of(name) {
                // SAFETY: the kernel has read it there.
                let time = unsafe { value.cast::<libc::timeval>().read_unaligned() };
                io_timeouts::given(fd, table::stream(fd).as_ref(), which, time);
            }
        }
        outcome
    }

    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int |kernel| {
        if level == sol_crosslane::SOL_CROSSLANE
            // SAFETY: the program's promise to `getsockopt`.
            && let Some(outcome) = sol_crosslane::get(fd, name, &unsafe { Place::new(value, len) })
        {
            return outcome.map_or_else(real::fail, |()| 0);
        }
        let ours = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => table::stream(fd).and_then(|end| error_of(fd, &end, len)),
            (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => table::stream(fd).and_then(|end| io::peeking::programs_value(&end)),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => table::stream(fd).and_then(|end| port::is_shared(&end).then_some(0)),
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT | libc::TCP_QUICKACK) => match table::stream(fd) {
                Some(end) => handshake::programs_value(&end, name),
                None if name == libc::TCP_DEFER_ACCEPT => deferral::programs_value(fd),
                None => None,
            },
            _ => None,
        };
        let outcome = kernel();
        let Some(ours) = ours else { return outcome };
        if outcome == 0 {
            let bytes = ours.to_ne_bytes();
            // SAFETY: the kernel has just stored so much there.
            unsafe { value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(*len as usize)) };
        }
        outcome
    }
}

/// Whether the program asked for the socket as one of an SDP family.
fn is_sdp(fd: c_int) -> bool {
    table::look(fd).is_some_and(|entry| entry.kind == Kind::Sdp)
}

/// `SO_ERROR` of a stream, reported once; `None` leaves it to the kernel. The kernel's error is noted first: it would
/// be lost here if the program took it. A length that the kernel refuses clears no error.
fn error_of(fd: c_int, end: &table::Held, len: *const socklen_t) -> Option<c_int> {
    // SAFETY: any four bytes are a length.
    let len = unsafe { user::load(len) }.ok();
    if len.is_none_or(|len| c_int::try_from(len).is_err()) || !crate::waiting::wait::is_connected(fd, end) {
        return None;
    }
    crate::socket::carrier::look_at_kernel(fd, end);
    crate::calls::io::pending_error(end)
}

/// A `connect` on a stream: the second one of a nonblocking pair, or an error that the kernel reports.
fn connect_again(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let outcome = kernel();
    if outcome == 0
        && let Some(end) = table::stream(fd)
    {
        crate::waiting::wait::is_connected(fd, &end);
    }
    outcome
}

/// A `connect` to no family: the kernel drops the connection, and the stream is over.
fn dissolve(fd: c_int, end: &table::Held, kernel: impl FnOnce() -> c_int) -> c_int {
    let outcome = kernel();
    if outcome == 0 {
        attach::leave_for(fd, end, None);
    }
    outcome
}

/// `by` and `choice` are the listener's from before the call: another thread may have closed it meanwhile.
fn accepted(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    attach::renew(fd);
    // When the call began: another thread may close it meanwhile.
    let (kind, choice) = (table::look(fd).map(|entry| entry.kind), table::choice(fd));
    let accepted = kernel();
    if accepted >= 0 && matches!(kind, Some(Kind::Listener | Kind::Shy)) {
        if choice != 0 {
            table::choose(accepted, choice);
        }
        match kind {
            Some(Kind::Listener) => attach::accepted(accepted, Plain::NotAnnounced),
            // Another descriptor of the listener may have been waited for.
            _ if own_calls::may_have_listeners() => attach::accepted(accepted, Plain::OwnCalls),
            _ => attach::stays_plain(accepted, Plain::OwnCalls),
        }
    }
    accepted
}
