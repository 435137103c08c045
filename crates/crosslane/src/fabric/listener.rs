//! Listeners for native streams.

use super::{Fabric, new_socket};
use crate::attachment::Attachment;
use crate::error::Error;
use crate::stream::Stream;
use crate::wait::time_left;
use crosslane_client::link::Linked;
use crosslane_wire::local::{Plain, Request};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections that may wait for `accept`.
const BACKLOG: i32 = 1024;

/// A listener; closed when dropped. It outlives the daemon: it is reported to the next daemon as soon as one runs.
#[derive(Debug)]
pub struct Listener {
    fabric: Fabric,
    /// The session with the daemon that knows the listener.
    attachment: Mutex<&'static Attachment>,
    socket: OwnedFd,
    address: SocketAddr,
}

impl Listener {
    pub(super) fn new(fabric: Fabric, address: SocketAddr) -> Result<Self, Error> {
        let socket = new_socket(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let local = rustix::net::getsockname(&socket)?;
        let address = SocketAddr::try_from(local).map_err(|_| Errno::AFNOSUPPORT)?;
        let attachment = fabric.attachment()?;
        announce(attachment, &socket)?;
        Ok(Self { fabric, attachment: Mutex::new(attachment), socket, address })
    }

    /// The session with the daemon that knows the listener; opens a new one if the last one's daemon has ended.
    pub(crate) fn attachment(&self) -> Result<&'static Attachment, Error> {
        let mut attachment = self.attachment.lock().unwrap_or_else(PoisonError::into_inner);
        if attachment.is_over() {
            let next = self.fabric.attachment()?;
            announce(next, &self.socket)?;
            *attachment = next;
        }
        Ok(*attachment)
    }

    /// The listening address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`Error::Plain`] if the connection is plain TCP, and was closed: others may follow. [`Error::DaemonGone`] if the
    /// daemon ends during the call, [`Error::Session`] while none runs: once one runs again, a call succeeds.
    pub fn accept(&self) -> Result<Stream, Error> {
        loop {
            if let Some(stream) = self.accept_until(None)? {
                return Ok(stream);
            }
        }
    }

    /// As [`Self::accept`], for `limit` at most. `Ok(None)`: none came in time.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn accept_within(&self, limit: Duration) -> Result<Option<Stream>, Error> {
        self.accept_until(Instant::now().checked_add(limit))
    }

    fn accept_until(&self, deadline: Option<Instant>) -> Result<Option<Stream>, Error> {
        loop {
            let attachment = self.attachment()?;
            if let Some(stream) = self.accept_by(attachment)? {
                return Ok(Some(stream));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN), attachment.watched()];
            match rustix::event::poll(&mut fds, time_left(deadline).as_ref()) {
                Ok(_) if !fds[1].revents().is_empty() => {
                    return Err(Error::DaemonGone);
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next connection, if one has come.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn try_accept(&self) -> Result<Option<Stream>, Error> {
        self.accept_by(self.attachment()?)
    }

    fn accept_by(&self, attachment: &'static Attachment) -> Result<Option<Stream>, Error> {
        let (socket, remote) = match rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let remote = remote.and_then(|remote| SocketAddr::try_from(remote).ok());
        let Some(remote) = remote else { return Ok(None) };
        accepted(attachment, socket, remote).map(Some)
    }
}

impl AsFd for Listener {
    /// Readable when a connection waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let attachment = self.attachment.get_mut().unwrap_or_else(PoisonError::into_inner);
        attachment.tell(&Request::Unlisten { address: self.address });
    }
}

/// Reports a listening socket to the daemon.
fn announce(attachment: &Attachment, socket: &OwnedFd) -> Result<(), Error> {
    attachment.ask(|session| session.listen(socket.as_fd()))
}

/// Makes the stream of an accepted connection.
fn accepted(attachment: &'static Attachment, socket: OwnedFd, remote: SocketAddr) -> Result<Stream, Error> {
    let end = attachment.end(&Request::Accept, socket.as_fd(), remote)?;
    let was_attached = end.was_attached();
    let stream = Stream::new(attachment, end, socket);
    if was_attached {
        return Ok(stream);
    }
    // The connecting host's daemon had given up waiting for this one's: its program connected by plain TCP.
    stream.give_up();
    Err(Error::Plain { remote, why: Plain::NotAnnounced })
}
