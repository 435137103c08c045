//! Bytes that move from a file without a `read` or `write` of the program's (`sendfile`), and descriptors that go to other
//! programs.

use super::hook;
use crate::table::{self, Held, Kind};
use crate::{attach, end_of_life, io, real};
use core::ffi::{c_int, c_long, c_uint};
use libc::{msghdr, off_t, size_t, ssize_t};
use std::io::IoSlice;

/// Bytes moved at a time.
const CHUNK: usize = 128 * 1024;

hook! {
    /// `sendfile(2)`.
    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        match table::stream(out) {
            // SAFETY: the program's promise to `sendfile`.
            Some(end) => unsafe { file_out(out, &end, input, offset, count) }
                // SAFETY: as above.
                .finish(|| unsafe { real::sendfile(out, input, offset, count) }),
            // SAFETY: as above.
            None => unsafe { real::sendfile(out, input, offset, count) },
        }
    }

    /// `sendfile` as programs with large files have it.
    fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        // SAFETY: the program's promise; `off_t` has 64 bits.
        unsafe { sendfile(out, input, offset, count) }
    }
}

hook! {
    /// `pidfd_getfd(2)`: a descriptor of another process, which does not know that it gave one away.
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int {
        let (pid, there, no) = (c_long::from(pidfd), c_long::from(target), c_long::from(flags));
        // SAFETY: plain numbers. The C library's own function is younger than some that we run on.
        let fd = unsafe { real::syscall(libc::SYS_pidfd_getfd, pid, there, no, 0, 0, 0) };
        let fd = c_int::try_from(fd).unwrap_or(-1);
        if fd >= 0 && attach::is_tcp(fd) {
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
    unsafe { passed(message) }.filter(|&fd| attach::is_tcp(fd)).for_each(|fd| {
        table::enter(fd, Kind::Unknown, 0);
    });
}

/// Descriptors are about to leave with a message: each stream among them has one more holder, on its way.
///
/// # Safety
/// `message` is a message in the form of `sendmsg`.
pub unsafe fn descriptors_leave(message: *const msghdr) {
    // SAFETY: the caller's promise.
    unsafe { passed(message) }.filter_map(table::stream).for_each(|end| end_of_life::referred(&end));
}

/// The descriptors in a message's `SCM_RIGHTS`.
unsafe fn passed(message: *const msghdr) -> impl Iterator<Item = c_int> {
    let mut fds = Vec::new();
    // SAFETY: the caller's promise; the macros stay inside the control buffer.
    unsafe {
        let mut header = if message.is_null() { core::ptr::null() } else { libc::CMSG_FIRSTHDR(message) };
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                fds.extend((0..len / size_of::<c_int>()).map(|index| data.add(index).read_unaligned()));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    fds.into_iter()
}

/// Whether it is open, and not for writing only.
fn is_readable(fd: c_int) -> bool {
    // SAFETY: F_GETFL takes no argument.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, core::ptr::null_mut()) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
}

unsafe fn file_out(out: c_int, end: &Held, input: c_int, offset: *mut off_t, count: size_t) -> io::Outcome {
    let start = if offset.is_null() {
        // SAFETY: plain numbers.
        unsafe { libc::lseek(input, 0, libc::SEEK_CUR) }
    } else {
        // SAFETY: the program's pointer.
        unsafe { *offset }
    };
    if count == 0 || count > isize::MAX.unsigned_abs() || start < 0 {
        return match is_readable(input) {
            true if count == 0 && start >= 0 => io::Outcome::Bytes(0),
            true => io::Outcome::Errno(libc::EINVAL),
            false => io::Outcome::Errno(libc::EBADF),
        };
    }
    let (mut chunk, mut done, mut failed) = (vec![0u8; count.min(CHUNK)], 0usize, None);
    while done < count {
        let at = start + off_t::try_from(done).unwrap_or(off_t::MAX - start);
        let want = chunk.len().min(count - done);
        // SAFETY: our own buffer.
        let got = unsafe { libc::pread(input, chunk.as_mut_ptr().cast(), want, at) };
        let Ok(got) = usize::try_from(got) else {
            // The kernel takes nothing from a folder this way, and says no more of it.
            let errno = if real::errno() == libc::EISDIR { libc::EINVAL } else { real::errno() };
            failed = Some(io::Outcome::Errno(errno));
            break;
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
            other => {
                failed = Some(other);
                break;
            }
        }
    }
    let after = start + off_t::try_from(done).unwrap_or(0);
    if done == 0
        && let Some(failed) = failed
    {
        return failed;
    }
    if offset.is_null() {
        // SAFETY: plain numbers.
        unsafe { libc::lseek(input, after, libc::SEEK_SET) };
    } else {
        // SAFETY: the program's pointer.
        unsafe { *offset = after };
    }
    io::Outcome::Bytes(done)
}
