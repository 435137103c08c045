//! Bits of events, and of what is asked for.

use core::ffi::c_int;

/// Bits of epoll as they come in events.
pub const fn bit(bits: c_int) -> u32 {
    bits.unsigned_abs()
}
pub const IN: u32 = bit(libc::EPOLLIN | libc::EPOLLRDNORM);
pub const OUT: u32 = bit(libc::EPOLLOUT | libc::EPOLLWRNORM);
pub const PRI: u32 = bit(libc::EPOLLPRI);
pub const ERR: u32 = bit(libc::EPOLLERR);
pub const HUP: u32 = bit(libc::EPOLLHUP);
pub const RDHUP: u32 = bit(libc::EPOLLRDHUP);
pub const ET: u32 = 1 << 31;
pub const ONESHOT: u32 = bit(libc::EPOLLONESHOT);
/// Bits that are reported without being asked for.
pub const ALWAYS: u32 = ERR | HUP;
/// What the kernel is asked of a carrier socket: an edge for FIN, RST and stray bytes.
pub const QUIET: u32 = bit(libc::EPOLLIN) | RDHUP | ET;
