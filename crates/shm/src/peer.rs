//! The process at the other end of a socket, identified reliably while its pid is in use.
//!
//! The kernel's calls that copy between processes take a pid, which may be reused. [`Peer`] holds the process's directory
//! in `/proc`, which stays that of one process: once it has ended, the directory has no entries. Each [`Peer::check`]
//! reads the owner of one entry, and so finds whether the process still is of the user that opened the socket:
//!
//! | entry | owned by | watched for |
//! |---|---|---|
//! | `mem` | the effective user and group; root if others may not trace it, as after the exec of a program with more rights (set-user-id, set-group-id, capabilities) or a change of user | processes that their user may trace when they are first held |
//! | `task` | the effective user and group | all others: those of root, and servers that gave root up |

use core::ffi::CStr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use thiserror::Error;

/// `SO_PEERPIDFD`, Linux 6.5 and newer.
const SO_PEERPIDFD: libc::c_int = 77;

/// Why a process is not, or no longer, the one that opened the other end of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// The process has ended.
    #[error("the process that opened the session has ended")]
    Gone,
    /// The process belongs to another user, or has rights that its user does not have.
    #[error("the process is not the session's user's any more")]
    OtherUser,
    /// `/proc` is missing, or belongs to another pid namespace.
    #[error("processes cannot be looked at: mount the /proc of the daemon's own pid namespace")]
    NoProc,
    /// The kernel does not say which process it is.
    #[error("the kernel does not tell who opened the session: {0}")]
    Unknown(Errno),
}

/// A process, identified by its `/proc` directory (see the module).
#[derive(Debug)]
pub struct Peer {
    pid: i32,
    folder: OwnedFd,
    watched: &'static CStr,
    owner: (u32, u32),
}

impl Peer {
    /// The process that opened the socket's other end, if it lives and still is of the user that it was of then.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self, PeerError> {
        let told = rustix::net::sockopt::socket_peercred(socket).map_err(PeerError::Unknown)?;
        let process = pidfd(socket)?;
        let peer = Self::open(told.pid.as_raw_nonzero().get(), told.uid.as_raw())?;
        // While the process lives no other process has its pid, so the directory is its own.
        match process {
            Some(process) if has_ended(process.as_fd()) => Err(PeerError::Gone),
            _ => Ok(peer),
        }
    }

    /// This process.
    pub fn own() -> Result<Self, PeerError> {
        Self::open(own_pid(), rustix::process::geteuid().as_raw())
    }

    fn open(pid: i32, uid: u32) -> Result<Self, PeerError> {
        let own = rustix::fs::readlink("/proc/self", Vec::new()).map_err(|_| PeerError::NoProc)?;
        if own.as_bytes() != own_pid().to_string().as_bytes() {
            return Err(PeerError::NoProc);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty());
        let folder = folder.map_err(|_| PeerError::Gone)?;
        let (mem, task) = (owner(&folder, c"mem")?, owner(&folder, c"task")?);
        if task.0 != uid {
            return Err(PeerError::OtherUser);
        }
        let (watched, owner) = if mem.0 == uid && uid != 0 { (c"mem", mem) } else { (c"task", task) };
        Ok(Self { pid, folder, watched, owner })
    }

    /// The pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the process lives, and is of the same user with the same rights as when it was first held. Takes about 1 us.
    pub fn check(&self) -> Result<(), PeerError> {
        let now = owner(&self.folder, self.watched)?;
        if now == self.owner { Ok(()) } else { Err(PeerError::OtherUser) }
    }
}

/// The process that opened a socket's other end, to find out when that process ends, whichever process holds the socket by now.
#[derive(Debug)]
pub struct Opener {
    pid: Option<Pid>,
    /// `None` if the kernel is too old, or there was no free descriptor.
    process: Option<OwnedFd>,
    gone: bool,
}

impl Opener {
    /// The process that opened the other end of a connected local socket.
    pub fn of(socket: BorrowedFd<'_>) -> Self {
        let pid = rustix::net::sockopt::socket_peercred(socket).ok().map(|peer| peer.pid);
        let process = pidfd(socket);
        let gone = matches!(process, Err(PeerError::Gone));
        Self { pid, process: process.ok().flatten(), gone }
    }

    /// Whether the process has ended. If only its pid is known, a later process with this pid counts as the same.
    pub fn has_ended(&self) -> bool {
        match (&self.process, self.pid) {
            _ if self.gone => true,
            (Some(process), _) => has_ended(process.as_fd()),
            (None, Some(pid)) => rustix::process::test_kill_process(pid) == Err(Errno::SRCH),
            (None, None) => false,
        }
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn owner(folder: &OwnedFd, entry: &CStr) -> Result<(u32, u32), PeerError> {
    let found = rustix::fs::statat(folder, entry, AtFlags::SYMLINK_NOFOLLOW);
    found.map(|found| (found.st_uid, found.st_gid)).map_err(|_| PeerError::Gone)
}

/// A pidfd of the process that opened the other end; `None` if the kernel is too old.
fn pidfd(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, PeerError> {
    let (mut fd, mut len) = (-1_i32, libc::socklen_t::from(4_u8));
    // SAFETY: `fd` has the length that `len` says.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if outcome == 0 {
        // SAFETY: the kernel has just made the descriptor; no other code has it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOPROTOOPT) => Ok(None),
        Some(libc::ESRCH | libc::EINVAL | libc::ENODATA) => Err(PeerError::Gone),
        errno => Err(PeerError::Unknown(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO)))),
    }
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)) != Ok(0)
}

#[cfg(all(test, not(miri)))]
impl Peer {
    /// A process that was of another user when it was first held.
    pub(crate) fn changed(mut self) -> Self {
        self.owner.0 = !self.owner.0;
        self
    }
}
