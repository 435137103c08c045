//! The listeners of this process that the daemon knows of: it announces connections to them.

use crate::daemon::{pending_accepts, process};
use crate::descriptors::table::{self, Entry, Kind};
use crate::kernel::{address, fd};
use crate::socket::deferral;
use core::ffi::c_int;
use crosslane_wire::local::Request;

/// Tells the daemon of a listener.
pub fn register(fd: c_int) {
    let registered = process::with_session(|session| session.listen(fd::borrow(fd)));
    if registered.is_some() {
        pending_accepts::listens();
        table::enter(fd, Kind::Listener, process::sessions());
        deferral::lift(fd);
    }
}

/// A descriptor of a listener is closed: the daemon forgets the listener, if this session registered it and no other
/// descriptor listens there.
pub fn unlisten(fd: c_int) {
    let entry = Entry { kind: Kind::Listener, index: process::sessions() };
    let Some(address) = address::local(fd).filter(|_| table::look(fd) == Some(entry)) else { return };
    let listens = |(other, entry): (c_int, Entry)| {
        other != fd && entry.kind == Kind::Listener && address::local(other) == Some(address)
    };
    if !table::entries().any(listens) {
        process::tell(&Request::Unlisten { address });
    }
}
