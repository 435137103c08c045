//! `write`, `send` and their relatives.

use super::{hook, slices};
use crate::table::{self, Held};
use crate::{io, real};
use core::ffi::{c_int, c_uint, c_void};
use crosslane_wire::record::Kind;
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use std::io::IoSlice;

hook! {
    /// `write(2)`.
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
        match table::stream(fd) {
            Some(_) if !super::can_be_ours(buffer, len) => real::fail(libc::EFAULT),
            // SAFETY: the program's promise to `write`.
            Some(end) => unsafe { one(fd, &end, buffer, len, 0) }.finish(|| unsafe { real::write(fd, buffer, len) }),
            // SAFETY: as above.
            None => unsafe { real::write(fd, buffer, len) },
        }
    }

    /// `send(2)`.
    fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        match table::stream(fd) {
            // SAFETY: the program's promise to `send`.
            Some(end) => unsafe { one(fd, &end, buffer, len, flags) }
                .finish(|| unsafe { real::send(fd, buffer, len, flags) }),
            // SAFETY: as above.
            None => unsafe { real::send(fd, buffer, len, flags) },
        }
    }

    /// `sendto(2)`; on a connected stream the address is ignored, as the kernel does.
    fn sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, tolen: socklen_t) -> ssize_t {
        match table::stream(fd) {
            // SAFETY: the program's promise to `sendto`.
            Some(end) => unsafe { one(fd, &end, buffer, len, flags) }
                .finish(|| unsafe { real::sendto(fd, buffer, len, flags, to, tolen) }),
            // SAFETY: as above.
            None => unsafe { real::sendto(fd, buffer, len, flags, to, tolen) },
        }
    }

    /// `writev(2)`.
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        let Some(end) = table::stream(fd) else {
            // SAFETY: the program's promise to `writev`.
            return unsafe { real::writev(fd, iov, count) };
        };
        // SAFETY: as above.
        match unsafe { slices(iov, usize::try_from(count).unwrap_or(usize::MAX)) } {
            Ok(buffers) => io::send(fd, &end, &buffers, 0)
                // SAFETY: as above.
                .finish(|| unsafe { real::writev(fd, iov, count) }),
            Err(errno) => real::fail(errno),
        }
    }

    /// `pwritev2(2)`: at no position it is `writev`.
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise to `pwritev2`.
        let kernel = || unsafe { real::pwritev2(fd, iov, count, offset, flags) };
        let Some((end, flags)) = table::stream(fd).zip(super::flags_at(offset, flags)) else { return kernel() };
        // SAFETY: as above.
        match unsafe { slices(iov, usize::try_from(count).unwrap_or(usize::MAX)) } {
            Ok(buffers) => io::send(fd, &end, &buffers, flags).finish(kernel),
            Err(errno) => real::fail(errno),
        }
    }

    /// `pwritev2` as programs with large files have it.
    fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { pwritev2(fd, iov, count, offset, flags) }
    }

    /// `sendmsg(2)`; ancillary data means nothing on TCP.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        match table::stream(fd) {
            // SAFETY: the program's promise to `sendmsg`.
            Some(end) => unsafe { message_out(fd, &end, message, flags) },
            // SAFETY: as above.
            None => unsafe {
                super::transfer::descriptors_leave(message);
                real::sendmsg(fd, message, flags)
            },
        }
    }

    /// `sendmmsg(2)`.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let Some(end) = table::stream(fd) else {
            // SAFETY: the program's promise to `sendmmsg`.
            return unsafe { real::sendmmsg(fd, messages, count, flags) };
        };
        if messages.is_null() && count > 0 {
            return real::fail(libc::EFAULT);
        }
        let count = count.min(1024);
        for done in 0..count {
            // SAFETY: in range of the program's array.
            let entry = unsafe { &mut *messages.add(done as usize) };
            // SAFETY: the program's promise to `sendmmsg`.
            let sent = unsafe { message_out(fd, &end, &raw const entry.msg_hdr, flags) };
            let Ok(sent) = c_uint::try_from(sent) else {
                return if done > 0 { c_int::try_from(done).unwrap_or(c_int::MAX) } else { -1 };
            };
            entry.msg_len = sent;
        }
        c_int::try_from(count).unwrap_or(c_int::MAX)
    }
}

unsafe fn message_out(fd: c_int, end: &Held, message: *const msghdr, flags: c_int) -> ssize_t {
    if message.is_null() {
        return real::fail(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let header = unsafe { &*message };
    if header.msg_iovlen > super::IOV_MAX {
        return real::fail(libc::EMSGSIZE);
    }
    // SAFETY: as above.
    let buffers = match unsafe { slices(header.msg_iov, header.msg_iovlen) } {
        Ok(buffers) => buffers,
        Err(errno) => return real::fail(errno),
    };
    if flags & libc::MSG_OOB != 0 {
        out_of_band(end);
    }
    // SAFETY: as above.
    io::send(fd, end, &buffers, flags).finish(|| unsafe { real::sendmsg(fd, message, flags) })
}

unsafe fn one(fd: c_int, end: &Held, buffer: *const c_void, len: size_t, flags: c_int) -> io::Outcome {
    if buffer.is_null() && len > 0 {
        return io::Outcome::Errno(libc::EFAULT);
    }
    if flags & libc::MSG_OOB != 0 {
        out_of_band(end);
    }
    let bytes = if len == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise; the kernel's limit keeps the length below `isize::MAX`.
        unsafe { core::slice::from_raw_parts(buffer.cast(), len.min(0x7fff_f000)) }
    };
    io::send(fd, end, &[IoSlice::new(bytes)], flags)
}

/// Out-of-band data travels by TCP, and what follows it must stay behind it: this direction goes back to TCP.
fn out_of_band(end: &Held) {
    if let Ok(moved) = end.turn(crate::thread::tid(), Kind::Downgrade) {
        crate::waiters::ring(end, moved.wake);
        crate::attach::note_downgrade(end, crosslane_wire::local::Plain::OutOfBand);
    }
}
