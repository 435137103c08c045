//! What this process shares with the daemon's engine; made when the first stream wants it, anew with each session.

use crate::daemon::process;
use crate::descriptors::internal_fds;
use crate::kernel::published::Published;
use crate::kernel::{fd, program};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crosslane_client::offload::Offload;

/// The one of the session `SESSION`; none if that could not be.
static PRESENT: Published<Offload> = Published::new();
/// The session in which it was tried last, and 1; 0 in none.
static SESSION: AtomicU32 = AtomicU32::new(0);

/// The present one, if the daemon takes transfers of this process.
pub fn present() -> Option<&'static Offload> {
    // A strict filter may forbid what is needed to wait.
    if program::sandboxed() {
        return None;
    }
    if SESSION.load(Acquire) != process::sessions().wrapping_add(1) {
        attach();
    }
    PRESENT.get()
}

#[cold]
fn attach() {
    if process::is_reentered() {
        return;
    }
    let keep = |descriptor| fd::borrow(internal_fds::hide(descriptor));
    let attached = process::with_session(|session| {
        // Of several threads, one consents: the session is locked.
        if SESSION.load(Acquire) == process::sessions().wrapping_add(1) {
            return Ok(());
        }
        let attached = Offload::attach(session, keep);
        PRESENT.set(attached.ok().map(|attached| &*Box::leak(Box::new(attached))));
        SESSION.store(process::sessions().wrapping_add(1), Release);
        Ok(())
    });
    if attached.is_none() {
        PRESENT.set(None);
    }
}

/// The session goes on by another connection: the engine has forgotten this process.
pub fn renew() {
    SESSION.store(0, Release);
}

/// In the child of `fork`: the parent has consented, this process has not.
pub fn after_fork() {
    PRESENT.set(None);
    SESSION.store(0, Relaxed);
}
