//! The local port of an announced connection, which must be known before the SYN.
//!
//! While there are enough ports the kernel chooses, by a `bind` to port 0, as `connect` would: the port conflicts with
//! nothing, and is given back if the connection fails. But a bound port serves no other destination, nor a plain
//! `connect` of this host, during its minute in TIME-WAIT. So `SO_REUSEADDR` is set once the connection is made
//! ([`share`]), which TIME-WAIT remembers. When ports are scarce they are chosen here ([`choose`]), at random, from the
//! half of the range that the kernel's `connect` tries last: one that no connection between the same four addresses
//! has. `getsockopt` returns the option as the program set it.

mod scarce;
mod sockets;

use crate::descriptors::table::Held;
use crate::kernel::{address, fd, program, sockopt};
use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_wire::local::Plain;
use libc::{SO_REUSEADDR, SOL_SOCKET};
use rustix::io::Errno;
use scarce::Range;
use sockets::{Sockets, source};

/// Ports that are tried when they are scarce.
const TRIES: usize = 32;

/// The port of a socket.
#[must_use]
pub struct Claim {
    fd: c_int,
    /// Whether we set `SO_REUSEADDR` for it.
    shared: bool,
}

/// Gives an unbound socket a port. Its address stays open, so that the kernel still chooses the route. `bind` itself
/// says whether there is a port already: after a refused connection `getsockname` returns a stale one.
///
/// # Errors
/// `NoPort`: all that were tried are in use.
pub fn claim(fd: c_int, remote: SocketAddr) -> Result<Claim, Plain> {
    let local = address::local(fd).ok_or(Plain::System)?;
    if !scarce::are_ports() {
        match bind(fd, local, 0) {
            Ok(()) => return Ok(Claim { fd, shared: false }),
            Err(Errno::ADDRINUSE) => {}
            Err(_) => return Err(Plain::NoPort),
        }
    }
    choose(fd, local, remote)
}

impl Claim {
    /// The connection will not be ours: the socket is as the program made it, but for its port.
    pub fn give_back(self) {
        if self.shared {
            sockopt::set_number(self.fd, SOL_SOCKET, SO_REUSEADDR, 0);
        }
    }

    /// The connection is announced.
    pub fn keep(self, end: &Held) {
        end.shared().status.port_shared.store(u32::from(self.shared), Relaxed);
    }
}

/// The connection of `end` is made: lets its port serve other destinations when it is over.
pub fn share(fd: c_int, end: &Held) {
    if sockopt::number(fd, SOL_SOCKET, SO_REUSEADDR) == Some(0)
        && sockopt::set_number(fd, SOL_SOCKET, SO_REUSEADDR, 1)
    {
        end.shared().status.port_shared.store(1, Relaxed);
    }
}

/// Whether `SO_REUSEADDR` is set for [`share`] only: the program sees it unset.
pub fn is_shared(end: &Held) -> bool {
    end.shared().status.port_shared.load(Relaxed) != 0
}

/// The program set the option itself.
pub fn chosen_by_program(end: &Held) {
    end.shared().status.port_shared.store(0, Relaxed);
}

/// `fd` is no stream any more, but may be bound and connected again.
pub fn left(fd: c_int, end: &Held) {
    if is_shared(end) {
        sockopt::set_number(fd, SOL_SOCKET, SO_REUSEADDR, 0);
    }
}

/// Binds to the address that the socket has, if any. A socket that has a port keeps it.
fn bind(fd: c_int, local: SocketAddr, port: u16) -> Result<(), Errno> {
    match rustix::net::bind(fd::borrow(fd), &SocketAddr::new(local.ip(), port)) {
        Err(Errno::INVAL) if local.port() != 0 => Ok(()),
        bound => bound,
    }
}

/// A port for a connection to `remote` where ports are scarce.
fn choose(fd: c_int, local: SocketAddr, remote: SocketAddr) -> Result<Claim, Plain> {
    if program::sandboxed() {
        return Err(Plain::NoPort);
    }
    let near = near_address(local, remote).ok_or(Plain::NoPort)?;
    let (sockets, range) = Sockets::open().ok().zip(Range::read()).ok_or(Plain::NoPort)?;
    let shared = sockopt::number(fd, SOL_SOCKET, SO_REUSEADDR) == Some(0)
        && sockopt::set_number(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    let claim = Claim { fd, shared };
    for port in range.candidates().take(TRIES) {
        if sockets.has(SocketAddr::new(near, port), remote) != Some(false) {
            continue;
        }
        match bind(fd, local, port) {
            Ok(()) => return Ok(claim),
            Err(Errno::ADDRINUSE) => {}
            Err(_) => break,
        }
    }
    claim.give_back();
    Err(Plain::NoPort)
}

/// The address that a connection to `remote` comes from.
fn near_address(local: SocketAddr, remote: SocketAddr) -> Option<IpAddr> {
    if local.ip().is_unspecified() { source(remote) } else { Some(local.ip()) }
}
