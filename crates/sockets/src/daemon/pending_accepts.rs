//! Whether a connection that was just accepted may have been announced by the daemon: if not, nobody need be asked.

use crate::daemon::process;
use crate::kernel::program;
use crate::kernel::published::Published;
use core::sync::atomic::{AtomicU32, Ordering};
use crosslane_wire::local::STATUS_ANNOUNCED;
use rustix::io::Errno;

/// Word of the status page that counts announced connections, once this process has a listener.
static ANNOUNCED: Published<AtomicU32> = Published::new();

/// This session has a listener: from now on its status page counts announced connections.
pub fn listens() {
    let word = process::on_session(|link| Ok(link.status_page.word(STATUS_ANNOUNCED))).flatten();
    if word.is_some() {
        ANNOUNCED.set(word);
    }
}

/// Whether a connection that was just accepted may have been announced. If the daemon is gone, nobody knows.
pub fn is_announced() -> bool {
    ANNOUNCED.get().is_none_or(|word| word.load(Ordering::Acquire) != 0)
        || !(program::sandboxed() || daemon_lives())
}

/// Whether the session's socket is still connected; costs one system call.
fn daemon_lives() -> bool {
    process::on_session(|link| {
        let mut byte = [0];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(link.session().socket(), &mut byte[..], flags) {
            Ok((0, _)) => Err(Errno::CONNRESET.into()),
            _ => Ok(()),
        }
    })
    .is_some()
}
