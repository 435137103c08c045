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
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t |kernel| {
        match table::stream(fd) {
            Some(_) if !super::can_be_ours(buffer, len) => real::fail(libc::EFAULT),
            // SAFETY: the program's promise to `write`.
            Some(end) => unsafe { one(fd, &end, buffer, len, 0) }.finish(kernel),
            None => kernel(),
        }
    }

    /// `send(2)`.
    fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t |kernel| {
        match table::stream(fd) {
            // SAFETY: no bytes; see `sendto`.
            Some(_) if flags & libc::MSG_FASTOPEN != 0 => unsafe { real::send(fd, buffer, 0, flags) },
            // SAFETY: the program's promise to `send`.
            Some(end) => unsafe { one(fd, &end, buffer, len, flags) }.finish(kernel),
            None => kernel(),
        }
    }

    /// `sendto(2)`; on a connected stream the address is ignored, as the kernel does.
    fn sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, tolen: socklen_t) -> ssize_t |kernel| {
        match table::stream(fd) {
            Some(_) if !ancillary::takes_name(to, tolen) => real::fail(libc::EINVAL),
            Some(_) if !is_there(to.cast(), tolen) => real::fail(libc::EFAULT),
            // The kernel has no use for that on a connection, and says so.
            // SAFETY: no bytes, and the program's promise for the name.
            Some(_) if flags & libc::MSG_FASTOPEN != 0 => unsafe { real::sendto(fd, buffer, 0, flags, to, tolen) },
            // SAFETY: the program's promise to `sendto`.
            Some(end) => unsafe { one(fd, &end, buffer, len, flags) }.finish(kernel),
            None => kernel(),
        }
    }

    /// `writev(2)`.
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t |kernel| {
        match table::stream(fd) {
            // SAFETY: the program's promise to `writev`.
            Some(end) => unsafe { several(fd, &end, iov, count, 0) }.unwrap_or_else(io::Outcome::Errno).finish(kernel),
            None => kernel(),
        }
    }

    /// `pwritev2(2)`: at no position it is `writev`.
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t |kernel| {
        match table::stream(fd).filter(|_| offset == -1) {
            // SAFETY: the program's promise to `pwritev2`.
            Some(end) => unsafe { several(fd, &end, iov, count, flags) }.unwrap_or_else(io::Outcome::Errno).finish(kernel),
            None => kernel(),
        }
    }

    /// `pwritev2` as programs with large files have it.
    fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { pwritev2(fd, iov, count, offset, flags) }
    }

    /// `sendmsg(2)`; ancillary data means nothing on TCP.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t |kernel| {
        if let Some(end) = table::stream(fd) {
            // SAFETY: the program's promise to `sendmsg`.
            return unsafe { message_out(fd, &end, message, flags) };
        }
        if table::met_any() {
            super::transfer::descriptors_leave(message);
        }
        kernel()
    }

    /// `sendmmsg(2)`.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int |kernel| {
        let Some(end) = table::stream(fd) else { return kernel() };
        super::each_message(messages, count.min(1024), |message| {
            // SAFETY: the program's promise to `sendmmsg`.
            unsafe { message_out(fd, &end, message, flags) }
        })
    }
}

unsafe fn message_out(fd: c_int, end: &Held, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    let outcome = unsafe { message_to(fd, end, message, flags) }.unwrap_or_else(io::Outcome::Errno);
    // SAFETY: as above.
    outcome.finish(|| unsafe { real::sendmsg(fd, message, flags) })
}

unsafe fn message_to(
    fd: c_int,
    end: &Held,
    message: *const msghdr,
    flags: c_int,
) -> Result<io::Outcome, c_int> {
    let header = ancillary::head(message, flags)?;
    // SAFETY: the caller's promise.
    let buffers = unsafe { segments(header.msg_iov, header.msg_iovlen) }?;
    if !is_there(header.msg_name, header.msg_namelen) {
        return Err(libc::EFAULT);
    }
    // SAFETY: as above.
    unsafe { ancillary::refuse(fd, end, &header, flags) }?;
    if flags & libc::MSG_OOB != 0 {
        out_of_band(end);
    }
    Ok(io::send(fd, end, &buffers, flags))
}

/// Sends the buffers of a `pwritev2` at no position.
unsafe fn several(
    fd: c_int,
    end: &Held,
    iov: *const iovec,
    count: c_int,
    flags: c_int,
) -> Result<io::Outcome, c_int> {
    // SAFETY: the caller's promise.
    let buffers = unsafe { segments(iov, usize::try_from(count).unwrap_or(usize::MAX)) }?;
    let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
    let flags = super::flags_of(flags, bytes)?;
    // Unlike a `write` of nothing, it asks nobody.
    Ok(if bytes == 0 { io::Outcome::Bytes(0) } else { io::send(fd, end, &buffers, flags) })
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
