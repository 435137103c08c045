//! The process at the other end of a socket, held for as long as its number is used.
//!
//! The kernel's calls that copy between processes take a number, which names whoever has it just then. [`Peer`] holds the
//! process's folder in `/proc`, which stays that of one process: when it has ended, nothing is found there any more. Each
//! [`Peer::check`] asks who owns an entry of it, and so whether the process is of the user still that opened the socket:
//!
//! | entry | owned by | watched of |
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

/// `SO_PEERPIDFD`, from Linux 6.5 on.
const SO_PEERPIDFD: libc::c_int = 77;

/// Why a process is not, or no longer, the one at the socket's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// It has ended.
    #[error("the process that opened the session has ended")]
    Gone,
    /// It is another user's, or has rights that its user does not have.
    #[error("the process is not the session's user's any more")]
    OtherUser,
    /// `/proc` is missing, or is that of other process numbers.
    #[error("processes cannot be looked at: mount the /proc of the daemon's own pid namespace")]
    NoProc,
    /// The kernel does not say who it is.
    #[error("the kernel does not tell who opened the session: {0}")]
    Unknown(Errno),
}

/// A process, see the module.
#[derive(Debug)]
pub struct Peer {
    pid: i32,
    folder: OwnedFd,
    watched: &'static CStr,
    owner: (u32, u32),
}

impl Peer {
    /// The process that opened the socket's other end, if it lives and is of the user still that it was of then.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self, PeerError> {
        let told = rustix::net::sockopt::socket_peercred(socket).map_err(PeerError::Unknown)?;
        let process = pidfd(socket)?;
        let peer = Self::open(told.pid.as_raw_nonzero().get(), told.uid.as_raw())?;
        // While it lives nobody else has its number, so the folder is its own.
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

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it lives, and is of the same user with the same rights as when it was first held. About 1 us.
    pub fn check(&self) -> Result<(), PeerError> {
        let now = owner(&self.folder, self.watched)?;
        if now == self.owner { Ok(()) } else { Err(PeerError::OtherUser) }
    }
}

/// The process that opened a socket's other end, to see its end, whoever holds that socket by now.
#[derive(Debug)]
pub struct Opener {
    pid: Option<Pid>,
    /// None if the kernel is too old, or there was no free descriptor.
    process: Option<OwnedFd>,
    gone: bool,
}

impl Opener {
    /// Of a connected local socket.
    pub fn of(socket: BorrowedFd<'_>) -> Self {
        let pid = rustix::net::sockopt::socket_peercred(socket).ok().map(|peer| peer.pid);
        let process = pidfd(socket);
        let gone = matches!(process, Err(PeerError::Gone));
        Self { pid, process: process.ok().flatten(), gone }
    }

    /// Whether the process has ended. Where only its number is known, a later process of this number is taken for it.
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

/// The process that opened the other end; `None` if the kernel is too old to say.
fn pidfd(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, PeerError> {
    let (mut fd, mut len) = (-1_i32, libc::socklen_t::from(4_u8));
    // SAFETY: `fd` is as long as `len` says.
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
        // SAFETY: just made by the kernel, and nobody else's.
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
    /// A process that was another user's when it was first held.
    pub(crate) fn changed(mut self) -> Self {
        self.owner.0 = !self.owner.0;
        self
    }
}
