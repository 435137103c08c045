//! `poll` and `ppoll`, with the program's array.

use super::hook;
use crate::descriptors::table;
use crate::kernel::{real, user};
use crate::waiting::limit::Timeout;
use crate::waiting::poll::{FEW, is_ours, run};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

hook! {
    /// `poll(2)`.
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int |kernel| {
        ours(fds, count, |asked| Some(run(asked, Timeout::of_ms(timeout), core::ptr::null()))).unwrap_or_else(kernel)
    }

    /// `ppoll(2)`.
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int |kernel| {
        // SAFETY: the C library has read the time.
        let time = || Timeout::of_timespec(unsafe { timeout.as_ref() });
        ours(fds, count, |asked| time().map(|time| run(asked, time, mask))).unwrap_or_else(kernel)
    }

    /// `poll` as `_FORTIFY_SOURCE` has it.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        check(count, room);
        // SAFETY: the program's promise.
        unsafe { poll(fds, count, timeout) }
    }

    /// `ppoll` as `_FORTIFY_SOURCE` has it.
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int {
        check(count, room);
        // SAFETY: the program's promise.
        unsafe { ppoll(fds, count, timeout, mask) }
    }
}

/// Runs `wait` on a copy of the program's array and stores the result, if the kernel alone cannot answer for it.
/// `None`: the kernel can, or `wait` leaves it to the kernel.
fn ours(
    fds: *mut pollfd,
    count: nfds_t,
    wait: impl FnOnce(&mut [pollfd]) -> Option<Result<usize, c_int>>,
) -> Option<c_int> {
    let count = usize::try_from(count).ok().filter(|&count| (1..=table::MAX_FDS).contains(&count))?;
    if !table::met_any() {
        return None;
    }
    let (mut few, mut many) = ([const { MaybeUninit::<pollfd>::uninit() }; FEW], Vec::new());
    let asked = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, MaybeUninit::uninit());
        &mut many[..]
    };
    // SAFETY: any bytes are a `pollfd`.
    let asked = unsafe { user::load_all(fds, asked) }.ok()?;
    if !asked.iter().any(|asked| is_ours(asked.fd)) {
        return None;
    }
    let outcome = wait(asked)?.and_then(|found| store(fds, asked).map(|()| found));
    Some(match outcome {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => real::fail(errno),
    })
}

/// Stores what was found in the program's array.
fn store(fds: *mut pollfd, found: &[pollfd]) -> Result<(), c_int> {
    const REVENTS: usize = core::mem::offset_of!(pollfd, revents);
    found.iter().enumerate().try_for_each(|(at, found)| {
        let place = fds.wrapping_add(at).wrapping_byte_add(REVENTS).cast();
        // SAFETY: the program's array.
        unsafe { user::store(place, &found.revents) }
    })
}

/// Aborts, as the C library does, if the array is shorter than its count.
fn check(count: nfds_t, room: size_t) {
    if usize::try_from(count).is_ok_and(|count| room / size_of::<pollfd>() < count) {
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    }
}
