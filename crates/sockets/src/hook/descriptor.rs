//! `close`, `dup`, `fcntl`, `ioctl`, `fork` and their relatives.

use super::closing::{self, closing};
use super::hook;
use crate::calls::options;
use crate::descriptors::internal_fds;
use crate::descriptors::table::{self, Entry, Kind};
use crate::kernel::{program, real, user};
use crate::socket::end_of_life;
use crate::waiting::epoll;
use core::ffi::{c_int, c_uint, c_ulong, c_void};

hook! {
    /// `close(2)`.
    fn close(fd: c_int) -> c_int {
        closing::close(fd)
    }

    /// `close_range(2)`: our own descriptors stay open.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if first > last {
            return real::fail(libc::EINVAL);
        }
        let inside = |fd: c_int| (first..=last).contains(&fd.unsigned_abs());
        const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
        if flags & CLOEXEC == 0 {
            for (fd, entry) in table::entries().filter(|&(fd, _)| inside(fd)) {
                if entry.kind != Kind::Own {
                    closing(fd);
                }
            }
        }
        around_own(first, last, flags)
    }

    /// `closefrom(3)`.
    fn closefrom(first: c_int) -> () {
        // SAFETY: plain numbers.
        unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) };
    }

    /// `dup(2)`.
    fn dup(fd: c_int) -> c_int |kernel| {
        copied(fd, kernel)
    }

    /// `dup2(2)`, over a live socket too.
    fn dup2(fd: c_int, to: c_int) -> c_int |kernel| {
        replaced(fd, to, kernel)
    }

    /// `dup3(2)`.
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int |kernel| {
        if flags & !libc::O_CLOEXEC != 0 { kernel() } else { replaced(fd, to, kernel) }
    }

    /// `fcntl(2)`; the third argument travels in a register whatever its type.
    fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int |kernel| {
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, kernel),
            libc::F_SETFL => {
                let outcome = kernel();
                if outcome == 0 && let Some(end) = table::stream(fd) {
                    let [b0, b1, b2, b3, ..] = (argument as usize).to_le_bytes();
                    options::flags_changed(&end, c_int::from_le_bytes([b0, b1, b2, b3]));
                }
                outcome
            }
            _ => kernel(),
        }
    }

    /// `fcntl` as programs with large files have it.
    fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
        // SAFETY: the program's promise.
        unsafe { fcntl(fd, command, argument) }
    }

    /// `ioctl(2)`.
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int |kernel| {
        let Some(end) = table::stream(fd) else { return kernel() };
        match options::control(&end, request) {
            // SAFETY: the program's promise to `ioctl` with this request.
            Some(Ok(value)) => unsafe { user::store(argument.cast(), &value) }.map_or_else(real::fail, |()| 0),
            Some(Err(errno)) => real::fail(errno),
            _ => {
                let outcome = kernel();
                if outcome == 0 && request == libc::FIONBIO && !argument.is_null() {
                    // SAFETY: the kernel has just read it.
                    options::set_nonblock(&end, unsafe { argument.cast::<c_int>().read_unaligned() } != 0);
                }
                outcome
            }
        }
    }
}

/// Calls `close_range` on the parts of the range between our own descriptors.
fn around_own(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = first;
    for fd in
        internal_fds::all().into_iter().map(c_int::unsigned_abs).filter(|fd| (first..=last).contains(fd))
    {
        if from < fd {
            // SAFETY: plain numbers.
            let outcome = unsafe { real::close_range(from, fd - 1, flags) };
            if outcome != 0 {
                return outcome;
            }
        }
        from = fd + 1;
    }
    if from > last {
        return 0;
    }
    // SAFETY: plain numbers.
    unsafe { real::close_range(from, last, flags) }
}

fn copied(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if internal_fds::is(fd) {
        return real::fail(libc::EBADF);
    }
    let copy = kernel();
    if copy >= 0 {
        same(fd, copy);
    }
    copy
}

fn replaced(fd: c_int, to: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if fd == to {
        return kernel();
    }
    if internal_fds::is(to) || internal_fds::is(fd) {
        return real::fail(libc::EBADF);
    }
    if is_same_stream(fd, to) {
        // One descriptor of it goes and one comes; the entry of the number, in epoll sets too, stays.
        return kernel();
    }
    if table::look(to).is_some() && is_open(fd) && is_below_limit(to) {
        closing(to);
    }
    copied(fd, kernel)
}

fn is_same_stream(fd: c_int, other: c_int) -> bool {
    table::look(fd).is_some_and(|entry| entry.kind == Kind::Stream && table::look(other) == Some(entry))
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument.
    unsafe { real::fcntl(fd, libc::F_GETFD, core::ptr::null_mut()) >= 0 }
}

/// The limit of descriptors may be below one that is open; then nothing can be put there.
fn is_below_limit(fd: c_int) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.is_none_or(|limit| u64::from(fd.unsigned_abs()) < limit)
}

/// `copy` refers to what `fd` refers to.
fn same(fd: c_int, copy: c_int) {
    if !program::is_owner() {
        // In a child of `vfork`: it may be meant for what the child executes.
        if let Some(end) = table::stream(fd) {
            end_of_life::lent(&end);
            epoll::shared();
        }
        return;
    }
    match table::look(fd) {
        Some(Entry { kind: Kind::Stream, index }) => {
            if let Some(end) = table::at(index) {
                end_of_life::referred(&end);
                table::hold(&end);
                table::enter(copy, Kind::Stream, index);
                epoll::upgraded(copy);
                super::stdio::became_stream(copy);
            }
        }
        Some(Entry { kind: Kind::Epoll, .. }) => epoll::duplicated(fd, copy),
        Some(Entry { kind, index }) => {
            table::enter(copy, kind, index);
            if table::choice(fd) != 0 {
                table::choose(copy, table::choice(fd));
            }
        }
        None => {}
    }
}
