//! Options of a connecting socket by which its kernel holds back the last packet of the handshake until there is data.
//!
//! `TCP_QUICKACK` 0 and `TCP_DEFER_ACCEPT` (on a socket that connects) say that data will follow at once and carry the
//! acknowledgement. A stream's data never comes by TCP, so the far side would `accept` 200 ms later (`HAProxy`'s health
//! checks set the first one). Both are lifted during `connect` and reported as the program set them; afterwards the second
//! one is set again, while the first one ends with the handshake anyway. The end's word `connecting` holds what was lifted.

use crate::descriptors::table::Held;
use crate::kernel::sockopt;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

/// In the word `connecting`: the connection is being made.
const UNDER_WAY: u32 = 1;
/// `TCP_QUICKACK` was 0.
const NO_QUICK_ACK: u32 = 2;
/// Behind these bits: `TCP_DEFER_ACCEPT`, seconds.
const SECONDS: u32 = 2;

/// The options of a socket that were lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifted(u32);

/// Before the kernel's `connect` of `fd`, which becomes a stream.
pub fn lift(fd: c_int) -> Lifted {
    let (mut lifted, tcp) = (0, libc::IPPROTO_TCP);
    if sockopt::number(fd, tcp, libc::TCP_QUICKACK) == Some(0) {
        sockopt::set_number(fd, tcp, libc::TCP_QUICKACK, 1);
        lifted |= NO_QUICK_ACK;
    }
    if let Some(seconds @ 1..) = sockopt::number(fd, tcp, libc::TCP_DEFER_ACCEPT)
        && sockopt::set_number(fd, tcp, libc::TCP_DEFER_ACCEPT, 0)
    {
        lifted |= seconds.unsigned_abs() << SECONDS;
    }
    Lifted(lifted)
}

impl Lifted {
    /// The connection of `fd` was made, or could not be.
    pub fn restore(self, fd: c_int) {
        let seconds = c_int::try_from(self.0 >> SECONDS).unwrap_or(0);
        if seconds != 0 {
            sockopt::set_number(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds);
        }
    }
}

/// The connection of `fd` is still being made.
pub fn under_way(end: &Held, lifted: Lifted) {
    end.shared().status.connecting.store(UNDER_WAY | lifted.0, Relaxed);
}

/// The connection of `fd` was made.
pub fn done(fd: c_int, end: &Held) {
    Lifted(end.shared().status.connecting.swap(0, Relaxed) & !UNDER_WAY).restore(fd);
}

/// Called after the kernel accepted an option of TCP for `fd`: treats it as set before `connect`.
pub fn changed(fd: c_int, end: &Held, name: c_int) {
    let lasting = match name {
        libc::TCP_QUICKACK => !NO_QUICK_ACK,
        libc::TCP_DEFER_ACCEPT => UNDER_WAY | NO_QUICK_ACK,
        _ => return,
    };
    let connecting = &end.shared().status.connecting;
    let before = connecting.load(Relaxed);
    if before != 0 {
        connecting.store(before & lasting | lift(fd).0, Relaxed);
    }
}

/// The value that the program has set; `None` if the kernel itself has it.
pub fn programs_value(end: &Held, name: c_int) -> Option<c_int> {
    let lifted = end.shared().status.connecting.load(Relaxed);
    let seconds = c_int::try_from(lifted >> SECONDS).unwrap_or(0);
    match name {
        libc::TCP_QUICKACK if lifted & NO_QUICK_ACK != 0 => Some(0),
        libc::TCP_DEFER_ACCEPT if seconds != 0 => Some(seconds),
        _ => None,
    }
}
