//! Messages of the library to its user.

use crate::kernel::{program, real, sockopt};
use rustix::fd::AsFd;

/// One line on standard error, unless that is a connection: a daemon's descriptor 2 may be anything.
pub fn say(what: &str) {
    let errno = real::errno();
    let line = format!("crosslane: {}: {what}\n", program::name());
    if !sockopt::is_tcp(2) {
        let _ = rustix::io::write(std::io::stderr().as_fd(), line.as_bytes());
    }
    real::set_errno(errno);
}
