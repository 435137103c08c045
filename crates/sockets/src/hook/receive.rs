//! `read`, `recv` and their relatives.

use super::{hook, slices_mut};
use crate::table::{self, Held};
use crate::{io, real};
use core::ffi::{c_int, c_uint, c_void};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// Flags that ask for something only the kernel's socket has.
const KERNEL_ONLY: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

hook! {
    /// `read(2)`.
    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        match table::stream(fd) {
            // SAFETY: the program's promise to `read`.
            Some(_) if len == 0 => 0,
            Some(_) if !super::can_be_ours(buffer, len) => real::fail(libc::EFAULT),
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

    /// `recvfrom(2)`; TCP tells no address.
    fn recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, fromlen: *mut socklen_t) -> ssize_t {
        match table::stream(fd) {
            Some(end) if flags & KERNEL_ONLY == 0 => {
                // SAFETY: the program's promise to `recvfrom`.
                let outcome = unsafe { one(fd, &end, buffer, len, flags) };
                if matches!(outcome, io::Outcome::Bytes(_)) && !from.is_null() {
                    if fromlen.is_null() {
                        return real::fail(libc::EFAULT);
                    }
                    // SAFETY: as above.
                    unsafe { *fromlen = 0 };
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
        match unsafe { slices_mut(iov, usize::try_from(count).unwrap_or(usize::MAX)) } {
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
        let Some((end, flags)) = table::stream(fd).zip(super::flags_at(offset, flags)) else { return kernel() };
        // SAFETY: as above.
        match unsafe { slices_mut(iov, usize::try_from(count).unwrap_or(usize::MAX)) } {
            Ok(mut buffers) => io::receive(fd, &end, &mut buffers, flags).finish(kernel),
            Err(errno) => real::fail(errno),
        }
    }

    /// `preadv2` as programs with large files have it.
    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { preadv2(fd, iov, count, offset, flags) }
    }

    /// `recvmsg(2)`; TCP tells no address and, without options that a stream does not have, no ancillary data.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        match table::stream(fd) {
            Some(end) if flags & KERNEL_ONLY == 0 => {
                // SAFETY: the program's promise to `recvmsg`.
                unsafe { message_in(fd, &end, message, flags) }
            }
            Some(_) => {
                // SAFETY: as above.
                unsafe { real::recvmsg(fd, message, flags) }
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
        let Some(end) = table::stream(fd) else {
            // SAFETY: the program's promise to `recvmmsg`.
            return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
        };
        // SAFETY: as above.
        if messages.is_null() && count > 0 {
            return real::fail(libc::EFAULT);
        }
        // SAFETY: as above.
        let timeout = unsafe { timeout.as_mut() };
        let deadline = match timeout.as_deref().map(duration) {
            Some(None) => return real::fail(libc::EINVAL),
            limit => limit.flatten().map(|time| Instant::now() + time),
        };
        let outcome = each_message(messages, count.min(1024), flags, deadline, |message, flags| {
            // SAFETY: the program's promise to `recvmmsg`.
            unsafe { message_in(fd, &end, message, flags) }
        });
        if outcome > 0
            && let Some((timeout, deadline)) = timeout.zip(deadline)
        {
            let left = deadline.saturating_duration_since(Instant::now());
            timeout.tv_sec = libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX);
            timeout.tv_nsec = left.subsec_nanos().into();
        }
        outcome
    }
}

/// Receives into one message after the other, until all are filled, `deadline` is over, or one cannot be.
fn each_message(
    messages: *mut mmsghdr,
    count: c_uint,
    mut flags: c_int,
    deadline: Option<Instant>,
    receive: impl Fn(*mut msghdr, c_int) -> ssize_t,
) -> c_int {
    let number = |count: c_uint| c_int::try_from(count).unwrap_or(c_int::MAX);
    for done in 0..count {
        // SAFETY: in range of the program's array.
        let entry = unsafe { &mut *messages.add(done as usize) };
        let received = receive(&raw mut entry.msg_hdr, flags & !libc::MSG_WAITFORONE);
        let Ok(received) = c_uint::try_from(received) else {
            return if done > 0 { number(done) } else { -1 };
        };
        entry.msg_len = received;
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
    if message.is_null() {
        return real::fail(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let header = unsafe { &mut *message };
    if header.msg_iovlen > super::IOV_MAX {
        return real::fail(libc::EMSGSIZE);
    }
    // SAFETY: as above.
    let mut buffers = match unsafe { slices_mut(header.msg_iov, header.msg_iovlen) } {
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
        // As the kernel has it, nothing is told of a call that failed.
        io::Outcome::Bytes(_) => {
            if !header.msg_name.is_null() {
                header.msg_namelen = 0;
            }
            header.msg_controllen = 0;
            header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
            outcome.finish(|| -1)
        }
        io::Outcome::Errno(_) => outcome.finish(|| -1),
    }
}

unsafe fn one(fd: c_int, end: &Held, buffer: *mut c_void, len: size_t, flags: c_int) -> io::Outcome {
    if len == 0 {
        return nothing(fd, end, flags);
    }
    if flags & libc::MSG_TRUNC != 0 {
        return discard(fd, end, len, flags & !libc::MSG_TRUNC);
    }
    if buffer.is_null() {
        return io::Outcome::Errno(libc::EFAULT);
    }
    // SAFETY: the caller's promise; the kernel's limit keeps the length below `isize::MAX`.
    let bytes = unsafe { core::slice::from_raw_parts_mut(buffer.cast(), len.min(0x7fff_f000)) };
    io::receive(fd, end, &mut [IoSliceMut::new(bytes)], flags)
}

/// `recv` of no bytes waits for some all the same, unlike `read`.
fn nothing(fd: c_int, end: &Held, flags: c_int) -> io::Outcome {
    let flags = flags & !(libc::MSG_WAITALL | libc::MSG_TRUNC) | libc::MSG_PEEK;
    match io::receive(fd, end, &mut [IoSliceMut::new(&mut [0])], flags) {
        io::Outcome::Bytes(_) => io::Outcome::Bytes(0),
        other => other,
    }
}

/// `MSG_TRUNC` on TCP: bytes are thrown away, or only counted (`MSG_PEEK`), and not stored.
fn discard(fd: c_int, end: &Held, len: size_t, flags: c_int) -> io::Outcome {
    const PIECE: usize = 64 * 1024;
    if flags & libc::MSG_PEEK != 0 {
        let one = io::receive(fd, end, &mut [IoSliceMut::new(&mut [0])], flags & !libc::MSG_WAITALL);
        return match one {
            io::Outcome::Bytes(1..) => {
                io::Outcome::Bytes(end.unread(crate::thread::tid()).unwrap_or(0).clamp(1, len))
            }
            other => other,
        };
    }
    let (mut bytes, mut done, mut flags) = (vec![0; len.min(PIECE)], 0, flags);
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

/// A length beyond the buffer's own: the program is broken, and says so as the C library would.
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
