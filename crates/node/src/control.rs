//! The control socket: where programs and tools find the daemon.

use crosslane_passing::{Foreign, Owner};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;

const BACKLOG: i32 = 1024;

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ControlError {
    /// A living daemon has it.
    #[error("another daemon answers at {0}: stop it, or choose another `control`")]
    InUse(PathBuf),
    /// It cannot be made.
    #[error(
        "cannot make the control socket {path}: {what}: {error}; choose a `control` in a folder that the daemon may write"
    )]
    System {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        error: std::io::Error,
    },
}

/// The listening socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    /// Connections that wait here may have queues of their own.
    socket: Foreign,
    path: PathBuf,
    /// Device and inode of our file: another daemon's is not removed.
    file: Option<(u64, u64)>,
}

impl ControlSocket {
    /// Listens at `path`, in place of a socket that nobody answers at. Everybody may connect: each request is judged
    /// by the sockets that come with it.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let fail = |what| {
            let path = path.to_owned();
            move |error: std::io::Error| ControlError::System { path, what, error }
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail("its folder cannot be made"))?;
        }
        if answers(path) {
            return Err(ControlError::InUse(path.to_owned()));
        }
        match std::fs::symlink_metadata(path) {
            Ok(meta) if !is_socket(&meta) => {
                return Err(fail("there is a file that is no socket")(Errno::EXIST.into()));
            }
            Ok(_) => std::fs::remove_file(path).map_err(fail("the stale one cannot be removed"))?,
            Err(_) => {}
        }
        let socket = new_socket().map_err(|errno| fail("socket")(errno.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|errno| fail("path")(errno.into()))?;
        rustix::net::bind(&socket, &address).map_err(|errno| fail("bind")(errno.into()))?;
        chmod(path, Mode::from_raw_mode(0o666)).map_err(|errno| fail("chmod")(errno.into()))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| fail("listen")(errno.into()))?;
        let socket = Foreign::new(socket, Owner::NOBODY);
        Ok(Self { socket, path: path.to_owned(), file: identity(path) })
    }

    /// The listening socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next session's socket, which is its user's; `None` if nobody waits.
    pub fn accept(&self) -> Result<Option<Foreign>, Errno> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let owner = owner_of(&socket);
                Ok(Some(Foreign::new(socket, owner)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn owner_of(socket: &OwnedFd) -> Owner {
    sockopt::socket_peercred(socket).map_or(Owner::NOBODY, |peer| Owner::user(peer.uid.as_raw()))
}

/// Whether somebody accepts connections at `path`.
fn answers(path: &Path) -> bool {
    let (Ok(socket), Ok(address)) = (new_socket(), SocketAddrUnix::new(path)) else { return false };
    matches!(rustix::net::connect(&socket, &address), Ok(()) | Err(Errno::AGAIN))
}

fn is_socket(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    meta.file_type().is_socket()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}
