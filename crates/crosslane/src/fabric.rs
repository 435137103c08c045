//! The fabric, as a program uses it: through this host's daemon, to listen and connect.
//!
//! ```text
//!   Fabric::open()  --listen(address)-->  Listener  --accept-->  Stream
//!                   --connect(address)------------------------>  Stream
//! ```
//! A connection that would fall back to plain TCP fails, with the reason: each end must be native, or a program under
//! `crosslane run` whose rules say stream.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use crosslane::fabric::Fabric;
//! let fabric = Fabric::open()?;
//! println!("host {}, at {:?}", fabric.host(), fabric.addresses());
//! let listener = fabric.listen("10.86.0.1:7000".parse()?)?;
//! let stream = listener.accept()?;
//! # Ok(())
//! # }
//! ```

mod listener;

pub use listener::Listener;

use crate::attachment::Attachment;
use crate::error::Error;
use crate::stream::Stream;
use crate::wait::Patience;
use crosslane_client::session;
use crosslane_wire::HostId;
use crosslane_wire::local::Request;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// This host's daemon, for as long as the process lives: a session with it, and after the daemon has ended, a new session
/// at the next call that needs one. Copies refer to the same session. One for a process is enough; any thread may use it.
#[derive(Clone, Copy, Debug)]
pub struct Fabric(&'static Inner);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    attachment: Mutex<&'static Attachment>,
}

impl Fabric {
    /// How long [`Self::connect`] waits.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Opens a session with the daemon that `CROSSLANE_SOCKET` names, or the default one.
    ///
    /// # Errors
    /// [`Error::Session`] if no daemon answers.
    pub fn open() -> Result<Self, Error> {
        Self::open_at(&session::socket_path())
    }

    /// Opens a session with the daemon whose control socket is `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_at(path: &Path) -> Result<Self, Error> {
        // Streams refer to their session until the process ends.
        let attachment = Mutex::new(Attachment::open(path)?);
        Ok(Self(Box::leak(Box::new(Inner { path: path.to_owned(), attachment }))))
    }

    /// The session; opens a new one if the last one's daemon has ended.
    pub(crate) fn attachment(&self) -> Result<&'static Attachment, Error> {
        let Inner { path, attachment } = self.0;
        let mut attachment = attachment.lock().unwrap_or_else(PoisonError::into_inner);
        if attachment.is_over() {
            *attachment = Attachment::open(path)?;
        }
        Ok(*attachment)
    }

    /// The last session that was opened.
    fn last(&self) -> &'static Attachment {
        *self.0.attachment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This host.
    pub fn host(&self) -> HostId {
        self.last().host()
    }

    /// This host's addresses in the fabric.
    pub fn addresses(&self) -> &[IpAddr] {
        self.last().addresses()
    }

    /// Listens at an address of this host; port 0 means any free port.
    ///
    /// # Errors
    /// The address is taken or not of this host, or the daemon refuses or does not answer.
    pub fn listen(&self, address: SocketAddr) -> Result<Listener, Error> {
        Listener::new(*self, address)
    }

    /// Connects to a listener on any host of the fabric; waits until the stream exists, for [`Self::CONNECT_TIMEOUT`] at most.
    ///
    /// # Errors
    /// [`Error::Plain`] if the connection cannot be a stream; [`Error::System`] if the kernel makes no connection at all;
    /// [`Error::TimedOut`].
    pub fn connect(&self, remote: SocketAddr) -> Result<Stream, Error> {
        self.connect_within(remote, Self::CONNECT_TIMEOUT)
    }

    /// As [`Self::connect`], for `limit` at most.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_within(&self, remote: SocketAddr, limit: Duration) -> Result<Stream, Error> {
        self.connect_by(remote, &mut Patience::within(limit))
    }

    /// As [`Self::connect`], for a stream whose bytes alternate between two circuits, if there are two paths to that host that are as
    /// short (or two at all, where the daemon's configuration uses `all_ways`): then one stream has the bandwidth of two cables.
    /// [`Stream::is_striped`] says whether there are. The accepting program need not know.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_striped(&self, remote: SocketAddr) -> Result<Stream, Error> {
        self.connect_with(remote, true, &mut Patience::within(Self::CONNECT_TIMEOUT))
    }

    pub(crate) fn connect_by(&self, remote: SocketAddr, patience: &mut Patience) -> Result<Stream, Error> {
        self.connect_with(remote, false, patience)
    }

    fn connect_with(
        &self,
        remote: SocketAddr,
        striped: bool,
        patience: &mut Patience,
    ) -> Result<Stream, Error> {
        let (attachment, socket) = (self.attachment()?, new_socket(remote)?);
        // Bound before `connect`: the daemon announces the connection by its local address and port.
        rustix::net::bind(&socket, &SocketAddr::new(attachment.address_towards(remote.ip()), 0))?;
        let end = attachment.end(&Request::Connect { remote }, socket.as_fd(), remote)?;
        if striped {
            attachment.stripe(&end, remote)?;
        }
        let stream = Stream::new(attachment, end, socket);
        match stream.connect(remote, patience) {
            Ok(()) => Ok(stream),
            Err(error) => {
                stream.give_up();
                Err(error)
            }
        }
    }
}

/// A TCP socket for an address. Calls on it bypass the C library, so that the preload library does not take it for a program's socket.
fn new_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}
