//! `write`, `send` and their relatives.

use super::{ancillary, hook, segments};
use crate::calls::io;
use crate::descriptors::table::{self, Held};
use crate::kernel::{real, user};
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
            // SAFETY: no bytes; see `sendto`.
            Some(_) if flags & libc::MSG_FASTOPEN != 0 => unsafe { real::send(fd, buffer, 0, flags) },
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
            Some(_) if !ancillary::takes_name(to, tolen) => real::fail(libc::EINVAL),
            Some(_) if !is_there(to.cast(), tolen) => real::fail(libc::EFAULT),
            // The kernel has no use for that on a connection, and says so.
            // SAFETY: no bytes, and the program's promise for the name.
            Some(_) if flags & libc::MSG_FASTOPEN != 0 => unsafe { real::sendto(fd, buffer, 0, flags, to, tolen) },
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
        match unsafe { segments(iov, usize::try_from(count).unwrap_or(usize::MAX)) } {
            // Unlike a `write` of nothing, it asks nobody.
            Ok(buffers) if bytes_of(&buffers) == 0 => 0,
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
        let Some(end) = table::stream(fd).filter(|_| offset == -1) else { return kernel() };
        // SAFETY: as above.
        let buffers = unsafe { segments(iov, usize::try_from(count).unwrap_or(usize::MAX)) };
        match buffers
            .and_then(|buffers| super::flags_of(flags, bytes_of(&buffers)).map(|flags| (buffers, flags)))
        {
            Ok((buffers, _)) if bytes_of(&buffers) == 0 => 0,
            Ok((buffers, flags)) => io::send(fd, &end, &buffers, flags).finish(kernel),
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
            None => {
                if table::met_any() {
                    super::transfer::descriptors_leave(message);
                }
                // SAFETY: as above.
                unsafe { real::sendmsg(fd, message, flags) }
            }
        }
    }

    /// `sendmmsg(2)`.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let Some(end) = table::stream(fd) else {
            // SAFETY: the program's promise to `sendmmsg`.
            return unsafe { real::sendmmsg(fd, messages, count, flags) };
        };
        let count = count.min(1024);
        for done in 0..count {
            let entry = messages.wrapping_add(done as usize);
            // SAFETY: the program's promise to `sendmmsg`.
            let sent = unsafe { message_out(fd, &end, entry.cast(), flags) };
            let stored = c_uint::try_from(sent).map(|sent| super::store_length(entry, sent));
            if !matches!(stored, Ok(Ok(()))) {
                if let Ok(Err(errno)) = stored {
                    real::set_errno(errno);
                }
                return if done > 0 { c_int::try_from(done).unwrap_or(c_int::MAX) } else { -1 };
            }
        }
        c_int::try_from(count).unwrap_or(c_int::MAX)
    }
}

fn bytes_of(buffers: &[IoSlice<'_>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

unsafe fn message_out(fd: c_int, end: &Held, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: any bytes are a header.
    let header = match unsafe { user::load(message) } {
        Ok(header) => header,
        Err(errno) => return real::fail(errno),
    };
    if !ancillary::takes_head(&header, flags) {
        return real::fail(libc::EINVAL);
    }
    if header.msg_iovlen > super::IOV_MAX {
        return real::fail(libc::EMSGSIZE);
    }
    // SAFETY: the caller's promise.
    let buffers = match unsafe { segments(header.msg_iov, header.msg_iovlen) } {
        Ok(buffers) => buffers,
        Err(errno) => return real::fail(errno),
    };
    if !is_there(header.msg_name, header.msg_namelen) {
        return real::fail(libc::EFAULT);
    }
    // SAFETY: as above.
    if let Some(errno) = unsafe { ancillary::refused(fd, end, &header, flags) } {
        return real::fail(errno);
    }
    if flags & libc::MSG_OOB != 0 {
        out_of_band(end);
    }
    // SAFETY: as above.
    io::send(fd, end, &buffers, flags).finish(|| unsafe { real::sendmsg(fd, message, flags) })
}

/// Whether the address of a message, which means nothing on a stream, is there: the kernel looks at it.
fn is_there(name: *const c_void, len: socklen_t) -> bool {
    name.is_null() || user::can_load(name.cast(), (len as usize).min(size_of::<libc::sockaddr_storage>()))
}

unsafe fn one(fd: c_int, end: &Held, buffer: *const c_void, len: size_t, flags: c_int) -> io::Outcome {
    if !super::can_be_ours(buffer, len.min(super::LONGEST)) {
        return io::Outcome::Errno(libc::EFAULT);
    }
    if flags & libc::MSG_OOB != 0 {
        out_of_band(end);
    }
    // SAFETY: the caller's promise.
    io::send(fd, end, &[IoSlice::new(unsafe { super::bytes(buffer, len) })], flags)
}

/// Out-of-band data travels by TCP, and what follows it must stay behind it: this direction goes back to TCP.
fn out_of_band(end: &Held) {
    if let Ok(moved) = end.send_control(crate::kernel::thread::tid(), Kind::Downgrade) {
        crate::daemon::waiters::wake(end, moved.wake);
        crate::calls::attach::note_downgrade(end, crosslane_wire::local::Plain::OutOfBand);
    }
}
