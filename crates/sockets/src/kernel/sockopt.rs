//! What the kernel's socket behind a descriptor is, and its options.

use crate::kernel::{address, real};
use core::ffi::{c_int, c_void};
use libc::socklen_t;

/// An option whose value is one int.
pub fn number(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = socklen_t::try_from(size_of::<c_int>()).ok()?;
    // SAFETY: an int and its length.
    let outcome = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (outcome == 0).then_some(value)
}

/// Sets an option whose value is one int; whether the kernel accepted it.
pub fn set_number(fd: c_int, level: c_int, name: c_int, value: c_int) -> bool {
    let Ok(len) = socklen_t::try_from(size_of::<c_int>()) else { return false };
    // SAFETY: an int and its length.
    unsafe { real::setsockopt(fd, level, name, (&raw const value).cast(), len) == 0 }
}

/// Reads an option of `SOL_SOCKET` into `value`; whether the kernel knew it.
pub fn get<T>(fd: c_int, name: c_int, value: &mut T) -> bool {
    let mut len = socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let value: *mut c_void = core::ptr::from_mut(value).cast();
    // SAFETY: a value and its length.
    unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, value, &raw mut len) == 0 }
}

/// The kernel's name of a socket, whichever descriptor it goes by.
pub fn cookie(fd: c_int) -> Option<u64> {
    let (mut cookie, mut len) = (0_u64, socklen_t::try_from(size_of::<u64>()).ok()?);
    let value = (&raw mut cookie).cast();
    // SAFETY: a number and its length.
    let outcome = unsafe { real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, &raw mut len) };
    (outcome == 0).then_some(cookie)
}

/// The flags that `fcntl(F_GETFL)` gives.
pub fn status_flags(fd: c_int) -> c_int {
    // SAFETY: F_GETFL takes no argument.
    unsafe { real::fcntl(fd, libc::F_GETFL, core::ptr::null_mut()) }
}

/// Whether `fd` is a TCP socket.
pub fn is_tcp(fd: c_int) -> bool {
    number(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// Whether `fd` listens.
pub fn is_listening(fd: c_int) -> bool {
    number(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1)
}

/// Whether `fd` is a TCP socket that is neither connected nor listening.
pub fn is_fresh_tcp(fd: c_int) -> bool {
    is_tcp(fd) && !is_listening(fd) && address::remote(fd).is_none()
}
