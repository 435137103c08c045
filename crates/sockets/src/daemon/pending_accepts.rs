//! Whether a connection that was just accepted may have been announced by the daemon: if not, nobody need be asked.

use crate::daemon::process;
use crate::kernel::program;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use crosslane_wire::local::STATUS_ANNOUNCED;
use rustix::io::Errno;

/// Word of the status page that counts announced connections, once this process has a listener.
static ANNOUNCED: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// This session has a listener: from now on its status page counts announced connections.
pub fn listens() {
    let word = process::with_session(|_, link| Ok(link.status_page.word(STATUS_ANNOUNCED))).flatten();
    if let Some(word) = word {
        ANNOUNCED.store(core::ptr::from_ref(word).cast_mut(), Ordering::Release);
    }
}

/// Whether a connection that was just accepted may have been announced. If the daemon is gone, nobody knows.
pub fn is_announced() -> bool {
    // SAFETY: set to a word of a status page, which stays mapped.
    let word = unsafe { ANNOUNCED.load(Ordering::Acquire).as_ref() };
    word.is_none_or(|word| word.load(Ordering::Acquire) != 0) || !(program::sandboxed() || daemon_lives())
}

/// Whether the session's socket is still connected; costs one system call.
fn daemon_lives() -> bool {
    process::on_session(|session, _| {
        let mut byte = [0];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(session.socket(), &mut byte[..], flags) {
            Ok((0, _)) => Err(Errno::CONNRESET.into()),
            _ => Ok(()),
        }
    })
    .is_some()
}
