//! Confinement: what a program gives up for good (paths, descriptors, system calls), and what we must have by then.
//!
//! A server that handles strangers (`sshd`) leaves the file system, forbids itself new descriptors, and restricts its
//! system calls. A process that holds streams or listens gets its session and a wake event before the first of these,
//! since it could not afterwards.

use super::hook;
use crate::daemon::{pool, waiters};
use crate::descriptors::table::{self, Kind};
use crate::kernel::{fault, program, user};
use crate::socket::listener;
use crate::waiting::{epoll, fd_limit};
use core::ffi::{c_char, c_int, c_ulong};
use libc::{__rlimit_resource_t, rlimit};

/// A limit of descriptors below this leaves no room for ours.
const FEW: u64 = 64;
/// A program that sets a limit below this may exhaust it.
const LOW: u64 = 1024;

hook! {
    /// `prctl(2)`: prepares for a system call filter.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int |kernel| {
        if option == libc::PR_SET_SECCOMP {
            before_filter();
        }
        kernel()
    }

    /// `chroot(2)`: afterwards the daemon's socket has no path.
    fn chroot(path: *const c_char) -> c_int |kernel| {
        if needs_daemon() {
            waiters::before_sandbox();
        }
        kernel()
    }

    /// `setrlimit(2)`: afterwards perhaps no descriptor can be opened.
    fn setrlimit(resource: __rlimit_resource_t, limit: *const rlimit) -> c_int |kernel| {
        // SAFETY: the program's promise to `setrlimit`.
        unsafe { before_limit(resource, limit) };
        kernel()
    }

    /// `setrlimit64(2)`: the same where words have 64 bits.
    fn setrlimit64(resource: __rlimit_resource_t, limit: *const rlimit) -> c_int {
        // SAFETY: the program's promise to `setrlimit64`; both names are one function in the C library.
        unsafe { setrlimit(resource, limit) }
    }
}

/// Whether this process has descriptors for which it may have to ask its daemon.
fn needs_daemon() -> bool {
    let asks = |kind| matches!(kind, Kind::Stream | Kind::Listener | Kind::Unknown);
    program::is_owner() && table::entries().any(|(_, entry)| asks(entry.kind))
}

/// Called before a system call filter. A listener behind it cannot ask whether a connection was announced, so none is
/// announced to it any more.
pub fn before_filter() {
    if program::is_owner() {
        pool::confine();
    }
    if !needs_daemon() {
        return;
    }
    fault::catch();
    waiters::before_sandbox();
    for (fd, entry) in table::entries() {
        if entry.kind == Kind::Listener {
            listener::unlisten(fd);
            table::leave(fd);
        }
    }
    program::set_sandboxed();
}

/// # Safety
/// `limit` is null or valid for loads.
unsafe fn before_limit(resource: __rlimit_resource_t, limit: *const rlimit) {
    // SAFETY: any bytes are a limit.
    let below = |most: u64| unsafe { user::load(limit) }.is_ok_and(|limit| limit.rlim_cur < most);
    if resource != libc::RLIMIT_NOFILE || !program::is_owner() {
        return;
    }
    if below(LOW) {
        epoll::keep_spare();
    }
    if below(FEW) && needs_daemon() {
        fd_limit::prepare();
        waiters::before_sandbox();
    }
}
