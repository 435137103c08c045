//! What wakes sleepers: the inner set with the wake event, the carrier sockets and the daemon's session, inside the
//! program's set.

use crate::daemon::waiters::Waiter;
use crate::daemon::watch::{self, Watched};
use crate::descriptors::internal_fds;
use crate::kernel::polling;
use crate::kernel::thread::tid;
use core::ffi::c_int;
use crosslane_shm::lock::Locked;
use libc::epoll_event;
use rustix::event::epoll::CreateFlags;
use rustix::fd::RawFd;

/// Key of the wake event in the inner set.
pub(super) const WAKE: u64 = u64::MAX;
/// In the key of the connection with the daemon, besides its number. Keys of interests are smaller.
pub(super) const DAEMON: u64 = 1 << 63;

/// What wakes sleepers.
#[derive(Clone, Copy)]
pub struct WakeupSet {
    pub(super) inner: RawFd,
    pub(super) waiter: Option<Waiter>,
    pub(super) daemon: Option<Watched>,
}

impl WakeupSet {
    /// Adds the daemon's session to what wakes. The end of a session is reported once.
    pub(super) fn watch_daemon(&mut self) {
        let present = watch::present();
        if let Some(daemon) = present.filter(|_| present != self.daemon) {
            let key = DAEMON | u64::from(daemon.connection);
            let event = epoll_event { events: libc::EPOLLONESHOT.unsigned_abs(), u64: key };
            // If another thread closes the session meanwhile the kernel says so.
            let _ = polling::control(self.inner, libc::EPOLL_CTL_ADD, daemon.fd, event);
            self.daemon = present;
        }
    }

    /// Closes the inner set and gives the wake event away.
    pub fn end(self, give: impl FnMut(Waiter)) {
        internal_fds::close(self.inner);
        self.waiter.into_iter().for_each(give);
    }

    /// Leaves the program's set `epfd`, to serve another one if no stream is left in it.
    pub fn leave(self, epfd: c_int, clean: bool) {
        let inner = self.inner;
        let out = || polling::remove(epfd, inner).is_ok();
        if !clean
            || !out()
            || with_spare(|spare| {
                spare.len() < MAX_SPARE && {
                    spare.push(self);
                    true
                }
            }) != Some(true)
        {
            self.end(Waiter::give);
        }
    }

    /// An inner set, which may have been another one's.
    pub(super) fn take() -> Result<Self, c_int> {
        if let Some(wakeup_set) = with_spare(Vec::pop).flatten() {
            return Ok(wakeup_set);
        }
        Self::create()
    }

    fn create() -> Result<Self, c_int> {
        let inner =
            rustix::event::epoll::create(CreateFlags::CLOEXEC).map_err(rustix::io::Errno::raw_os_error)?;
        Ok(Self { inner: internal_fds::hide(inner), waiter: None, daemon: None })
    }
}

/// Wakeup sets of sets that are gone.
static SPARE: Locked<Vec<WakeupSet>> = Locked::new(Vec::new());
/// Most that are kept.
const MAX_SPARE: usize = 8;

fn with_spare<T>(work: impl FnOnce(&mut Vec<WakeupSet>) -> T) -> Option<T> {
    SPARE.with(tid(), work).ok()
}

/// Keeps an inner set for the first program's set that gets a stream, which may find no descriptor free any more.
pub fn keep_spare() {
    with_spare(|spare| {
        if spare.is_empty() {
            spare.extend(WakeupSet::create());
        }
    });
}

/// In the child of `fork`: those are the parent's.
pub fn forked_child() {
    SPARE.reset();
    for wakeup_set in with_spare(core::mem::take).unwrap_or_default() {
        wakeup_set.end(Waiter::close);
    }
}
