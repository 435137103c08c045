//! Bytes that move from a file without a `read` or `write` by the program (`sendfile`), and descriptors that are sent
//! to other programs.

use super::{hook, splice};
use crate::calls::io;
use crate::descriptors::table::{self, Held, Kind};
use crate::kernel::{real, scratch, sockopt, user};
use crate::socket::end_of_life;
use crate::waiting::epoll;
use core::ffi::{c_int, c_long, c_uint};
use libc::{msghdr, off_t, size_t, ssize_t};
use std::io::IoSlice;

/// Longest control buffer that is looked at, bytes: what the kernel allows is less.
const CONTROL_MAX: usize = 1 << 20;

hook! {
    /// `sendfile(2)`; out of a stream it can only go into a pipe.
    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t |kernel| {
        if let Some(end) = table::stream(out) {
            // SAFETY: the program's promise to `sendfile`.
            return unsafe { file_out(out, &end, input, offset, count) }.finish(kernel);
        }
        match table::stream(input) {
            Some(end) if offset.is_null() && count > 0 && splice::is_pipe(out) => {
                splice::pipe_in(input, &end, out, count, 0).finish(kernel)
            }
            _ => kernel(),
        }
    }

    /// `sendfile` as programs with large files have it.
    fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { sendfile(out, input, offset, count) }
    }

    /// `pidfd_getfd(2)`: a descriptor of another process, which does not know that it gave one away.
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int {
        let (pid, there, no) = (c_long::from(pidfd), c_long::from(target), c_long::from(flags));
        // SAFETY: plain numbers. The C library's own function is younger than some that we run on.
        let fd = unsafe { real::syscall(libc::SYS_pidfd_getfd, pid, there, no, 0, 0, 0) };
        let fd = c_int::try_from(fd).unwrap_or(-1);
        if fd >= 0 && sockopt::is_tcp(fd) {
            table::enter(fd, Kind::Unknown, 0);
            if let Some(end) = table::stream(fd) {
                end_of_life::lent(&end);
            }
        }
        fd
    }
}

/// Descriptors came with a message: TCP sockets among them may be streams.
///
/// # Safety
/// `message` is a message that the kernel has just filled.
pub unsafe fn descriptors_arrived(message: *const msghdr) {
    // SAFETY: the caller's promise.
    unsafe { passed(message) }.filter(|&fd| sockopt::is_tcp(fd)).for_each(|fd| {
        table::enter(fd, Kind::Unknown, 0);
    });
}

/// Called before descriptors leave with a message: each stream among them gets one more holder. The kernel takes
/// nothing from unmapped memory.
pub fn descriptors_leave(message: *const msghdr) {
    // SAFETY: any bytes are a header.
    let Ok(mut header) = (unsafe { user::load(message) }) else { return };
    if header.msg_control.is_null() || header.msg_controllen > CONTROL_MAX {
        return;
    }
    let mut control = vec![0_u64; header.msg_controllen.div_ceil(size_of::<u64>())];
    // SAFETY: any bytes will do.
    if unsafe { user::load_over(header.msg_control.cast(), &mut control) }.is_err() {
        return;
    }
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: our own copy.
    unsafe { passed(&raw const header) }.filter_map(table::stream).for_each(|end| {
        end_of_life::referred(&end);
        epoll::shared();
    });
}

/// The descriptors in a message's `SCM_RIGHTS`.
///
/// # Safety
/// `message` is a message whose control buffer is there.
unsafe fn passed(message: *const msghdr) -> impl Iterator<Item = c_int> {
    let mut fds = Vec::new();
    // SAFETY: the caller's promise; the macros stay inside the control buffer.
    unsafe {
        let end = (*message).msg_control.addr().saturating_add((*message).msg_controllen);
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let said = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let len = said.min(end.saturating_sub(data.addr()));
                fds.extend((0..len / size_of::<c_int>()).map(|index| data.add(index).read_unaligned()));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    fds.into_iter()
}

/// What the kernel refuses of a `sendfile`: it moves nothing, since it is asked for no bytes, or for more than there can be.
unsafe fn refusal(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> Option<io::Outcome> {
    let count = if count > isize::MAX.unsigned_abs() { count } else { 0 };
    // SAFETY: the program's promise to `sendfile`.
    let outcome = unsafe { real::sendfile(out, input, offset, count) };
    (outcome < 0).then(|| io::Outcome::Errno(real::errno()))
}

/// Why no more of a file was sent.
enum Stopped {
    Sending(io::Outcome),
    Reading(c_int),
}

/// Sends up to `count` bytes of a file from an offset through `chunk`. Returns how many, and what stopped it other than
/// the file's end or a full stream.
fn pour(
    out: c_int,
    end: &Held,
    (input, start): (c_int, off_t),
    count: usize,
    chunk: &mut [u8],
) -> (usize, Option<Stopped>) {
    let mut done = 0;
    while done < count {
        let at = start + off_t::try_from(done).unwrap_or(off_t::MAX - start);
        let want = chunk.len().min(count - done);
        // SAFETY: our own buffer.
        let got = unsafe { libc::pread(input, chunk.as_mut_ptr().cast(), want, at) };
        let Ok(got) = usize::try_from(got) else {
            // The kernel takes nothing from a folder or what has no places this way, and says no more of it.
            let errno = match real::errno() {
                libc::EISDIR | libc::ESPIPE => libc::EINVAL,
                errno => errno,
            };
            return (done, Some(Stopped::Reading(errno)));
        };
        if got == 0 {
            break;
        }
        match io::send(out, end, &[IoSlice::new(&chunk[..got])], 0) {
            io::Outcome::Bytes(sent) => {
                done += sent;
                if sent < got {
                    break;
                }
            }
            other => return (done, Some(Stopped::Sending(other))),
        }
    }
    (done, None)
}

unsafe fn file_out(out: c_int, end: &Held, input: c_int, offset: *mut off_t, count: size_t) -> io::Outcome {
    let start = if offset.is_null() {
        // SAFETY: plain numbers.
        unsafe { libc::lseek(input, 0, libc::SEEK_CUR) }
    } else {
        // SAFETY: any bytes are an offset.
        match unsafe { user::load(offset) } {
            Ok(offset) => offset,
            Err(errno) => return io::Outcome::Errno(errno),
        }
    };
    if count == 0 || count > isize::MAX.unsigned_abs() || start < 0 {
        // SAFETY: the program's promise to `sendfile`.
        let refused = unsafe { refusal(out, input, offset, count) };
        return refused.unwrap_or(if count == 0 {
            io::Outcome::Bytes(0)
        } else {
            io::Outcome::Errno(libc::EINVAL)
        });
    }
    let (done, failed) = scratch::with(count, |chunk| pour(out, end, (input, start), count, chunk));
    let failed = failed.map(|failed| match failed {
        Stopped::Sending(outcome) => outcome,
        Stopped::Reading(errno) => {
            // SAFETY: the program's promise to `sendfile`.
            let refused = unsafe { refusal(out, input, offset, count) };
            refused.unwrap_or(io::Outcome::Errno(errno))
        }
    });
    let after = start + off_t::try_from(done).unwrap_or(0);
    if done == 0
        && let Some(failed) = failed
    {
        return failed;
    }
    if offset.is_null() {
        // SAFETY: plain numbers.
        unsafe { libc::lseek(input, after, libc::SEEK_SET) };
    } else if let Err(errno) = {
        // SAFETY: the program's offset.
        unsafe { user::store(offset, &after) }
    } {
        return io::Outcome::Errno(errno);
    }
    io::Outcome::Bytes(done)
}
