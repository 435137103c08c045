//! `syscall(2)`: the numbers that would go past the other hooks.

use super::{connection, descriptor, fork, hook, receive, send};
use crate::table::{self, Kind};
use crate::{forking, process, real};
use core::ffi::{c_int, c_long, c_uint};

hook! {
    /// `syscall(2)`: calls on descriptors that are something to us, and `io_uring`, which streams do not have. Programs
    /// set a ring up before their first socket, so a session is made to know whether there may be streams.
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
        if number == libc::SYS_io_uring_setup && process::connected() {
            return real::fail(libc::ENOSYS);
        }
        // SAFETY: the program's promise to `syscall`.
        let kernel = || unsafe { real::syscall(number, a, b, c, d, e, f) };
        // SAFETY: as above.
        if unsafe { fork::is_fork(number, a, b) } {
            return forking::around(kernel);
        }
        let Some(kind) = c_int::try_from(a).ok().and_then(table::look).map(|entry| entry.kind) else {
            return kernel();
        };
        // SAFETY: as above, for the same arguments.
        match unsafe { followed(number, [a, b, c, d, e, f]) } {
            Some(outcome) => outcome,
            None if kind == Kind::Own => real::fail(libc::EBADF),
            None => kernel(),
        }
    }
}

/// The call by the hook that stands for it, if there is one.
///
/// # Safety
/// As the system call of that number asks.
unsafe fn followed(number: c_long, args: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let (fd, size) = (int(a), usize::try_from(c).unwrap_or(0));
    // SAFETY: the caller's promise: each argument is what the system call has in that place.
    let outcome = unsafe {
        match number {
            libc::SYS_read => receive::read(fd, b as _, size) as c_long,
            libc::SYS_write => send::write(fd, b as _, size) as c_long,
            libc::SYS_readv => receive::readv(fd, b as _, int(c)) as c_long,
            libc::SYS_writev => send::writev(fd, b as _, int(c)) as c_long,
            libc::SYS_recvfrom => receive::recvfrom(fd, b as _, size, int(d), e as _, f as _) as c_long,
            libc::SYS_sendto => send::sendto(fd, b as _, size, int(d), e as _, uint(f)) as c_long,
            libc::SYS_recvmsg => receive::recvmsg(fd, b as _, int(c)) as c_long,
            libc::SYS_sendmsg => send::sendmsg(fd, b as _, int(c)) as c_long,
            libc::SYS_recvmmsg => receive::recvmmsg(fd, b as _, uint(c), int(d), e as _).into(),
            libc::SYS_sendmmsg => send::sendmmsg(fd, b as _, uint(c), int(d)).into(),
            libc::SYS_close => descriptor::close(fd).into(),
            libc::SYS_dup => descriptor::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptor::dup2(fd, int(b)).into(),
            libc::SYS_dup3 => descriptor::dup3(fd, int(b), int(c)).into(),
            libc::SYS_fcntl => descriptor::fcntl(fd, int(b), c as _).into(),
            libc::SYS_ioctl => descriptor::ioctl(fd, b.cast_unsigned(), c as _).into(),
            libc::SYS_shutdown => connection::shutdown(fd, int(b)).into(),
            libc::SYS_accept => connection::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => connection::accept4(fd, b as _, c as _, int(d)).into(),
            libc::SYS_setsockopt => connection::setsockopt(fd, int(b), int(c), d as _, uint(e)).into(),
            libc::SYS_getsockopt => connection::getsockopt(fd, int(b), int(c), d as _, e as _).into(),
            _ => return None,
        }
    };
    Some(outcome)
}

/// The lower half of a register, as the kernel takes an `int`.
fn int(argument: c_long) -> c_int {
    uint(argument).cast_signed()
}

fn uint(argument: c_long) -> c_uint {
    let [b0, b1, b2, b3, ..] = argument.to_le_bytes();
    c_uint::from_le_bytes([b0, b1, b2, b3])
}
