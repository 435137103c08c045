//! `read`, `recv` and their relatives.

use super::{ancillary, hook, segments_mut};
use crate::calls::io;
use crate::descriptors::table::{self, Held};
use crate::kernel::clock::timespec_of;
use crate::kernel::{real, scratch, user};
use crate::waiting::limit::Timeout;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::Ordering::Relaxed;
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use std::io::IoSliceMut;

/// Flags that ask for something only the kernel's socket has.
const KERNEL_ONLY: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

hook! {
    /// `read(2)`.
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t |kernel| {
        match table::stream(fd) {
            Some(_) if !super::can_be_ours(buffer, len) => real::fail(libc::EFAULT),
            Some(_) if len == 0 => 0,
            // SAFETY: the program's promise to `read`.
            Some(end) => unsafe { one(fd, &end, buffer, len, 0) }.finish(kernel),
            None => kernel(),
        }
    }

    /// `read` as `_FORTIFY_SOURCE` has it.
    fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        check(len, room);
        // SAFETY: the program's promise.
        unsafe { read(fd, buffer, len) }
    }

    /// `recv(2)`.
    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t |kernel| {
        match table::stream(fd) {
            // SAFETY: the program's promise to `recv`.
            Some(end) if flags & KERNEL_ONLY == 0 => unsafe { one(fd, &end, buffer, len, flags) }.finish(kernel),
            _ => kernel(),
        }
    }

    /// `recv` as `_FORTIFY_SOURCE` has it.
    fn __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        check(len, room);
        // SAFETY: the program's promise.
        unsafe { recv(fd, buffer, len, flags) }
    }

    /// `recvfrom(2)`; TCP returns no address.
    fn recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, fromlen: *mut socklen_t) -> ssize_t |kernel| {
        let Some(end) = table::stream(fd).filter(|_| flags & KERNEL_ONLY == 0) else { return kernel() };
        // SAFETY: the program's promise to `recvfrom`.
        let outcome = unsafe { one(fd, &end, buffer, len, flags) };
        if matches!(outcome, io::Outcome::Bytes(_)) && !from.is_null() {
            // SAFETY: any bytes are a length, and the place is the program's.
            let told = unsafe { user::load(fromlen) }.and_then(|len| match len.cast_signed() {
                ..0 => Err(libc::EINVAL),
                // SAFETY: as above.
                _ => unsafe { user::store(fromlen, &0) },
            });
            if let Err(errno) = told {
                return real::fail(errno);
            }
        }
        outcome.finish(kernel)
    }

    /// `recvfrom` as `_FORTIFY_SOURCE` has it.
    fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, fromlen: *mut socklen_t) -> ssize_t {
        check(len, room);
        // SAFETY: the program's promise.
        unsafe { recvfrom(fd, buffer, len, flags, from, fromlen) }
    }

    /// `readv(2)`.
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t |kernel| {
        match table::stream(fd) {
            // SAFETY: the program's promise to `readv`.
            Some(end) => unsafe { several(fd, &end, iov, count, 0) }.unwrap_or_else(io::Outcome::Errno).finish(kernel),
            None => kernel(),
        }
    }

    /// `preadv2(2)`: at no position it is `readv`.
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t |kernel| {
        match table::stream(fd).filter(|_| offset == -1) {
            // SAFETY: the program's promise to `preadv2`.
            Some(end) => unsafe { several(fd, &end, iov, count, flags) }.unwrap_or_else(io::Outcome::Errno).finish(kernel),
            None => kernel(),
        }
    }

    /// `preadv2` as programs with large files have it.
    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { preadv2(fd, iov, count, offset, flags) }
    }

    /// `recvmsg(2)`; TCP returns no address and, without options that a stream does not have, no ancillary data.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t |kernel| {
        if let Some(end) = table::stream(fd) {
            // SAFETY: the program's promise to `recvmsg`.
            return unsafe { message_in(fd, &end, message, flags) };
        }
        let received = kernel();
        if received >= 0 {
            // SAFETY: filled by the kernel.
            unsafe { super::transfer::descriptors_arrived(message) };
        }
        received
    }

    /// `recvmmsg(2)`.
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int |kernel| {
        let Some(end) = table::stream(fd).filter(|_| flags & KERNEL_ONLY == 0) else { return kernel() };
        // SAFETY: any bytes are a time.
        let limit = if timeout.is_null() { Ok(None) } else { unsafe { user::load(timeout) }.map(Some) };
        let limit = match limit.map(|limit| Timeout::of_timespec(limit.as_ref())) {
            Err(errno) => return real::fail(errno),
            Ok(None) => return real::fail(libc::EINVAL),
            Ok(Some(timeout)) => timeout.begin(),
        };
        // Unlike other receives, it reports an error before there is a message to receive.
        if flags & libc::MSG_ERRQUEUE == 0 {
            if count == 0 || end.gone() || end.shared().status.read_shut.load(Relaxed) != 0 {
                crate::socket::carrier::look_at_kernel(fd, &end);
            }
            if let Some(errno) = io::pending_error(&end) {
                return real::fail(errno);
            }
        }
        let behind_first = if flags & libc::MSG_WAITFORONE == 0 { 0 } else { libc::MSG_DONTWAIT };
        let mut flags = flags & !libc::MSG_WAITFORONE;
        let mut is_first = true;
        let outcome = super::each_message(messages, count.min(1024), |message| {
            if !core::mem::take(&mut is_first) {
                flags |= behind_first;
                if limit.is_over() {
                    return -1;
                }
            }
            // SAFETY: the program's promise to `recvmmsg`.
            unsafe { message_in(fd, &end, message, flags) }
        });
        if outcome > 0
            && let Some(left) = limit.left(None)
        {
            // SAFETY: the program's time.
            return unsafe { user::store(timeout, &timespec_of(left)) }.map_or_else(real::fail, |()| outcome);
        }
        outcome
    }
}

unsafe fn message_in(fd: c_int, end: &Held, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    let kernel = || unsafe { real::recvmsg(fd, message, flags) };
    if flags & KERNEL_ONLY != 0 {
        return kernel();
    }
    // SAFETY: as above.
    unsafe { message_from(fd, end, message, flags) }.unwrap_or_else(io::Outcome::Errno).finish(kernel)
}

unsafe fn message_from(
    fd: c_int,
    end: &Held,
    message: *mut msghdr,
    flags: c_int,
) -> Result<io::Outcome, c_int> {
    let mut header = ancillary::head(message, flags)?;
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { segments_mut(header.msg_iov, header.msg_iovlen) }?;
    let len = buffers.iter().fold(0, |all: usize, buffer| all.saturating_add(buffer.len()));
    let outcome = if len == 0 {
        nothing(fd, end, flags)
    } else if flags & libc::MSG_TRUNC != 0 {
        discard(fd, end, len, flags & !libc::MSG_TRUNC)
    } else {
        io::receive(fd, end, &mut buffers, flags)
    };
    // As the kernel has it, nothing is told of a call that failed.
    if matches!(outcome, io::Outcome::Bytes(_)) {
        // SAFETY: as above, and the program's header.
        unsafe {
            ancillary::store(fd, end, &mut header, flags);
            store_header(message, &header)?;
        }
    }
    Ok(outcome)
}

/// Receives into the buffers of a `preadv2` at no position.
unsafe fn several(
    fd: c_int,
    end: &Held,
    iov: *const iovec,
    count: c_int,
    flags: c_int,
) -> Result<io::Outcome, c_int> {
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { segments_mut(iov, usize::try_from(count).unwrap_or(usize::MAX)) }?;
    let flags = super::flags_of(flags, buffers.iter().map(|buffer| buffer.len()).sum())?;
    Ok(io::receive(fd, end, &mut buffers, flags))
}

/// Stores in a message's header only what the kernel stores there.
///
/// # Safety
/// If it is there it is the program's.
unsafe fn store_header(message: *mut msghdr, header: &msghdr) -> Result<(), c_int> {
    use core::mem::offset_of;
    // SAFETY: the caller's promise.
    unsafe {
        let place = |at| message.wrapping_byte_add(at);
        if !header.msg_name.is_null() {
            user::store(place(offset_of!(msghdr, msg_namelen)).cast(), &header.msg_namelen)?;
        }
        user::store(place(offset_of!(msghdr, msg_flags)).cast(), &header.msg_flags)?;
        user::store(place(offset_of!(msghdr, msg_controllen)).cast(), &header.msg_controllen)
    }
}

#[inline]
unsafe fn one(fd: c_int, end: &Held, buffer: *mut c_void, len: size_t, flags: c_int) -> io::Outcome {
    if !super::can_be_ours(buffer, len.min(super::LONGEST)) {
        return io::Outcome::Errno(libc::EFAULT);
    }
    if len == 0 {
        return nothing(fd, end, flags);
    }
    if flags & libc::MSG_TRUNC != 0 {
        return discard(fd, end, len, flags & !libc::MSG_TRUNC);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { super::bytes_mut(buffer, len) };
    io::receive(fd, end, &mut [IoSliceMut::new(bytes)], flags)
}

/// `recv` of no bytes waits for some all the same, unlike `read`; but whatever ends the wait, it has got what it asked for.
fn nothing(fd: c_int, end: &Held, flags: c_int) -> io::Outcome {
    let flags = flags & !(libc::MSG_WAITALL | libc::MSG_TRUNC) | libc::MSG_PEEK;
    match io::receive_apart(fd, end, &mut [IoSliceMut::new(&mut [0])], flags) {
        io::Outcome::Bytes(_) | io::Outcome::Errno(libc::EINTR) => io::Outcome::Bytes(0),
        io::Outcome::Errno(libc::EAGAIN) if !io::must_not_wait(end, flags) => io::Outcome::Bytes(0),
        other => other,
    }
}

/// `MSG_TRUNC` on TCP: bytes are thrown away, or only counted (`MSG_PEEK`), and not stored.
fn discard(fd: c_int, end: &Held, len: size_t, flags: c_int) -> io::Outcome {
    if flags & libc::MSG_PEEK != 0 {
        let one = io::receive(fd, end, &mut [IoSliceMut::new(&mut [0])], flags & !libc::MSG_WAITALL);
        return match one {
            io::Outcome::Bytes(1..) => {
                let unread = end.unread(crate::kernel::thread::tid()).unwrap_or(0);
                io::Outcome::Bytes(io::peeking::counted(end, unread, len))
            }
            other => other,
        };
    }
    scratch::with(len, |bytes| discard_by(fd, end, len, flags, bytes))
}

/// Receives `len` bytes into the same scratch bytes again and again.
fn discard_by(fd: c_int, end: &Held, len: size_t, mut flags: c_int, bytes: &mut [u8]) -> io::Outcome {
    let mut done = 0;
    loop {
        let wanted = bytes.len().min(len - done);
        match io::receive(fd, end, &mut [IoSliceMut::new(&mut bytes[..wanted])], flags) {
            io::Outcome::Bytes(count) => {
                done += count;
                if count < wanted || done == len {
                    return io::Outcome::Bytes(done);
                }
            }
            other => return if done > 0 { io::Outcome::Bytes(done) } else { other },
        }
        if flags & libc::MSG_WAITALL == 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
}

/// Aborts, as the C library does, if the length is beyond the buffer's own.
fn check(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    }
}
