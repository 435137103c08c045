//! What the program closes.

use crate::descriptors::table::{self, Entry, Kind};
use crate::kernel::{program, real, sockopt};
use crate::socket::{deferral, end_of_life, listener};
use crate::waiting::epoll;
use core::ffi::c_int;

/// `close(2)` by the program; our own descriptors are not there for it.
pub fn close(fd: c_int) -> c_int {
    if let Some(entry) = table::look(fd) {
        if entry.kind == Kind::Own {
            return real::fail(libc::EBADF);
        }
        closing(fd);
    }
    // SAFETY: plain number.
    unsafe { real::close(fd) }
}

/// The program closes `fd`, which has an entry; a child of `vfork` leaves the tables, which are its parent's, alone.
pub fn closing(fd: c_int) {
    if !program::is_owner() {
        return;
    }
    match table::look(fd).map(|entry| entry.kind) {
        Some(Kind::Listener) => {
            listener::unlisten(fd);
            deferral::closed(fd);
        }
        Some(Kind::Epoll | Kind::Stream) => epoll::closed(fd),
        _ => {}
    }
    if let Some(Entry { kind: Kind::Stream, index }) = table::leave(fd)
        && let Some(end) = table::at(index)
        && !end_of_life::outlived(&end, fd)
        && end_of_life::closing(&end)
    {
        sockopt::reset_on_close(fd);
    }
}
