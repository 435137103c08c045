//! What the kernel's socket behind a descriptor is, and its options.

use crate::kernel::{address, real};
use core::ffi::{c_int, c_void};
use crosslane_shm::carrier;
use libc::{sockaddr, socklen_t};
use std::time::Duration;

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
fn get<T: Copy>(fd: c_int, name: c_int, value: &mut T) -> bool {
    let mut len = socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let value: *mut c_void = core::ptr::from_mut(value).cast();
    // SAFETY: a value and its length.
    unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, value, &raw mut len) == 0 }
}

/// The kernel's name of a socket, whichever descriptor it goes by.
pub fn cookie(fd: c_int) -> Option<u64> {
    long(fd, libc::SO_COOKIE)
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

/// `SO_LINGER`.
pub fn linger(fd: c_int) -> Option<libc::linger> {
    let mut value = libc::linger { l_onoff: 0, l_linger: 0 };
    get(fd, libc::SO_LINGER, &mut value).then_some(value)
}

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub fn time(fd: c_int, name: c_int) -> Option<libc::timeval> {
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    get(fd, name, &mut value).then_some(value)
}

/// Makes the kernel's close send RST.
pub fn reset_on_close(fd: c_int) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = socklen_t::try_from(size_of::<libc::linger>()).unwrap_or(0);
    // SAFETY: a `linger` of its own length.
    unsafe { real::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), len) };
}

/// Bytes that the kernel has for a `read`.
pub fn unread(fd: c_int) -> Option<c_int> {
    let mut count: c_int = 0;
    // SAFETY: FIONREAD stores one int.
    let known = unsafe { real::ioctl(fd, libc::FIONREAD, (&raw mut count).cast()) } == 0;
    known.then_some(count)
}

/// Resets a connection but keeps the socket, as if the far end had sent the reset: the program learns by its first
/// call.
pub fn reset(fd: c_int) {
    // SAFETY: all-zero bytes are a valid address of no family.
    let nobody: sockaddr = unsafe { core::mem::zeroed() };
    let len = socklen_t::try_from(size_of::<sockaddr>()).unwrap_or(0);
    // SAFETY: an address of its own length.
    unsafe { real::connect(fd, &raw const nobody, len) };
}

/// Sends one byte, without waiting; by `write` if no other call may be made.
pub fn send_byte(fd: c_int, only_write: bool) {
    let byte = [0_u8; 1];
    if only_write {
        // SAFETY: one byte.
        unsafe { real::write(fd, byte.as_ptr().cast(), 1) };
    } else {
        // SAFETY: as above.
        unsafe { real::send(fd, byte.as_ptr().cast(), 1, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    }
}

/// The kernel's number of the network namespace of a socket.
pub fn namespace(fd: c_int) -> Option<u64> {
    long(fd, libc::SO_NETNS_COOKIE)
}

/// An option of `SOL_SOCKET` of 64 bits.
fn long(fd: c_int, name: c_int) -> Option<u64> {
    let (mut value, mut len) = (0_u64, socklen_t::try_from(size_of::<u64>()).ok()?);
    let place = (&raw mut value).cast();
    // SAFETY: a number and its length.
    let outcome = unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, place, &raw mut len) };
    (outcome == 0 && len == 8).then_some(value)
}

/// How long ago the last packet of a TCP connection came, at least.
pub fn heard_before(fd: c_int) -> Duration {
    carrier::heard_before(|info, len| {
        let value = core::ptr::from_mut(info).cast();
        // SAFETY: `len` bytes that may be written.
        unsafe { real::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, len) == 0 }
    })
}
