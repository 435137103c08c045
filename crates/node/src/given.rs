//! Descriptors that came with a request, as far as they are of a kind that a daemon has a use for. All that may block is done
//! aside, before the daemon's thread sees them; what remains can block nobody, but in `close`.

use crate::proof::Proof;
use crate::socket_table::SocketTable;
use crosslane_passing::{Foreign, Message, aside, receive};
use crosslane_wire::DecodeError;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::Request;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::sync::Arc;

/// Most descriptors of one request; more are not looked at.
pub const FDS_MAX: usize = 4;

/// A descriptor that came with a request.
#[derive(Debug)]
pub enum Given {
    /// Memory: a file that has seals, which no program serves.
    Memory(Foreign),
    /// A TCP socket, which is closed already: what it proved counts.
    Socket(Proof),
    /// A netlink socket that shows a network namespace's sockets.
    Table(Foreign),
    /// Anything else, which is closed already.
    Other,
}

/// What lay in a session's queue.
#[derive(Debug)]
pub enum Arrived {
    /// A request.
    Request(Result<Request, DecodeError>, Vec<Given>),
    /// Nothing now.
    Nothing,
    /// A packet that cannot be a request: too long.
    Truncated,
    /// All other ends are closed.
    Closed,
}

impl Given {
    /// Finds out what a descriptor is, and closes what is of no more use. May block.
    fn of(fd: Foreign) -> Self {
        // This does not block, whatever it is.
        if rustix::fs::fcntl_get_seals(&fd).is_ok() {
            return Self::Memory(fd);
        }
        if SocketTable::is_one(std::os::fd::AsFd::as_fd(&fd)) {
            return Self::Table(fd);
        }
        let proof = Proof::of(std::os::fd::AsFd::as_fd(&fd));
        // The program may close its socket as soon as it has the answer, and count on it that the port is free then.
        fd.close();
        proof.map_or(Self::Other, Self::Socket)
    }

    /// The memory, if it is some.
    pub fn memory(self) -> Option<Foreign> {
        if let Self::Memory(fd) = self { Some(fd) } else { None }
    }

    /// The table of sockets, if it is one.
    pub fn table(self) -> Option<Foreign> {
        if let Self::Table(fd) = self { Some(fd) } else { None }
    }

    /// What the socket proved, if it is one.
    pub fn socket(self) -> Option<Proof> {
        if let Self::Socket(proof) = self { Some(proof) } else { None }
    }
}

/// Takes a request that has no descriptors; whoever reads the queue has made sure of that.
pub fn take_plain(socket: &Foreign) -> Arrived {
    let mut bytes = [0; MAX_MESSAGE];
    arrived(receive(socket, &mut bytes, RecvFlags::DONTWAIT, socket.owner()), &bytes)
}

/// Takes a request with its descriptors, aside, and hands it to `then`.
pub fn take_aside(socket: Arc<Foreign>, then: impl FnOnce(Arrived) + Send + 'static) {
    aside::run(socket.owner(), move || {
        let mut bytes = [0; MAX_MESSAGE];
        let received = receive(&*socket, &mut bytes, RecvFlags::DONTWAIT, socket.owner());
        drop(socket);
        then(arrived(received, &bytes));
    });
}

fn arrived(received: Result<Message, Errno>, bytes: &[u8]) -> Arrived {
    match received {
        Err(Errno::AGAIN | Errno::INTR) => Arrived::Nothing,
        Err(_) => Arrived::Closed,
        // Descriptors that had no place are missing only, and of too many the last do not count.
        Ok(message) if message.truncated => Arrived::Truncated,
        Ok(message) if message.bytes == 0 && message.fds.is_empty() => Arrived::Closed,
        Ok(message) => {
            let given = message.fds.into_iter().take(FDS_MAX).map(Given::of).collect();
            Arrived::Request(codec::decode(&bytes[..message.bytes]), given)
        }
    }
}
