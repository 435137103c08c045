//! How the two sides of a soft cable find each other: one listens at a path, the other tries to connect repeatedly.

use crate::{DownReason, PortError};
use crosslane_passing::{Foreign, Owner};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, chmod, fchmod, lstat, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Longest time between the kill of a listening process and the close of its socket.
const DYING: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Connections that may wait for `accept`: the next peer's, and remains of dead ones.
const BACKLOG: i32 = 8;

/// The listening socket and its file, which is removed with it.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file, so that only this listener's file is removed.
    file: (u64, u64),
}

impl Listener {
    /// Listens at `path`, replacing a socket file whose owner is gone.
    pub(super) fn new(path: &Path, mode: u32) -> Result<Self, PortError> {
        let address = address(path)?;
        let socket = new_socket().map_err(failed("socket", path))?;
        let mode = Mode::from_raw_mode(mode & 0o777);
        // The file gets the socket's own mode, less the umask, so it is never more accessible than requested.
        fchmod(&socket, mode).map_err(failed("chmod", path))?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &address)?;
                bind(&socket, &address).map_err(failed("bind", path))?;
            }
            outcome => outcome.map_err(failed("bind", path))?,
        }
        chmod(path, mode).map_err(failed("chmod", path))?;
        let file = identity(path).map_err(failed("stat", path))?;
        listen(&socket, BACKLOG).map_err(failed("listen", path))?;
        Ok(Self { socket, path: path.to_owned(), file })
    }

    /// The socket, for polling.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next connection whose peer is still there, if one waits. Connections whose peer is gone are dropped, with all
    /// that it sent: otherwise a peer that connects, breaks the rules and leaves, repeatedly, would delay the next peer
    /// for as long as each such connection takes.
    pub(super) fn accept(&self) -> Result<Option<Foreign>, DownReason> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..=BACKLOG {
            match rustix::io::retry_on_intr(|| accept_with(&self.socket, flags)) {
                Ok(connection) => {
                    let connection = Foreign::new(connection, Owner::fresh());
                    if !is_left(&connection, NOW) {
                        return Ok(Some(connection));
                    }
                }
                Err(Errno::AGAIN | Errno::CONNABORTED) => break,
                Err(errno) => return Err(DownReason::System { what: "accept", errno }),
            }
        }
        Ok(None)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity(&self.path) == Ok(self.file) {
            let _ = unlink(&self.path);
        }
    }
}

/// Connects to the process that listens at `path`.
pub(super) fn connect_to(path: &Path) -> Result<Foreign, DownReason> {
    let address = SocketAddrUnix::new(path).map_err(|errno| DownReason::System { what: "path", errno })?;
    let socket = new_socket().map_err(|errno| DownReason::System { what: "socket", errno })?;
    match rustix::io::retry_on_intr(|| connect(&socket, &address)) {
        Ok(()) => Ok(Foreign::new(socket, Owner::fresh())),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(DownReason::Nobody(path.display().to_string())),
        Err(Errno::AGAIN) => Err(DownReason::Stuck),
        Err(errno) => Err(DownReason::System { what: "connect", errno }),
    }
}

/// The path as a socket address; fails if it is too long for one.
pub(super) fn address(path: &Path) -> Result<SocketAddrUnix, PortError> {
    SocketAddrUnix::new(path).map_err(failed("address", path))
}

/// Waits that double from 50 ms up to 1 s.
#[derive(Debug)]
pub(super) struct BackOff(Duration);

impl BackOff {
    /// Starts with the first wait again.
    pub(super) fn new() -> Self {
        Self(FIRST_WAIT)
    }

    /// How long to wait now.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_WAIT);
        wait
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Removes the file of a listener that is gone. Anything else at the path stays, and is an error.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), PortError> {
    let in_use = || PortError::InUse(path.display().to_string());
    let stat = lstat(path).map_err(failed("stat", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(failed("bind, at a file that is no socket,", path)(Errno::EXIST));
    }
    loop {
        let probe = new_socket().map_err(failed("socket", path))?;
        match connect(&probe, address) {
            Err(Errno::CONNREFUSED) => return unlink(path).map_err(failed("remove", path)),
            Ok(()) if is_left(&probe, DYING) => {}
            Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => return Err(in_use()),
            Err(errno) => return Err(failed("connect", path)(errno)),
        }
    }
}

/// Whether the far end of a connection is gone, or closes without sending anything in the next `patience`: a process that
/// was killed closes its sockets one after the other, and its successor may be there before the last one. A live port
/// sends its Hello, or nothing, and stays connected.
fn is_left(connection: &impl AsFd, patience: Timespec) -> bool {
    let mut polled = [PollFd::new(connection, PollFlags::IN)];
    let ended = poll(&mut polled, Some(&patience)).is_ok_and(|ready| ready > 0);
    ended && polled[0].revents().contains(PollFlags::HUP)
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    lstat(path).map(|stat| (stat.st_dev, stat.st_ino))
}

fn failed(what: &str, path: &Path) -> impl FnOnce(Errno) -> PortError {
    PortError::system(format!("{what} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_socket_file_is_replaced_only_if_stale() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cable");
        // The standard library's listener leaves its file behind, as a killed process does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = Listener::new(&path, 0o640).unwrap();
        assert_eq!(lstat(&path).unwrap().st_mode & 0o777, 0o640);
        assert!(matches!(Listener::new(&path, 0o600), Err(PortError::InUse(_))));
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn soft_socket_path_that_is_no_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cable");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::new(&path, 0o600), Err(PortError::System { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn soft_reconnect_waits_double_up_to_a_second() {
        let mut back_off = BackOff::new();
        let waits: Vec<_> = (0..7).map(|_| back_off.next().as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000]);
    }
}
