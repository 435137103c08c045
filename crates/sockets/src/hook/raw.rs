//! `syscall(2)`: the numbers that would go past the other hooks.

use super::{
    connection, descriptor, epoll, exec, fork, hook, receive, sandbox, send, signal, splice, transfer,
};
use crate::descriptors::table::{self, Kind};
use crate::forking;
use crate::kernel::real;
use crate::socket::own_calls;
use core::ffi::{c_int, c_long, c_uint};

hook! {
    /// `syscall(2)`: calls that other hooks follow, and `io_uring`, which streams do not support. Programs make a ring
    /// before their first socket, so a session is opened to learn whether there may be streams.
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long |kernel| {
        if number == libc::SYS_io_uring_setup {
            return ring(kernel);
        }
        // SAFETY: the program's promise to `syscall`.
        if unsafe { fork::is_fork(number, a, b) } {
            return forking::around(kernel);
        }
        let args = [a, b, c, d, e, f];
        // SAFETY: as above, for the same arguments.
        if let Some(outcome) = unsafe { whoever(number, args) } {
            return outcome;
        }
        let Some(kind) = c_int::try_from(a).ok().and_then(table::look).map(|entry| entry.kind) else {
            return kernel();
        };
        // SAFETY: as above.
        match unsafe { followed(number, args) } {
            Some(outcome) => outcome,
            None if kind == Kind::Own => real::fail(libc::EBADF),
            None => kernel(),
        }
    }
}

/// `io_uring_setup(2)`: the kernel's call where no stream can be in the ring.
fn ring(kernel: impl FnOnce() -> c_long) -> c_long {
    if own_calls::refuses_ring() {
        return real::fail(libc::ENOSYS);
    }
    let made = kernel();
    if made >= 0 {
        own_calls::made_ring();
    }
    made
}

/// Hands a call to its hook that does not begin with a descriptor, or that makes an entry for one that had none.
///
/// # Safety
/// As the system call of that number asks.
unsafe fn whoever(number: c_long, args: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = args;
    // SAFETY: the caller's promise: each argument is what the system call has in that place.
    let outcome = unsafe {
        match number {
            libc::SYS_connect => connection::connect(int(a), b as _, uint(c)).into(),
            libc::SYS_listen => connection::listen(int(a), int(b)).into(),
            libc::SYS_sendfile => transfer::sendfile(int(a), int(b), c as _, size(d)) as c_long,
            libc::SYS_splice => {
                splice::splice(int(a), b as _, int(c), d as _, size(e), uint(args[5])) as c_long
            }
            libc::SYS_close_range => descriptor::close_range(uint(a), uint(b), int(c)).into(),
            libc::SYS_epoll_create1 => epoll::epoll_create1(int(a)).into(),
            libc::SYS_pidfd_getfd => transfer::pidfd_getfd(int(a), int(b), uint(c)).into(),
            libc::SYS_execve => exec::execve(a as _, b as _, c as _).into(),
            libc::SYS_execveat => exec::execveat(int(a), b as _, c as _, d as _, int(e)).into(),
            libc::SYS_rt_sigaction => return signal::by_number(int(a), b as _, c as _, d),
            libc::SYS_seccomp => {
                sandbox::before_filter();
                return None;
            }
            _ => return None,
        }
    };
    Some(outcome)
}

/// The call by the hook that stands for it, if there is one.
///
/// # Safety
/// As the system call of that number asks.
unsafe fn followed(number: c_long, args: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let fd = int(a);
    // SAFETY: the caller's promise: each argument is what the system call has in that place.
    let outcome = unsafe {
        match number {
            libc::SYS_read => receive::read(fd, b as _, size(c)) as c_long,
            libc::SYS_write => send::write(fd, b as _, size(c)) as c_long,
            libc::SYS_readv => receive::readv(fd, b as _, int(c)) as c_long,
            libc::SYS_writev => send::writev(fd, b as _, int(c)) as c_long,
            libc::SYS_recvfrom => receive::recvfrom(fd, b as _, size(c), int(d), e as _, f as _) as c_long,
            libc::SYS_sendto => send::sendto(fd, b as _, size(c), int(d), e as _, uint(f)) as c_long,
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
            libc::SYS_epoll_ctl => epoll::epoll_ctl(fd, int(b), int(c), d as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => epoll::epoll_wait(fd, b as _, int(c), int(d)).into(),
            libc::SYS_epoll_pwait => epoll::epoll_pwait(fd, b as _, int(c), int(d), e as _).into(),
            libc::SYS_epoll_pwait2 => epoll::epoll_pwait2(fd, b as _, int(c), d as _, e as _).into(),
            _ => return None,
        }
    };
    Some(outcome)
}

fn size(argument: c_long) -> usize {
    argument.cast_unsigned().try_into().unwrap_or(usize::MAX)
}

/// The lower half of a register, as the kernel takes an `int`.
fn int(argument: c_long) -> c_int {
    uint(argument).cast_signed()
}

fn uint(argument: c_long) -> c_uint {
    let [b0, b1, b2, b3, ..] = argument.to_le_bytes();
    c_uint::from_le_bytes([b0, b1, b2, b3])
}
