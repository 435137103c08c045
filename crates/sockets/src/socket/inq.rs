//! `TCP_INQ` of a stream: each message comes with the number of bytes left to read.

use crate::descriptors::table::Held;
use crate::kernel::{program, sockopt, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

/// `TCP_INQ`, and its control message.
pub const TCP_INQ: c_int = 36;

/// It is not known whether `TCP_INQ` is set.
const UNKNOWN: u32 = 0;
const IS_OFF: u32 = 1;
const IS_ON: u32 = 2;

/// The program set `TCP_INQ`.
pub fn changed(end: &Held, name: c_int) {
    if name == TCP_INQ {
        end.shared().status.unread_wanted.store(UNKNOWN, Relaxed);
    }
}

/// Whether the program wants the number at each receive.
pub fn is_wanted(fd: c_int, end: &Held) -> bool {
    let wanted = &end.shared().status.unread_wanted;
    if wanted.load(Relaxed) == UNKNOWN && !program::sandboxed() {
        let on = sockopt::number(fd, libc::IPPROTO_TCP, TCP_INQ).is_some_and(|on| on != 0);
        wanted.store(if on { IS_ON } else { IS_OFF }, Relaxed);
    }
    wanted.load(Relaxed) == IS_ON
}

/// Bytes that are left. The end of file, once it has come, counts as one, and is never read.
pub fn unread(end: &Held) -> c_int {
    let left = c_int::try_from(end.unread(thread::tid()).unwrap_or(0)).unwrap_or(c_int::MAX);
    left.saturating_add((end.has_end() || end.has_fin()).into())
}
