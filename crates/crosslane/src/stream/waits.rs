//! Waiting for a stream: for its rings, and for what the kernel and the daemon have to say of it.

use super::{Stream, WaitFor, now_ms};
use crate::error::Error;
use crate::wait::{Patience, Spinner, Waiter, tid, time_left};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::apart;
use crosslane_client::session::SessionError;
use crosslane_shm::arm::Armed;
use crosslane_shm::carrier;
use crosslane_shm::wait::Budget;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::time::{Duration, Instant};

/// Sleep of those who cannot be rung, since another waiter is there first.
const BLIND: Duration = Duration::from_millis(5);

impl Stream {
    /// Waits until there may be something to do. [`Error::TimedOut`] when the patience is over; `done` bytes of the call
    /// had been moved.
    pub(super) fn pause(&self, what: WaitFor, patience: &mut Patience, done: usize) -> Result<(), Error> {
        if self.wait(what, patience.end())? {
            return Ok(());
        }
        Err(Error::TimedOut { remote: self.peer(), after: patience.limit(), done })
    }

    /// As [`Self::pause`]. Also returns when `also()` is true; the far side signals that with the same wakeup as `what`.
    #[inline]
    pub(super) fn pause_until(
        &self,
        what: WaitFor,
        patience: &mut Patience,
        also: impl Fn() -> bool,
    ) -> Result<(), Error> {
        if self.wait_until(what, patience.end(), also)? {
            return Ok(());
        }
        Err(Error::TimedOut { remote: self.peer(), after: patience.limit(), done: 0 })
    }

    /// Waits until there may be something to do, or until `deadline`; `false`: it was over before.
    pub(crate) fn wait(&self, what: WaitFor, deadline: Option<Instant>) -> Result<bool, Error> {
        self.wait_until(what, deadline, || false)
    }

    #[inline]
    fn wait_until(
        &self,
        what: WaitFor,
        deadline: Option<Instant>,
        also: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let ready = || also() || self.is_ready(what);
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        let budget = match what {
            WaitFor::Room | WaitFor::Posted => &self.end.shared().sending.budget,
            WaitFor::Data | WaitFor::Either => &self.end.shared().receiving.budget,
        };
        // What was posted takes longer to fetch than to wake up for.
        let ns = if what == WaitFor::Posted { 0 } else { self.spin_ns(budget) };
        let limit = self.attachment.spin_ns();
        if let Some(_spinner) = Spinner::among(ns)
            && self.end.spin(ns, ready)
        {
            budget.spun(limit);
            return Ok(true);
        }
        let start = Instant::now();
        self.sleep(what, deadline, ready)?;
        budget.slept(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), limit);
        Ok(true)
    }

    /// Whether a waiter must look: there is something to do, or nothing more to wait for.
    #[inline]
    pub(crate) fn is_ready(&self, what: WaitFor) -> bool {
        match what {
            WaitFor::Data => self.is_readable(),
            WaitFor::Room => self.is_writable(),
            WaitFor::Either => self.is_readable() || self.is_writable(),
            WaitFor::Posted => self.has_post_news() || self.is_over(),
        }
    }

    #[inline]
    fn is_readable(&self) -> bool {
        let end = &self.end;
        end.maybe_readable()
            || (end.has_fin() && !end.is_moving())
            || !matches!(end.rx(), Direction::Open | Direction::Handshake)
            || end.shared().status.reset.load(Relaxed) != 0
    }

    #[inline]
    fn is_writable(&self) -> bool {
        self.end.has_room(tid()) || self.is_over()
    }

    /// Whether nothing can be sent any more.
    fn is_over(&self) -> bool {
        let end = &self.end;
        end.dead().is_some()
            || end.gone()
            || end.tx() != Direction::Open
            || end.shared().status.reset.load(Relaxed) != 0
    }

    /// Asks the far side to ring `waiter`; `false` if another one is asked for already. Look once more, then sleep, at first for
    /// as long as [`Self::in_flight_ns`] only.
    pub(crate) fn arm(&self, what: WaitFor, waiter: WaiterId) -> bool {
        let data = matches!(what, WaitFor::Room | WaitFor::Posted) || self.end.want_data(waiter);
        if what == WaitFor::Posted {
            self.want_posted();
        }
        let room = what == WaitFor::Data || self.end.want_room(waiter);
        data && room
    }

    /// How long a request for a wake, and what it is not answered for, may be under way, ns: see `crosslane_shm::arm`.
    pub(crate) fn in_flight_ns(&self) -> u32 {
        self.end.in_flight_ns()
    }

    /// `waiter` is awake again.
    pub(crate) fn disarm(&self, waiter: WaiterId) {
        self.end.unwant_data(waiter);
        self.end.unwant_room(waiter);
    }

    /// The kernel's connection, for those who sleep for many streams.
    pub(crate) fn quiet(&self) -> &OwnedFd {
        &self.quiet
    }

    /// What the kernel's connection can still tell: after the FIN, only a reset.
    fn quiet_events(&self) -> PollFlags {
        let fin = self.end.shared().status.fin.load(Relaxed) != 0;
        if fin { PollFlags::empty() } else { PollFlags::IN | PollFlags::RDHUP }
    }

    /// Looks whether the far program is gone, without waiting.
    pub(crate) fn look_at_kernel(&self) {
        let mut fds = [PollFd::new(&self.quiet, self.quiet_events()), self.attachment.watched()];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&zero)).is_ok_and(|count| count > 0) {
            let [quiet, daemon] = fds.map(|fd| fd.revents());
            self.news(quiet, daemon);
        }
    }

    /// What `poll` said of the kernel's connection and of the session.
    fn news(&self, quiet: PollFlags, daemon: PollFlags) {
        // Without ERR, SO_ERROR would tell what a cut cable did to the quiet connection a while ago (ICMP), which is no error to it.
        if quiet.contains(PollFlags::ERR)
            && let Ok(Err(errno)) = sockopt::socket_error(&self.quiet)
        {
            self.end.break_off(errno.raw_os_error());
        }
        if quiet.intersects(PollFlags::RDHUP | PollFlags::HUP) {
            self.end.note_fin(|| carrier::heard_of(&self.quiet));
        }
        if quiet.contains(PollFlags::IN) {
            self.stray_bytes();
        }
        if daemon.contains(PollFlags::HUP) {
            self.end.break_off(libc::ECONNRESET);
        }
    }

    /// Bytes on the quiet connection have no place in the order of the stream, unless the far end went over to it.
    fn stray_bytes(&self) {
        self.end.refresh(tid());
        let count = rustix::io::ioctl_fionread(&self.quiet).unwrap_or(0);
        if self.end.rx() != Direction::Tcp && count > 0 {
            self.end.give_up(&format!("{count} stray bytes on the quiet connection"));
        }
    }

    fn sleep(&self, what: WaitFor, deadline: Option<Instant>, ready: impl Fn() -> bool) -> Result<(), Error> {
        self.end.shared().counters.sleeps.fetch_add(1, Relaxed);
        let waiter = match self.attachment.waiter() {
            Ok(waiter) => waiter,
            // The daemon is frozen; the stream need not be.
            Err(Error::Session(SessionError::Late)) => {
                return self.doze(None, sooner(deadline, BLIND)).map(drop);
            }
            Err(error) => {
                if matches!(error, Error::DaemonGone) {
                    // What comes next is told so too, also what need not wait.
                    self.end.break_off(libc::ECONNRESET);
                }
                return Err(error);
            }
        };
        let armed = self.arm(what, waiter.id());
        let outcome =
            self.sleep_armed(&waiter, if armed { deadline } else { sooner(deadline, BLIND) }, ready);
        self.disarm(waiter.id());
        self.attachment.give(waiter);
        outcome
    }

    /// Sleeps if there is nothing; while the request may be under way only until it is not, and looks again.
    fn sleep_armed(
        &self,
        waiter: &Waiter,
        deadline: Option<Instant>,
        ready: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let mut requests = Armed::NOTHING;
        requests.arm(self.in_flight_ns(), Instant::now);
        loop {
            let next = requests.next_sleep(Instant::now);
            if ready() {
                return Ok(());
            }
            let until = next.bound().map_or(deadline, |bound| sooner(deadline, bound));
            let heard = self.doze(Some(waiter), until)?;
            if heard || !next.is_bounded() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(());
            }
        }
    }

    /// Sleeps until something is heard, or until `deadline`; whether something was.
    fn doze(&self, waiter: Option<&Waiter>, deadline: Option<Instant>) -> Result<bool, Error> {
        let quiet = PollFd::new(&self.quiet, self.quiet_events());
        let daemon = self.attachment.watched();
        let mut fds = [quiet, daemon.clone(), waiter.map_or(daemon, Waiter::poll)];
        match rustix::event::poll(&mut fds, time_left(deadline).as_ref()) {
            Ok(count) => {
                let [quiet, daemon, _] = fds.map(|fd| fd.revents());
                self.news(quiet, daemon);
                Ok(count > 0)
            }
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// How long to spin now: not at all if that would keep the far side from running.
    pub(super) fn spin_ns(&self, budget: &Budget) -> u32 {
        apart::spin_ns(&self.end, budget.ns(self.attachment.spin_ns()), true)
    }

    /// A program that asks without waiting sees that the far side died as soon as the kernel knows.
    pub(super) fn look_each_tick(&self) {
        let now = u32::try_from(now_ms() & 0xffff_ffff).unwrap_or(0);
        let looked = &self.end.shared().status.looked;
        if looked.load(Relaxed) != now {
            looked.store(now, Relaxed);
            self.look_at_kernel();
        }
    }
}

fn sooner(deadline: Option<Instant>, cap: Duration) -> Option<Instant> {
    let cap = Instant::now() + cap;
    Some(deadline.map_or(cap, |deadline| deadline.min(cap)))
}
