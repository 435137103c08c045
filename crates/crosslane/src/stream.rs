//! A native stream: an ordered stream of bytes to another program, which may be one under `crosslane run`.
//!
//! Calls wait for ever unless a limit is set ([`Stream::set_receive_timeout`], [`Stream::set_send_timeout`]).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use crosslane::fabric::Fabric;
//! use crosslane::stream::{Buffer, Stream};
//! let stream: Stream = Fabric::open()?.connect("10.86.0.2:7000".parse()?)?;
//! stream.send(b"hello")?;
//! let mut answer = [0; 100];
//! let count = stream.receive(&mut answer)?;
//!
//! // The far program copies out of the buffer directly, where it can map it.
//! stream.post(Buffer::new(1 << 20)?, 1 << 20)?;
//! let free = stream.reclaim()?;
//! # Ok(())
//! # }
//! ```

mod waits;
mod zcopy;

pub use crate::error::Error;
pub use crosslane_client::buffers::{Buffer, OpenBuffer};
pub use crosslane_client::end::chosen::Statistics;

use crate::attachment::Attachment;
use crate::wait::{Limit, Patience, most_spinners, tid, time_left};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::link::Linked;
use crosslane_client::link::wakers::{self, Wakers};
use crosslane_client::link::{Advance, Receive, Send, Spinner, WaitFor};
use crosslane_client::offload::Allowed;
use crosslane_client::{End, Failure, Transferred};
use crosslane_shm::shared_bytes::Part;
use crosslane_shm::state::Chooser;
use crosslane_shm::wake::Waker;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zcopy::Posts;

/// Most wakers that a stream keeps; the far side has one or two at a time.
const WAKERS: usize = 4;

/// An ordered stream of bytes to another program. Closed when dropped: bytes that were sent are still delivered.
///
/// One thread may send while another receives. If several threads send at the same time, the bytes of a call that finds
/// room at once stay together; those of a call that must wait may be interleaved with others.
#[derive(Debug)]
pub struct Stream {
    attachment: &'static Attachment,
    end: End,
    /// The kernel's idle TCP connection: it shows when the far program has ended.
    carrier: OwnedFd,
    wakers: Mutex<Wakers<Arc<Waker>>>,
    receive_limit: Limit,
    send_limit: Limit,
    posts: Posts,
}

impl Stream {
    pub(crate) fn new(attachment: &'static Attachment, end: End, carrier: OwnedFd) -> Self {
        let (receive_limit, send_limit) = (Limit::none(), Limit::none());
        let (wakers, posts) = (Mutex::new(Wakers::new(WAKERS)), Posts::default());
        Self { attachment, end, carrier, wakers, receive_limit, send_limit, posts }
    }

    /// Connects the kernel's TCP connection, which the daemon has announced.
    pub(crate) fn connect(&self, remote: SocketAddr, patience: &mut Patience) -> Result<(), Error> {
        rustix::io::ioctl_fionbio(&self.carrier, true)?;
        match rustix::net::connect(&self.carrier, &remote) {
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
        loop {
            let mut fds = [PollFd::new(&self.carrier, PollFlags::OUT), self.attachment.watched()];
            match rustix::event::poll(&mut fds, time_left(patience.end()).as_ref()) {
                Ok(0) => {
                    return Err(Error::TimedOut { remote, after: patience.limit(), done: 0 });
                }
                Ok(_) if !fds[1].revents().is_empty() => {
                    return Err(Error::DaemonGone);
                }
                Ok(_) => return Ok(sockopt::socket_error(&self.carrier)??),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Closes the end: there is no connection, or it is not a stream.
    pub(crate) fn give_up(&self) {
        self.attachment.tell(&self.end.closing(true));
    }

    /// Bytes moved so far, and by which way.
    pub fn statistics(&self) -> Statistics {
        self.end.statistics()
    }

    pub(crate) fn attachment(&self) -> &'static Attachment {
        self.attachment
    }

    /// Whether posted buffers must be sent before any other bytes.
    pub(crate) fn has_posts(&self) -> bool {
        !self.posts.is_empty()
    }

    pub(crate) fn end(&self) -> &End {
        &self.end
    }

    /// Whether the stream's bytes alternate between two circuits.
    pub fn is_striped(&self) -> bool {
        self.end.twin().is_some()
    }

    /// The far end's address.
    pub fn peer(&self) -> SocketAddr {
        self.end.peer()
    }

    /// This end's own address.
    pub fn local(&self) -> SocketAddr {
        self.end.local()
    }

    /// How long [`Self::receive`] and [`Self::receive_all`] wait without progress; `None`, the default: for ever.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) {
        self.receive_limit.set(limit);
    }

    /// How long [`Self::send`] and [`Self::finish`] wait without room from the far end; `None`, the default: for ever.
    pub fn set_send_timeout(&self, limit: Option<Duration>) {
        self.send_limit.set(limit);
    }

    /// Whether the daemon's engine copies for waiting sends and receives, if they are large enough; off by default.
    pub fn set_offload(&self, on: bool) {
        self.end.set_offload(on, Chooser::Program);
    }

    /// Sends all of `bytes`; waits while the far end's ring is full.
    ///
    /// # Errors
    /// The stream is over; some of the bytes may have been sent. [`Error::TimedOut`] says how many were.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        self.send_by(bytes, &mut self.send_limit.patience())
    }

    pub(crate) fn send_by(&self, bytes: &[u8], patience: &mut Patience) -> Result<(), Error> {
        self.await_posts(0, patience)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let buffers = [IoSlice::new(bytes)];
        let mut send = Send::new(&buffers, 0);
        loop {
            let before = send.done();
            let advance = {
                let _allowed = Allowed::begin();
                self.advance_send(&mut send)?
            };
            if advance == Advance::Done {
                return Ok(());
            }
            match send.done() {
                done if done == before => self.pause(WaitFor::Room, patience, done)?,
                _ => patience.moved(),
            }
        }
    }

    /// Sends as many bytes of `buffers`, from their byte `skip` on, as there is room for now; returns their number.
    ///
    /// # Errors
    /// The stream is over.
    pub fn try_send(&self, buffers: &[IoSlice<'_>], skip: usize) -> Result<usize, Error> {
        let mut send = Send::new(buffers, skip);
        self.advance_send(&mut send)?;
        Ok(send.done() - skip)
    }

    fn send_now(&self, buffers: &[IoSlice<'_>], skip: usize) -> Result<usize, Error> {
        let mut send = Send::new(buffers, skip);
        self.advance_sending(&mut send)?;
        Ok(send.done() - skip)
    }

    /// As [`Self::try_send`], for an operation that is continued; sends posted buffers first.
    pub(crate) fn advance_send(&self, send: &mut Send<'_>) -> Result<Advance, Error> {
        if !self.posts.is_empty() {
            self.advance_posts(false)?;
            if !self.posts.is_empty() {
                return Ok(Advance::Pending(WaitFor::Room));
            }
        }
        self.advance_sending(send)
    }

    /// Sends as many bytes as there is room for; requests a longer ring if the reader takes nothing.
    fn advance_sending(&self, send: &mut Send<'_>) -> Result<Advance, Error> {
        let before = send.done();
        loop {
            let advance = match send.try_advance(&self.end, tid(), |waiter| self.wake(waiter)) {
                Ok(advance) => advance,
                Err(Failure::Reentered) => Advance::Pending(WaitFor::Room),
                // The next call reports the error.
                Err(_) if send.done() > before => return Ok(Advance::Pending(WaitFor::Room)),
                Err(Failure::Unheard(bytes)) => {
                    send.add(bytes);
                    return Ok(send.state());
                }
                Err(failure) => return Err(self.failed(failure)),
            };
            if advance == Advance::Done {
                return Ok(Advance::Done);
            }
            if !self.end.can_grow() {
                self.look_each_tick();
                return Ok(advance);
            }
            if !self.reader_comes() {
                self.end.request_grow();
            }
        }
    }

    /// Receives the bytes that have arrived, and waits for at least one unless `buffer` is empty. 0 is the end of the
    /// stream: the far end sends no more.
    ///
    /// # Errors
    /// The stream is over, or [`Error::TimedOut`].
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut buffers = [IoSliceMut::new(buffer)];
        let mut receive = Receive::new(&mut buffers, 1);
        self.receive_by(&mut receive, &mut self.receive_limit.patience())?;
        Ok(receive.done())
    }

    /// Receives exactly `buffer.len()` bytes.
    ///
    /// # Errors
    /// The stream is over; [`Error::Closed`] if it ended before that; [`Error::TimedOut`] says how many bytes came.
    pub fn receive_all(&self, buffer: &mut [u8]) -> Result<(), Error> {
        self.receive_all_by(buffer, &mut self.receive_limit.patience())
    }

    pub(crate) fn receive_all_by(&self, buffer: &mut [u8], patience: &mut Patience) -> Result<(), Error> {
        let len = buffer.len();
        if len == 0 {
            return Ok(());
        }
        let mut buffers = [IoSliceMut::new(buffer)];
        let mut receive = Receive::new(&mut buffers, len);
        self.receive_by(&mut receive, patience)?;
        if receive.done() < len { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits until `receive` is done, or the far end has ended its direction.
    fn receive_by(&self, receive: &mut Receive<'_, '_>, patience: &mut Patience) -> Result<(), Error> {
        loop {
            let before = receive.done();
            let advance = {
                let _allowed = Allowed::begin();
                self.advance_receive(receive)?
            };
            let Advance::Pending(what) = advance else { return Ok(()) };
            if receive.done() > before {
                patience.moved();
            }
            self.pause(what, patience, receive.done())?;
        }
    }

    /// As [`Self::try_receive`], for an operation that is continued.
    pub(crate) fn advance_receive(&self, receive: &mut Receive<'_, '_>) -> Result<Advance, Error> {
        match receive.try_advance(&self.end, tid(), |waiter| self.wake(waiter)) {
            Ok(Advance::Done) | Err(Failure::Ended) => Ok(Advance::Done),
            Ok(Advance::Pending(_)) | Err(Failure::Reentered) => {
                self.look_each_tick();
                Ok(Advance::Pending(WaitFor::Data))
            }
            Err(failure) => Err(self.failed(failure)),
        }
    }

    /// Receives the bytes that have arrived; `None` if there are none. 0 bytes are the end of the stream.
    ///
    /// # Errors
    /// The stream is over.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        self.received(self.end.try_receive(tid(), &mut [IoSliceMut::new(buffer)]))
    }

    /// As [`Self::try_receive`], into memory that other programs may access; `part` is not empty.
    pub(crate) fn try_receive_into(&self, part: Part<'_>) -> Result<Option<usize>, Error> {
        self.received(self.end.try_receive_into(tid(), part))
    }

    #[inline]
    fn received(&self, outcome: Result<Transferred, Failure>) -> Result<Option<usize>, Error> {
        match outcome {
            Ok(moved) => {
                self.wake(moved.wake);
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

    /// Ends the sending direction: the far end receives all that was sent, and then end of file.
    ///
    /// # Errors
    /// The stream is over already, or [`Error::TimedOut`].
    pub fn finish(&self) -> Result<(), Error> {
        let mut patience = self.send_limit.patience();
        self.await_posts(0, &mut patience)?;
        loop {
            match self.end.send_control(tid(), Kind::DisConn) {
                Ok(moved) => {
                    self.wake(moved.wake);
                    return Ok(());
                }
                Err(Failure::WouldBlock | Failure::Reentered) => {
                    self.pause(WaitFor::Room, &mut patience, 0)?
                }
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// The ring is full, and as long as fits the caches: spins, and returns whether the reader has made room.
    fn reader_comes(&self) -> bool {
        let ns = self.spin_ns(&self.end.shared().sending.budget);
        Spinner::among(ns, most_spinners())
            .is_some_and(|_spinner| self.end.spin(ns, || self.end.has_credit()))
    }

    #[inline]
    pub(crate) fn wake(&self, waiter: Option<WaiterId>) {
        if let Some(waiter) = waiter {
            wakers::wake(&self.wakers, &self.end, waiter);
        }
    }

    #[cold]
    pub(crate) fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Ended => Error::Closed,
            Failure::Tcp => Error::Downgraded,
            Failure::Violation(_)
            | Failure::OutOfOrder(_)
            | Failure::InvalidReference(_)
            | Failure::Discontinued { .. } => {
                self.end.give_up(&failure.to_string());
                Error::Violated(failure.to_string())
            }
            Failure::Fault => Error::Broken(Errno::FAULT),
            _ if self.attachment.is_over() => Error::DaemonGone,
            _ => {
                let errno = self.end.shared().status.error.load(Relaxed);
                let errno = i32::try_from(errno).unwrap_or(0);
                Error::Broken(Errno::from_raw_os_error(if errno == 0 { libc::ECONNRESET } else { errno }))
            }
        }
    }

    /// Aborts the stream, since the far end broke the protocol that is spoken on it.
    pub(crate) fn violated(&self, text: &str) {
        self.end.give_up(text);
    }
}

impl Drop for Stream {
    /// Closing with unread bytes resets the connection, as with the kernel's TCP.
    fn drop(&mut self) {
        let unread = self.end.rx() == Direction::Open && self.end.unread(tid()).is_ok_and(|bytes| bytes > 0);
        if unread {
            let _ = sockopt::set_socket_linger(&self.carrier, Some(Duration::ZERO));
        } else if let Ok(moved) = self.end.send_control(tid(), Kind::DisConn) {
            self.wake(moved.wake);
            self.end.await_sent(tid());
        }
        self.end.leave();
        self.attachment.tell(&self.end.closing(false));
    }
}
