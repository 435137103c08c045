//! What this process shares with the daemon's engine; made when the first stream wants it, anew with each session.

use crate::daemon::process;
use crate::descriptors::internal_fds;
use crate::kernel::program;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use crosslane_client::offload::Offload;
use rustix::fd::BorrowedFd;

/// The one of the session `SESSION`; null if that could not be.
static PRESENT: AtomicPtr<Offload> = AtomicPtr::new(core::ptr::null_mut());
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
    // SAFETY: null or a leaked box, never freed.
    unsafe { PRESENT.load(Acquire).as_ref() }
}

#[cold]
fn attach() {
    if process::is_reentered() {
        return;
    }
    // SAFETY: our own descriptors from here on, which stay open.
    let keep = |fd| unsafe { BorrowedFd::borrow_raw(internal_fds::hide(fd)) };
    let attached = process::with_session(|session, _| {
        // Of several threads, one consents: the session is locked.
        if SESSION.load(Acquire) == process::sessions().wrapping_add(1) {
            return Ok(());
        }
        let attached = Offload::attach(session, keep);
        let present = attached.map_or(core::ptr::null_mut(), |attached| Box::into_raw(Box::new(attached)));
        PRESENT.store(present, Release);
        SESSION.store(process::sessions().wrapping_add(1), Release);
        Ok(())
    });
    if attached.is_none() {
        PRESENT.store(core::ptr::null_mut(), Release);
    }
}

/// The session goes on by another connection: the engine has forgotten this process.
pub fn renew() {
    SESSION.store(0, Release);
}

/// In the child of `fork`: the parent has consented, this process has not.
pub fn after_fork() {
    PRESENT.store(core::ptr::null_mut(), Relaxed);
    SESSION.store(0, Relaxed);
}
