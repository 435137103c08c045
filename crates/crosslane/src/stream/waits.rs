//! Waits of one stream: for its rings, and for events of the kernel's connection and of the daemon.

use super::Stream;
use crate::error::Error;
use crate::wait::{Patience, Waiter, most_spinners, tid, time_left};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::apart;
use crosslane_client::link::clock::now_ms;
use crosslane_client::link::{Sleeper, WaitFor, kernel, wait};
use crosslane_client::session::SessionError;
use crosslane_shm::carrier;
use crosslane_shm::wait::Budget;
use crosslane_wire::WaiterId;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::time::Instant;

impl Stream {
    /// Waits until there may be something to do. [`Error::TimedOut`] when the limit is over; `done` is the number of
    /// bytes that the call had moved.
    pub(super) fn pause(&self, what: WaitFor, patience: &mut Patience, done: usize) -> Result<(), Error> {
        if self.wait(what, patience.end())? {
            return Ok(());
        }
        Err(Error::TimedOut { remote: self.peer(), after: patience.limit(), done })
    }

    /// As [`Self::pause`]. Also returns when `also()` is true, for which the far side uses the same wakeup as for `what`.
    #[inline]
    pub(super) fn pause_until(
        &self,
        what: WaitFor,
        patience: &mut Patience,
        also: impl Fn() -> bool,
    ) -> Result<(), Error> {
        if wait(&Waiting(self), &self.end, what, patience.end(), also)? {
            return Ok(());
        }
        Err(Error::TimedOut { remote: self.peer(), after: patience.limit(), done: 0 })
    }

    /// Waits until there may be something to do; `false` if `deadline` passed before.
    pub(crate) fn wait(&self, what: WaitFor, deadline: Option<Instant>) -> Result<bool, Error> {
        wait(&Waiting(self), &self.end, what, deadline, || false)
    }

    /// Whether a waiting thread must look: there is something to do, or nothing more to wait for.
    #[inline]
    pub(crate) fn is_ready(&self, what: WaitFor) -> bool {
        self.end.is_ready(tid(), what)
    }

    /// The kernel's connection, for callers that sleep for many streams.
    pub(crate) fn carrier(&self) -> &OwnedFd {
        &self.carrier
    }

    /// Checks, without waiting, whether the far program has ended.
    pub(crate) fn look_at_kernel(&self) {
        let mut fds = [PollFd::new(&self.carrier, kernel::events(&self.end)), self.attachment.watched()];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&zero)).is_ok_and(|count| count > 0) {
            let [carrier, daemon] = fds.map(|fd| fd.revents());
            self.news(carrier, daemon);
        }
    }

    /// Handles what `poll` returned for the kernel's connection and for the session.
    fn news(&self, carrier: PollFlags, daemon: PollFlags) {
        kernel::news(&self.end, tid(), self.carrier.as_fd(), carrier, || carrier::heard_of(&self.carrier));
        if daemon.contains(PollFlags::HUP) {
            self.end.break_off(libc::ECONNRESET);
        }
    }

    /// How long to spin now, ns: 0 if a spin would keep the far side from running.
    pub(super) fn spin_ns(&self, budget: &Budget) -> u32 {
        apart::spin_ns(&self.end, budget.ns(self.attachment.spin_ns()), true)
    }

    /// Checks the kernel's connection once in each tick, so that a program that only polls sees the far program's death.
    pub(super) fn look_each_tick(&self) {
        let now = u32::try_from(now_ms() & 0xffff_ffff).unwrap_or(0);
        let looked = &self.end.shared().status.looked;
        if looked.load(Relaxed) != now {
            looked.store(now, Relaxed);
            self.look_at_kernel();
        }
    }
}

/// The [`Sleeper`] of native streams: an ordinary thread that no signal interrupts.
struct Waiting<'a>(&'a Stream);

impl Sleeper for Waiting<'_> {
    type Error = Error;
    type Waiter = Waiter;

    #[inline]
    fn tid(&self) -> u32 {
        tid()
    }

    fn spin_limit(&self) -> u32 {
        self.0.attachment.spin_ns()
    }

    fn spinners(&self) -> u32 {
        most_spinners()
    }

    fn may_move(&self) -> bool {
        true
    }

    fn take(&self) -> Result<Option<Waiter>, Error> {
        match self.0.attachment.waiter() {
            Ok(waiter) => Ok(Some(waiter)),
            // The daemon is frozen; the stream may still work.
            Err(Error::Session(SessionError::Late)) => Ok(None),
            Err(error) => {
                if matches!(error, Error::DaemonGone) {
                    // All later calls fail with this error too, also those that need not wait.
                    self.0.end.break_off(libc::ECONNRESET);
                }
                Err(error)
            }
        }
    }

    fn id(waiter: &Waiter) -> WaiterId {
        waiter.id()
    }

    fn give(&self, waiter: Waiter, _: WaitFor) {
        self.0.attachment.give(waiter);
    }

    fn block(&self, waiter: Option<&Waiter>, until: Option<Instant>) -> Result<bool, Error> {
        let carrier = PollFd::new(&self.0.carrier, kernel::events(&self.0.end));
        let daemon = self.0.attachment.watched();
        let mut fds = [carrier, daemon.clone(), waiter.map_or(daemon, Waiter::poll)];
        match rustix::event::poll(&mut fds, time_left(until).as_ref()) {
            Ok(count) => {
                let [carrier, daemon, _] = fds.map(|fd| fd.revents());
                self.0.news(carrier, daemon);
                Ok(count > 0)
            }
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}
