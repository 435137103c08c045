//! What goes with the bytes of a message: names, control data, flags that mean something else than a way to send.

use crate::descriptors::table::Held;
use crate::kernel::{real, user};
use crate::socket::{carrier, inq};
use core::ffi::{c_int, c_void};
use libc::{cmsghdr, msghdr, sockaddr, socklen_t};

/// A message in the form of a 32-bit program: no system call takes it.
const MSG_CMSG_COMPAT: c_int = c_int::MIN;
/// Longest name, bytes.
const NAME_MAX: socklen_t = 128;
/// Whether `sendto` accepts an address of this length; its content is ignored on a connection.
pub fn takes_name(to: *const sockaddr, len: socklen_t) -> bool {
    to.is_null() || len <= NAME_MAX
}

/// The head of a message for `sendmsg` or `recvmsg`.
///
/// # Errors
/// The error number: it is not there, or they do not take its name, the flags or so many buffers.
pub fn head(message: *const msghdr, flags: c_int) -> Result<msghdr, c_int> {
    // SAFETY: any bytes are a head.
    let head = unsafe { user::load(message) }?;
    if flags & MSG_CMSG_COMPAT != 0 || !head.msg_name.is_null() && head.msg_namelen.cast_signed() < 0 {
        return Err(libc::EINVAL);
    }
    if head.msg_iovlen > super::IOV_MAX {
        return Err(libc::EMSGSIZE);
    }
    Ok(head)
}

/// Refuses a call that sends control data, or with `MSG_FASTOPEN`, if the kernel does. It is asked by a message of the same
/// kind without a byte.
///
/// # Errors
/// The kernel's error number.
///
/// # Safety
/// `message` is one in the form of `sendmsg`.
pub unsafe fn refuse(fd: c_int, end: &Held, message: &msghdr, flags: c_int) -> Result<(), c_int> {
    if message.msg_controllen == 0 && flags & libc::MSG_FASTOPEN == 0 {
        return Ok(());
    }
    // The kernel's call would consume a pending error.
    carrier::look_at_kernel(fd, end);
    let empty = msghdr { msg_iov: core::ptr::null_mut(), msg_iovlen: 0, ..*message };
    let flags = flags & libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise.
    if unsafe { real::sendmsg(fd, &raw const empty, flags) } >= 0 {
        return Ok(());
    }
    // Other errors concern the connection: the stream reports them itself.
    let of_arguments = [
        libc::EINVAL,
        libc::EFAULT,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EPERM,
        libc::EISCONN,
        libc::EALREADY,
        libc::EOPNOTSUPP,
    ];
    let errno = real::errno();
    if of_arguments.contains(&errno) { Err(errno) } else { Ok(()) }
}

/// Stores what a receive into `message` returns besides the bytes: no address, and with `TCP_INQ` the number of bytes left.
///
/// # Safety
/// `message` is one in the form of `recvmsg`.
pub unsafe fn store(fd: c_int, end: &Held, message: &mut msghdr, flags: c_int) {
    if !message.msg_name.is_null() {
        message.msg_namelen = 0;
    }
    message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
    let room = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    message.msg_controllen = 0;
    if inq::is_wanted(fd, end) {
        // SAFETY: the caller's promise.
        let (stored, whole) = unsafe { put(message.msg_control, room, inq::unread(end)) };
        message.msg_controllen = stored;
        message.msg_flags |= if whole { 0 } else { libc::MSG_CTRUNC };
    }
}

/// Stores the one control message of a stream in the program's `room` bytes. Returns how many of them it used, and
/// whether the whole message fitted.
///
/// # Safety
/// If it is there, `control` must be the program's for `room` bytes.
unsafe fn put(control: *mut c_void, room: usize, unread: c_int) -> (usize, bool) {
    if room < size_of::<cmsghdr>() {
        return (0, false);
    }
    let data = unread.to_ne_bytes();
    let len = u32::try_from(data.len()).unwrap_or(0);
    // SAFETY: plain arithmetic.
    let (whole, space) = unsafe { (libc::CMSG_LEN(len) as usize, libc::CMSG_SPACE(len) as usize) };
    // SAFETY: all-zero bytes are a valid head.
    let mut head: cmsghdr = unsafe { core::mem::zeroed() };
    head.cmsg_len = whole.min(room) as _;
    head.cmsg_level = libc::IPPROTO_TCP;
    head.cmsg_type = inq::TCP_INQ;
    let copied = whole.min(room) - size_of::<cmsghdr>();
    let place = control.wrapping_byte_add(size_of::<cmsghdr>()).cast::<u8>();
    // SAFETY: no more than there is room for.
    let stored = unsafe {
        user::store(control.cast::<cmsghdr>(), &head).and_then(|()| user::store_all(place, &data[..copied]))
    };
    if stored.is_err() {
        // As in the kernel: it is not reported.
        return (0, true);
    }
    (space.min(room), room >= whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancillary_data_never_exceeds_its_buffer() {
        for room in 0..40 {
            let mut bytes = [0xee_u8; 48];
            // SAFETY: more than that.
            let (used, whole) = unsafe { put(bytes.as_mut_ptr().cast(), room, 7) };
            assert!(used <= room && bytes[room..].iter().all(|&byte| byte == 0xee), "{room}");
            assert_eq!(whole, room >= 20, "{room}");
            assert_eq!(used == 0, room < 16, "{room}");
        }
    }
}
