//! `read`, `recv` and their relatives.

use super::{ancillary, hook, segments_mut};
use crate::calls::io;
use crate::descriptors::table::{self, Held};
use crate::kernel::{real, scratch, user};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::Ordering::Relaxed;
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// Flags that ask for something only the kernel's socket has.
const KERNEL_ONLY: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

hook! {
    /// `read(2)`.
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        match table::stream(fd) {
            Some(_) if !super::can_be_ours(buffer, len) => real::fail(libc::EFAULT),
            Some(_) if len == 0 => 0,
            // SAFETY: as above.
            Some(end) => unsafe { one(fd, &end, buffer, len, 0) }.finish(|| unsafe { real::read(fd, buffer, len) }),
            // SAFETY: as above.
            None => unsafe { real::read(fd, buffer, len) },
        }
    }

    /// `read` as `_FORTIFY_SOURCE` has it.
    fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        check(len, room);
        // SAFETY: the program's promise.
        unsafe { read(fd, buffer, len) }
    }

    /// `recv(2)`.
    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        match table::stream(fd) {
            Some(end) if flags & KERNEL_ONLY == 0 => {
                // SAFETY: the program's promise to `recv`.
                unsafe { one(fd, &end, buffer, len, flags) }.finish(|| unsafe { real::recv(fd, buffer, len, flags) })
            }
            // SAFETY: as above.
            _ => unsafe { real::recv(fd, buffer, len, flags) },
        }
    }

    /// `recv` as `_FORTIFY_SOURCE` has it.
    fn __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        check(len, room);
        // SAFETY: the program's promise.
        unsafe { recv(fd, buffer, len, flags) }
    }

    /// `recvfrom(2)`; TCP returns no address.
    fn recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, fromlen: *mut socklen_t) -> ssize_t {
        match table::stream(fd) {
            Some(end) if flags & KERNEL_ONLY == 0 => {
                // SAFETY: the program's promise to `recvfrom`.
                let outcome = unsafe { one(fd, &end, buffer, len, flags) };
                if matches!(outcome, io::Outcome::Bytes(_)) && !from.is_null() {
                    // SAFETY: as above.
                    match unsafe { user::load(fromlen) }.map(socklen_t::cast_signed) {
                        Ok(..0) => return real::fail(libc::EINVAL),
                        Ok(_) => {}
                        Err(errno) => return real::fail(errno),
                    }
                    // SAFETY: as above.
                    if let Err(errno) = unsafe { user::store(fromlen, &0) } {
                        return real::fail(errno);
                    }
                }
                // SAFETY: as above.
                outcome.finish(|| unsafe { real::recvfrom(fd, buffer, len, flags, from, fromlen) })
            }
            // SAFETY: as above.
            _ => unsafe { real::recvfrom(fd, buffer, len, flags, from, fromlen) },
        }
    }

    /// `recvfrom` as `_FORTIFY_SOURCE` has it.
    fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, fromlen: *mut socklen_t) -> ssize_t {
        check(len, room);
        // SAFETY: the program's promise.
        unsafe { recvfrom(fd, buffer, len, flags, from, fromlen) }
    }

    /// `readv(2)`.
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        let Some(end) = table::stream(fd) else {
            // SAFETY: the program's promise to `readv`.
            return unsafe { real::readv(fd, iov, count) };
        };
        // SAFETY: as above.
        match unsafe { segments_mut(iov, usize::try_from(count).unwrap_or(usize::MAX)) } {
            Ok(mut buffers) => io::receive(fd, &end, &mut buffers, 0)
                // SAFETY: as above.
                .finish(|| unsafe { real::readv(fd, iov, count) }),
            Err(errno) => real::fail(errno),
        }
    }

    /// `preadv2(2)`: at no position it is `readv`.
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise to `preadv2`.
        let kernel = || unsafe { real::preadv2(fd, iov, count, offset, flags) };
        let Some(end) = table::stream(fd).filter(|_| offset == -1) else { return kernel() };
        // SAFETY: as above.
        let buffers = unsafe { segments_mut(iov, usize::try_from(count).unwrap_or(usize::MAX)) };
        let bytes = |buffers: &[IoSliceMut<'_>]| buffers.iter().map(|buffer| buffer.len()).sum();
        match buffers.and_then(|buffers| super::flags_of(flags, bytes(&buffers)).map(|flags| (buffers, flags))) {
            Ok((mut buffers, flags)) => io::receive(fd, &end, &mut buffers, flags).finish(kernel),
            Err(errno) => real::fail(errno),
        }
    }

    /// `preadv2` as programs with large files have it.
    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { preadv2(fd, iov, count, offset, flags) }
    }

    /// `recvmsg(2)`; TCP returns no address and, without options that a stream does not have, no ancillary data.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        match table::stream(fd) {
            Some(end) => {
                // SAFETY: the program's promise to `recvmsg`.
                unsafe { message_in(fd, &end, message, flags) }
            }
            None => {
                // SAFETY: as above.
                let received = unsafe { real::recvmsg(fd, message, flags) };
                if received >= 0 {
                    // SAFETY: filled by the kernel.
                    unsafe { super::transfer::descriptors_arrived(message) };
                }
                received
            }
        }
    }

    /// `recvmmsg(2)`.
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        let Some(end) = table::stream(fd).filter(|_| flags & KERNEL_ONLY == 0) else {
            // SAFETY: the program's promise to `recvmmsg`.
            return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
        };
        // SAFETY: any bytes are a time.
        let limit = if timeout.is_null() { Ok(None) } else { unsafe { user::load(timeout) }.map(Some) };
        let deadline = match limit.map(|limit| limit.as_ref().map(duration)) {
            Err(errno) => return real::fail(errno),
            Ok(Some(None)) => return real::fail(libc::EINVAL),
            Ok(limit) => limit.flatten().map(|time| Instant::now() + time),
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
        let outcome = each_message(messages, count.min(1024), flags, deadline, |message, flags| {
            // SAFETY: the program's promise to `recvmmsg`.
            unsafe { message_in(fd, &end, message, flags) }
        });
        if outcome > 0
            && let Some(deadline) = deadline
        {
            let left = crate::waiting::limit::timespec_of(deadline.saturating_duration_since(Instant::now()));
            // SAFETY: the program's time.
            return unsafe { user::store(timeout, &left) }.map_or_else(real::fail, |()| outcome);
        }
        outcome
    }
}

/// Receives one message after the other, until all are filled, `deadline` is over, or one fails.
fn each_message(
    messages: *mut mmsghdr,
    count: c_uint,
    mut flags: c_int,
    deadline: Option<Instant>,
    receive: impl Fn(*mut msghdr, c_int) -> ssize_t,
) -> c_int {
    let number = |count: c_uint| c_int::try_from(count).unwrap_or(c_int::MAX);
    for done in 0..count {
        let entry = messages.wrapping_add(done as usize);
        let received = receive(entry.cast(), flags & !libc::MSG_WAITFORONE);
        let stored = c_uint::try_from(received).map(|received| super::store_length(entry, received));
        if !matches!(stored, Ok(Ok(()))) {
            if let Ok(Err(errno)) = stored {
                real::set_errno(errno);
            }
            return if done > 0 { number(done) } else { -1 };
        }
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return number(done + 1);
        }
    }
    number(count)
}
unsafe fn message_in(fd: c_int, end: &Held, message: *mut msghdr, flags: c_int) -> ssize_t {
    if flags & KERNEL_ONLY != 0 {
        // SAFETY: the caller's promise.
        return unsafe { real::recvmsg(fd, message, flags) };
    }
    // SAFETY: any bytes are a header.
    let mut header = match unsafe { user::load(message) } {
        Ok(header) => header,
        Err(errno) => return real::fail(errno),
    };
    if !ancillary::takes_head(&header, flags) {
        return real::fail(libc::EINVAL);
    }
    if header.msg_iovlen > super::IOV_MAX {
        return real::fail(libc::EMSGSIZE);
    }
    // SAFETY: as above.
    let mut buffers = match unsafe { segments_mut(header.msg_iov, header.msg_iovlen) } {
        Ok(buffers) => buffers,
        Err(errno) => return real::fail(errno),
    };
    let len = buffers.iter().fold(0, |all: usize, buffer| all.saturating_add(buffer.len()));
    let outcome = if len == 0 {
        nothing(fd, end, flags)
    } else if flags & libc::MSG_TRUNC != 0 {
        discard(fd, end, len, flags & !libc::MSG_TRUNC)
    } else {
        io::receive(fd, end, &mut buffers, flags)
    };
    match outcome {
        // SAFETY: as above.
        io::Outcome::Kernel => unsafe { real::recvmsg(fd, message, flags) },
        // As in the kernel, nothing is stored for a call that failed.
        io::Outcome::Bytes(_) => {
            // SAFETY: as above.
            unsafe { ancillary::store(fd, end, &mut header, flags) };
            // SAFETY: the program's header.
            match unsafe { store_header(message, &header) } {
                Ok(()) => outcome.finish(|| -1),
                Err(errno) => real::fail(errno),
            }
        }
        io::Outcome::Errno(_) => outcome.finish(|| -1),
    }
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

/// `None`: it is no time.
fn duration(time: &timespec) -> Option<Duration> {
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    (ns < 1_000_000_000).then(|| Duration::new(seconds, ns))
}
