//! Where native streams come in.

use super::fabric::new_socket;
use super::wait::time_left;
use super::{Error, Fabric, Stream};
use crate::SessionError;
use crosslane_wire::local::{Reply, Request};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listener; closed when dropped.
#[derive(Debug)]
pub struct Listener {
    fabric: Fabric,
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
        match fabric.ask(|session| session.request(&Request::Listen, &[socket.as_fd()]))?.0 {
            Reply::Done => Ok(Self { fabric, socket, address }),
            Reply::Error { text } => Err(SessionError::Refused(text).into()),
            _ => Err(SessionError::Unexpected("a listener was announced").into()),
        }
    }

    /// Where it listens, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`Error::Plain`] if the one that came is plain TCP, and was closed: others may follow. [`Error::Session`] if the
    /// daemon is gone.
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
            if let Some(stream) = self.try_accept()? {
                return Ok(Some(stream));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN), self.fabric.watched()];
            match rustix::event::poll(&mut fds, time_left(deadline).as_ref()) {
                Ok(_) if fds[1].revents().contains(PollFlags::HUP) => {
                    return Err(SessionError::Lost(Errno::CONNRESET).into());
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
        let (socket, remote) = match rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let remote = remote.and_then(|remote| SocketAddr::try_from(remote).ok());
        let Some(remote) = remote else { return Ok(None) };
        self.fabric.accepted(socket, remote).map(Some)
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
        self.fabric.tell(&Request::Unlisten { address: self.address });
    }
}
