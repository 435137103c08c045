//! What the kernel's socket behind a descriptor is, and its options.

use crate::kernel::{address, real};
use core::ffi::c_int;
use crosslane_shm::carrier;
use libc::{sockaddr, socklen_t};
use std::time::Duration;

/// An option whose value is one int.
pub fn number(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    get(fd, level, name, 0)
}

/// Sets an option whose value is one int; whether the kernel accepted it.
pub fn set_number(fd: c_int, level: c_int, name: c_int, value: c_int) -> bool {
    set(fd, level, name, &value)
}

/// An option whose value is a `T`, in the place of `value`; `None` if the kernel does not know it.
fn get<T: Copy>(fd: c_int, level: c_int, name: c_int, mut value: T) -> Option<T> {
    let size = socklen_t::try_from(size_of::<T>()).ok()?;
    let mut len = size;
    // SAFETY: a value and its length.
    let outcome = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (outcome == 0 && len == size).then_some(value)
}

/// Sets an option; whether the kernel accepted it.
fn set<T: Copy>(fd: c_int, level: c_int, name: c_int, value: &T) -> bool {
    let Ok(len) = socklen_t::try_from(size_of::<T>()) else { return false };
    // SAFETY: a value and its length.
    unsafe { real::setsockopt(fd, level, name, core::ptr::from_ref(value).cast(), len) == 0 }
}

/// The kernel's name of a socket, whichever descriptor it goes by.
pub fn cookie(fd: c_int) -> Option<u64> {
    get(fd, libc::SOL_SOCKET, libc::SO_COOKIE, 0)
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
    get(fd, libc::SOL_SOCKET, libc::SO_LINGER, libc::linger { l_onoff: 0, l_linger: 0 })
}

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub fn time(fd: c_int, name: c_int) -> Option<libc::timeval> {
    get(fd, libc::SOL_SOCKET, name, libc::timeval { tv_sec: 0, tv_usec: 0 })
}

/// Makes the kernel's close send RST.
pub fn reset_on_close(fd: c_int) {
    set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
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
    get(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, 0)
}

/// How long ago the last packet of a TCP connection came, at least.
pub fn heard_before(fd: c_int) -> Duration {
    carrier::heard_before(|info, len| {
        let value = core::ptr::from_mut(info).cast();
        // SAFETY: `len` bytes that may be written.
        unsafe { real::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, len) == 0 }
    })
}
