//! `epoll_create`, `epoll_ctl`, `epoll_wait` and their relatives.

use super::hook;
use crate::descriptors::internal_fds;
use crate::kernel::{real, user};
use crate::waiting::epoll::{self, Call, Events};
use crate::waiting::limit::Timeout;
use core::ffi::c_int;
use libc::{epoll_event, sigset_t, timespec};

hook! {
    /// `epoll_create(2)`.
    fn epoll_create(size: c_int) -> c_int |kernel| {
        epoll::created(kernel())
    }

    /// `epoll_create1(2)`.
    fn epoll_create1(flags: c_int) -> c_int |kernel| {
        epoll::created(kernel())
    }

    /// `epoll_ctl(2)`.
    fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int |kernel| {
        if internal_fds::is(fd) || internal_fds::is(epfd) {
            return real::fail(libc::EBADF);
        }
        // SAFETY: any bytes are an event.
        let wanted = || unsafe { user::load(event) };
        epoll::control(epfd, operation, fd, wanted, kernel)
    }

    /// `epoll_wait(2)`.
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
        // SAFETY: the program's promise to `epoll_wait`.
        unsafe { epoll_pwait(epfd, events, max, timeout, core::ptr::null()) }
    }

    /// `epoll_pwait(2)`.
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int |kernel| {
        // SAFETY: the program's promise to `epoll_pwait`.
        let Some(target) = (unsafe { Events::new(events, max) }) else { return epoll::nowhere(epfd, kernel) };
        let call = Call { epfd, mask, fine: false };
        epoll::wait(call, target, || Some(Timeout::of_ms(timeout)), kernel)
    }

    /// `epoll_pwait2(2)`.
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int |kernel| {
        // SAFETY: the program's promise to `epoll_pwait2`.
        let Some(target) = (unsafe { Events::new(events, max) }) else { return epoll::nowhere(epfd, kernel) };
        let call = Call { epfd, mask, fine: true };
        let time = || {
            // SAFETY: any bytes are a time.
            let time = if timeout.is_null() { None } else { Some(unsafe { user::load(timeout) }.ok()?) };
            Timeout::of_timespec(time.as_ref())
        };
        epoll::wait(call, target, time, kernel)
    }
}
