//! `socket`, `connect`, `listen`, `accept`, `shutdown` and options.

use super::hook;
use crate::attach::{self, Decision};
use crate::table::{self, Kind};
use crate::{address, chosen, deferral, options, real};
use core::ffi::{c_int, c_void};
use libc::{sockaddr, socklen_t};

/// Bytes of an IPv4 address.
#[expect(clippy::cast_possible_truncation, reason = "16")]
const V4_LEN: socklen_t = size_of::<libc::sockaddr_in>() as socklen_t;

hook! {
    /// `socket(2)`; the families of SDP are TCP sockets that ask to be streams.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        const TYPE: c_int = 0xf;
        if address::is_sdp(domain) && kind & TYPE == libc::SOCK_STREAM {
            // SAFETY: plain numbers.
            let fd = unsafe { real::socket(libc::AF_INET, kind, libc::IPPROTO_TCP) };
            if fd >= 0 {
                table::enter(fd, Kind::Sdp, domain.unsigned_abs());
            }
            return fd;
        }
        // SAFETY: plain numbers.
        unsafe { real::socket(domain, kind, protocol) }
    }

    /// `bind(2)`.
    fn bind(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: the program's promise to `bind`.
        match unsafe { address::without_sdp(fd, to, len) } {
            // SAFETY: our own copy, of its own length.
            Some(v4) => unsafe { real::bind(fd, (&raw const v4).cast(), V4_LEN) },
            // SAFETY: the program's promise to `bind`.
            None => unsafe { real::bind(fd, to, len) },
        }
    }

    /// `connect(2)`.
    fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: the program's promise to `connect`.
        let v4 = unsafe { address::without_sdp(fd, to, len) };
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
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        // SAFETY: plain numbers.
        let outcome = unsafe { real::listen(fd, backlog) };
        if outcome == 0 {
            let errno = real::errno();
            attach::listening(fd);
            real::set_errno(errno);
        }
        outcome
    }

    /// `accept(2)`.
    fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
        attach::renew(fd);
        // SAFETY: the program's promise to `accept`.
        let accepted = unsafe { real::accept(fd, from, len) };
        arrived(fd, accepted)
    }

    /// `accept4(2)`.
    fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        attach::renew(fd);
        // SAFETY: the program's promise to `accept4`.
        let accepted = unsafe { real::accept4(fd, from, len, flags) };
        arrived(fd, accepted)
    }

    /// `shutdown(2)`.
    fn shutdown(fd: c_int, how: c_int) -> c_int {
        let how = match table::stream(fd) {
            Some(end) if !options::shutting_down(fd, &end, how) => match how {
                libc::SHUT_RDWR => libc::SHUT_RD,
                _ => return 0,
            },
            _ => how,
        };
        // SAFETY: plain numbers.
        unsafe { real::shutdown(fd, how) }
    }

    /// `setsockopt(2)`.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        if level == chosen::SOL_CROSSLANE
            // SAFETY: the program's promise to `setsockopt`.
            && let Some(outcome) = unsafe { chosen::set(fd, name, value, len) }
        {
            return outcome.map_or_else(real::fail, |()| 0);
        }
        let kind = table::look(fd).map(|entry| entry.kind);
        if let Some(errno) = kind.and_then(|kind| options::refused(kind, level, name)) {
            return real::fail(errno);
        }
        // SAFETY: the program's promise to `setsockopt`.
        let outcome = unsafe { real::setsockopt(fd, level, name, value, len) };
        if outcome == 0 {
            match kind {
                Some(Kind::Listener) => deferral::changed(fd, level, name),
                Some(_) => if let Some(end) = table::stream(fd) {
                    options::changed(fd, &end, level, name);
                    if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
                        // SAFETY: the kernel has read it there.
                        options::timeout_given(&end, name, unsafe { value.cast::<libc::timeval>().read_unaligned() });
                    }
                },
                None => {}
            }
        }
        outcome
    }

    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        if level == chosen::SOL_CROSSLANE
            // SAFETY: the program's promise to `getsockopt`.
            && let Some(outcome) = unsafe { chosen::get(fd, name, value, len) }
        {
            return outcome.map_or_else(real::fail, |()| 0);
        }
        // SAFETY: the program's promise to `getsockopt`.
        let kernel = || unsafe { real::getsockopt(fd, level, name, value, len) };
        let ours = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => table::stream(fd).and_then(|end| crate::io::pending_error(&end)),
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => deferral::told(fd),
            _ => None,
        };
        let outcome = kernel();
        let Some(ours) = ours else { return outcome };
        // SAFETY: the kernel has just checked value and length.
        if outcome == 0 && unsafe { *len } as usize >= size_of::<c_int>() {
            // SAFETY: as above.
            unsafe { value.cast::<c_int>().write_unaligned(ours) };
        }
        outcome
    }
}

/// A `connect` on a stream: the second one of a non-blocking pair, or a mistake that the kernel names.
fn connect_again(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let outcome = kernel();
    if outcome == 0
        && let Some(end) = table::stream(fd)
    {
        crate::wait::is_connected(fd, &end);
    }
    outcome
}

/// A `connect` to no family: the kernel drops the connection, and the stream is over.
fn dissolve(fd: c_int, end: &table::Held, kernel: impl FnOnce() -> c_int) -> c_int {
    let outcome = kernel();
    if outcome == 0 {
        let errno = real::errno();
        attach::leave_for(fd, end, None);
        real::set_errno(errno);
    }
    outcome
}

fn arrived(listener: c_int, accepted: c_int) -> c_int {
    if accepted >= 0 && table::look(listener).is_some_and(|entry| entry.kind == Kind::Listener) {
        let errno = real::errno();
        if table::choice(listener) != 0 {
            table::choose(accepted, table::choice(listener));
        }
        attach::accepted(accepted);
        real::set_errno(errno);
    }
    accepted
}
