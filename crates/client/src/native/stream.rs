//! A native stream.

use super::bell::Bells;
use super::wait::{Limit, Patience, Spinner, Waiter, tid, time_left};
use super::{Error, Fabric};
use crate::ready::same_processor;
use crate::{End, Failure, Moved, SessionError};
use core::sync::atomic::Ordering::{Relaxed, Release};
use crosslane_shm::region::Part;
use crosslane_shm::wait::{Budget, spin};
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use crosslane_wire::local::Request;
use crosslane_wire::record::Kind;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Sleep of those who cannot be rung, since another waiter is there first.
const BLIND: Duration = Duration::from_millis(5);

/// What is waited for; an error or the end counts as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Data,
    Room,
    Either,
}

/// An ordered stream of bytes to another program. Closed when dropped: what was sent is still delivered.
///
/// One thread may send while another receives. Threads that send at the same time do not mix the bytes of one call that
/// found room at once, but may mix those of longer ones.
#[derive(Debug)]
pub struct Stream {
    fabric: Fabric,
    end: End,
    /// The kernel's connection, which lies quiet: it tells when the far program is gone.
    quiet: OwnedFd,
    bells: Bells,
    receive_limit: Limit,
    send_limit: Limit,
}

impl Stream {
    pub(super) fn new(fabric: Fabric, end: End, quiet: OwnedFd) -> Self {
        let shared = end.shared();
        shared.sending.budget.reset(fabric.spin_ns());
        shared.receiving.budget.reset(fabric.spin_ns());
        shared.status.born.store(now_ms(), Relaxed);
        let (receive_limit, send_limit) = (Limit::none(), Limit::none());
        Self { fabric, end, quiet, bells: Bells::default(), receive_limit, send_limit }
    }

    /// Makes the kernel's connection, which was announced.
    pub(super) fn connect(&self, remote: SocketAddr, patience: &mut Patience) -> Result<(), Error> {
        rustix::io::ioctl_fionbio(&self.quiet, true)?;
        match rustix::net::connect(&self.quiet, &remote) {
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
        loop {
            let mut fds = [PollFd::new(&self.quiet, PollFlags::OUT), self.fabric.watched()];
            match rustix::event::poll(&mut fds, time_left(patience.end()).as_ref()) {
                Ok(0) => {
                    return Err(Error::TimedOut { remote, after: patience.limit(), done: 0 });
                }
                Ok(_) if fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) => {
                    return Err(SessionError::Lost(Errno::CONNRESET).into());
                }
                Ok(_) => return Ok(sockopt::socket_error(&self.quiet)??),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The connection did not come about, or not as a stream.
    pub(super) fn give_up(&self) {
        let (circuit, token) = (self.end.circuit(), self.end.token());
        self.fabric.tell(&Request::Close { circuit, token, abort: true });
    }

    pub(super) fn end(&self) -> &End {
        &self.end
    }

    /// The far end's address.
    pub fn peer(&self) -> SocketAddr {
        let tuple = self.end.tuple();
        if self.end.shared().status.client.load(Relaxed) != 0 { tuple.server } else { tuple.client }
    }

    /// How long [`Self::receive`] and [`Self::receive_all`] wait without a byte coming; `None`, as it is at first: for ever.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) {
        self.receive_limit.set(limit);
    }

    /// How long [`Self::send`] and [`Self::finish`] wait without the far end making room; `None`, as it is at first: for
    /// ever.
    pub fn set_send_timeout(&self, limit: Option<Duration>) {
        self.send_limit.set(limit);
    }

    /// Sends all of `bytes`; waits while the far end has no room.
    ///
    /// # Errors
    /// The stream is over; some of the bytes may have been sent. [`Error::TimedOut`] says how many were.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        self.send_by(bytes, &mut self.send_limit.patience())
    }

    pub(crate) fn send_by(&self, bytes: &[u8], patience: &mut Patience) -> Result<(), Error> {
        let (buffers, mut done) = ([IoSlice::new(bytes)], 0);
        while done < bytes.len() {
            match self.try_send(&buffers, done)? {
                0 => self.pause(For::Room, patience, done)?,
                count => {
                    done += count;
                    patience.moved();
                }
            }
        }
        Ok(())
    }

    /// Sends as much of `buffers`, from their byte `skip` on, as there is room for now, and returns how many bytes that
    /// was.
    ///
    /// # Errors
    /// The stream is over.
    pub fn try_send(&self, buffers: &[IoSlice<'_>], skip: usize) -> Result<usize, Error> {
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut done = 0;
        loop {
            match self.end.try_send(tid(), buffers, skip + done) {
                Ok(moved) => {
                    self.ring(moved.wake);
                    done += moved.bytes;
                }
                Err(Failure::WouldBlock | Failure::Reentered) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(failure) => return Err(self.failed(failure)),
            }
            if skip + done >= total {
                return Ok(done);
            }
            if !self.end.can_be_pressed() {
                self.look_each_tick();
                return Ok(done);
            }
            if !self.reader_comes() {
                self.end.press();
            }
        }
    }

    /// Receives what is there, at least one byte unless `buffer` is empty; waits for it. 0 is the end: the far end sends
    /// no more.
    ///
    /// # Errors
    /// The stream is over, or [`Error::TimedOut`].
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut patience = self.receive_limit.patience();
        loop {
            if let Some(count) = self.try_receive(buffer)? {
                return Ok(count);
            }
            self.pause(For::Data, &mut patience, 0)?;
        }
    }

    /// Receives exactly as many bytes as `buffer` has.
    ///
    /// # Errors
    /// The stream is over; [`Error::Closed`] if it ended before that; [`Error::TimedOut`] says how many bytes came.
    pub fn receive_all(&self, buffer: &mut [u8]) -> Result<(), Error> {
        self.receive_all_by(buffer, &mut self.receive_limit.patience())
    }

    pub(crate) fn receive_all_by(&self, buffer: &mut [u8], patience: &mut Patience) -> Result<(), Error> {
        let mut done = 0;
        while done < buffer.len() {
            match self.try_receive(&mut buffer[done..])? {
                Some(0) => return Err(Error::Closed),
                Some(count) => {
                    done += count;
                    patience.moved();
                }
                None => self.pause(For::Data, patience, done)?,
            }
        }
        Ok(())
    }

    /// Receives what is there now; `None` if nothing is. 0 bytes are the end.
    ///
    /// # Errors
    /// The stream is over.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        self.received(self.end.try_receive(tid(), &mut [IoSliceMut::new(buffer)]))
    }

    /// The same into memory that this program opened to others; `part` is not empty.
    pub(crate) fn try_receive_into(&self, part: Part<'_>) -> Result<Option<usize>, Error> {
        self.received(self.end.try_receive_into(tid(), part))
    }

    #[inline]
    fn received(&self, outcome: Result<Moved, Failure>) -> Result<Option<usize>, Error> {
        match outcome {
            Ok(moved) => {
                self.ring(moved.wake);
                Ok(Some(moved.bytes))
            }
            Err(Failure::WouldBlock | Failure::Reentered) => {
                self.look_each_tick();
                Ok(None)
            }
            Err(Failure::Ended) => Ok(Some(0)),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    /// Sends no more: the far end gets what was sent, and then the end.
    ///
    /// # Errors
    /// The stream is over already, or [`Error::TimedOut`].
    pub fn finish(&self) -> Result<(), Error> {
        let mut patience = self.send_limit.patience();
        loop {
            match self.end.turn(tid(), Kind::DisConn) {
                Ok(moved) => {
                    self.ring(moved.wake);
                    return Ok(());
                }
                Err(Failure::WouldBlock | Failure::Reentered) => self.pause(For::Room, &mut patience, 0)?,
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// Waits until there may be something to do. [`Error::TimedOut`] when the patience is over; `done` bytes of the call
    /// had been moved.
    fn pause(&self, what: For, patience: &mut Patience, done: usize) -> Result<(), Error> {
        if self.wait(what, patience.end())? {
            return Ok(());
        }
        Err(Error::TimedOut { remote: self.peer(), after: patience.limit(), done })
    }

    /// Waits until there may be something to do, or until `deadline`; `false`: it was over before.
    pub(crate) fn wait(&self, what: For, deadline: Option<Instant>) -> Result<bool, Error> {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        let budget = match what {
            For::Room => &self.end.shared().sending.budget,
            For::Data | For::Either => &self.end.shared().receiving.budget,
        };
        let (limit, ns) = (self.fabric.spin_ns(), self.spin_ns(budget));
        if let Some(_spinner) = Spinner::among(ns)
            && spin(ns, || self.is_ready(what))
        {
            budget.spun(limit);
            return Ok(true);
        }
        let start = Instant::now();
        self.sleep(what, deadline)?;
        budget.slept(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), limit);
        Ok(true)
    }

    /// Whether a waiter must look: there is something to do, or nothing more to wait for.
    #[inline]
    pub(crate) fn is_ready(&self, what: For) -> bool {
        (what != For::Room && self.is_readable()) || (what != For::Data && self.is_writable())
    }

    #[inline]
    fn is_readable(&self) -> bool {
        let end = &self.end;
        end.stirred()
            || (end.has_fin() && !end.is_moving())
            || !matches!(end.rx(), Direction::Open | Direction::Greeting)
            || end.shared().status.reset.load(Relaxed) != 0
    }

    #[inline]
    fn is_writable(&self) -> bool {
        let end = &self.end;
        end.has_room(tid())
            || end.dead().is_some()
            || end.gone()
            || end.tx() != Direction::Open
            || end.shared().status.reset.load(Relaxed) != 0
    }

    /// Asks the far side to ring `waiter`; `false` if another one is asked for already. Look once more, then sleep.
    pub(crate) fn arm(&self, what: For, waiter: WaiterId) -> bool {
        let data = what == For::Room || self.end.want_data(waiter);
        let room = what == For::Data || self.end.want_room(waiter);
        data && room
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
        let mut fds = [PollFd::new(&self.quiet, self.quiet_events()), self.fabric.watched()];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&zero)).is_ok_and(|count| count > 0) {
            let [quiet, daemon] = fds.map(|fd| fd.revents());
            self.news(quiet, daemon);
        }
    }

    /// What `poll` said of the kernel's connection and of the session.
    fn news(&self, quiet: PollFlags, daemon: PollFlags) {
        let status = &self.end.shared().status;
        if quiet.intersects(PollFlags::ERR | PollFlags::HUP)
            && let Ok(Err(errno)) = sockopt::socket_error(&self.quiet)
        {
            self.end.break_off(errno.raw_os_error());
        }
        if quiet.intersects(PollFlags::RDHUP | PollFlags::HUP) {
            status.fin.store(1, Release);
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
            self.violated(&format!("{count} stray bytes on the quiet connection"));
            self.end.break_off(libc::ECONNRESET);
        }
    }

    fn sleep(&self, what: For, deadline: Option<Instant>) -> Result<(), Error> {
        self.end.shared().counters.sleeps.fetch_add(1, Relaxed);
        let waiter = self.fabric.waiter()?;
        let armed = self.arm(what, waiter.id());
        let outcome = if self.is_ready(what) {
            Ok(())
        } else {
            self.doze(&waiter, if armed { deadline } else { sooner(deadline, BLIND) })
        };
        self.disarm(waiter.id());
        self.fabric.give(waiter);
        outcome
    }

    fn doze(&self, waiter: &Waiter, deadline: Option<Instant>) -> Result<(), Error> {
        let quiet = PollFd::new(&self.quiet, self.quiet_events());
        let mut fds = [quiet, self.fabric.watched(), waiter.poll()];
        match rustix::event::poll(&mut fds, time_left(deadline).as_ref()) {
            Ok(_) => {
                let [quiet, daemon, _] = fds.map(|fd| fd.revents());
                self.news(quiet, daemon);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// How long to spin now: not at all if that would keep the far side from running.
    fn spin_ns(&self, budget: &Budget) -> u32 {
        let ns = budget.ns(self.fabric.spin_ns());
        if ns > 0 && same_processor(&self.end) { 0 } else { ns }
    }

    /// The ring is as long as stays in the caches, and full: whether a reader makes room within the time of a spin.
    fn reader_comes(&self) -> bool {
        let ns = self.spin_ns(&self.end.shared().sending.budget);
        Spinner::among(ns).is_some_and(|_spinner| spin(ns, || self.end.has_credit()))
    }

    /// A program that asks without waiting sees that the far side died as soon as the kernel knows.
    fn look_each_tick(&self) {
        let now = u32::try_from(now_ms() & 0xffff_ffff).unwrap_or(0);
        let looked = &self.end.shared().status.looked;
        if looked.load(Relaxed) != now {
            looked.store(now, Relaxed);
            self.look_at_kernel();
        }
    }

    #[inline]
    fn ring(&self, waiter: Option<WaiterId>) {
        if let Some(waiter) = waiter {
            self.bells.ring(self.fabric, &self.end, waiter);
        }
    }

    #[cold]
    fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Ended => Error::Closed,
            Failure::Tcp => Error::Downgraded,
            Failure::Violation(_) | Failure::OutOfOrder(_) | Failure::Discontinued { .. } => {
                self.violated(&failure.to_string());
                Error::Violated(failure.to_string())
            }
            _ => {
                let errno = self.end.shared().status.error.load(Relaxed);
                let errno = i32::try_from(errno).unwrap_or(0);
                Error::Broken(Errno::from_raw_os_error(if errno == 0 { libc::ECONNRESET } else { errno }))
            }
        }
    }

    /// The far end broke the protocol: the daemon logs it and ends the circuit.
    pub(crate) fn violated(&self, text: &str) {
        let (circuit, token) = (self.end.circuit(), self.end.token());
        self.fabric.tell(&Request::Violated { circuit, token, text: text.to_owned() });
    }
}

impl Drop for Stream {
    /// Bytes that nobody read are answered by a reset, as the kernel has it.
    fn drop(&mut self) {
        let unread = self.end.rx() == Direction::Open && self.end.unread(tid()).is_ok_and(|bytes| bytes > 0);
        if unread {
            let _ = sockopt::set_socket_linger(&self.quiet, Some(Duration::ZERO));
        } else if let Ok(moved) = self.end.turn(tid(), Kind::DisConn) {
            self.ring(moved.wake);
        }
        self.end.leave();
        let (circuit, token) = (self.end.circuit(), self.end.token());
        self.fabric.tell(&Request::Close { circuit, token, abort: false });
        self.fabric.free(self.end.slot());
    }
}

fn sooner(deadline: Option<Instant>, cap: Duration) -> Option<Instant> {
    let cap = Instant::now() + cap;
    Some(deadline.map_or(cap, |deadline| deadline.min(cap)))
}

/// Milliseconds of the monotonic clock, to the tick.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}
