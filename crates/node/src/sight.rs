//! Which users' sessions, streams, listeners and quota a session may see: an ordinary one its own user's; one of root, of the daemon's
//! own user or of the operators' group everybody's. Totals, and which hosts are joined, everybody may see.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

/// Most groups of a process that are read; Linux allows 65536.
const GROUPS_MAX: usize = 65536;

/// Whose data a session may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Everybody's.
    All,
    /// This user's.
    Of(u32),
}

impl Sight {
    /// What a session of user `uid` may see, whose process is at the other end of `socket`. Never blocks.
    pub fn of(socket: BorrowedFd<'_>, uid: u32, operators: Option<u32>) -> Self {
        let is_operator = || operators.is_some_and(|group| groups_of(socket).contains(&group));
        let own = rustix::process::geteuid().as_raw();
        if uid == 0 || uid == own || is_operator() { Self::All } else { Self::Of(uid) }
    }

    /// Whether data of user `uid` may be seen.
    pub fn sees(self, uid: u32) -> bool {
        match self {
            Self::All => true,
            Self::Of(own) => own == uid,
        }
    }

    /// Whether data of process `pid` may be seen. A process that is gone has no owner and shows nothing, so it may.
    pub fn sees_process(self, pid: u32) -> bool {
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid());
        owner.is_none_or(|owner| self.sees(owner))
    }

    /// The user, if only one user's data may be seen.
    pub fn user(self) -> Option<u32> {
        if let Self::Of(uid) = self { Some(uid) } else { None }
    }
}

/// The groups of the process at the other end of a local socket when it connected: its own, and the supplementary ones.
fn groups_of(socket: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0_u32; 64];
    loop {
        match peer_groups(socket, &mut groups) {
            Some(count) if count <= groups.len() => {
                groups.truncate(count);
                groups.extend(rustix::net::sockopt::socket_peercred(socket).map(|peer| peer.gid.as_raw()));
                return groups;
            }
            Some(count) if count <= GROUPS_MAX => groups.resize(count, 0),
            _ => return Vec::new(),
        }
    }
}

/// Stores the supplementary groups as far as `groups` has room; returns how many there are.
fn peer_groups(socket: BorrowedFd<'_>, groups: &mut [u32]) -> Option<usize> {
    let mut len = libc::socklen_t::try_from(size_of_val(groups)).ok()?;
    // SAFETY: the kernel stores at most `len` bytes, which `groups` has, and the length into `len`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let failed = outcome != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ERANGE);
    (!failed).then_some(len as usize / size_of::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn sight_of_a_user_is_what_is_its_own() {
        assert!(Sight::All.sees(0) && Sight::All.sees(1000) && Sight::Of(1000).sees(1000));
        assert!(!Sight::Of(1000).sees(0) && !Sight::Of(1000).sees(1001));
        assert!(Sight::Of(u32::MAX - 1).sees_process(u32::MAX), "there is no such process");
        assert!(!Sight::Of(u32::MAX - 1).sees_process(std::process::id()));
    }

    #[test]
    fn groups_of_a_peer_are_known() {
        let (one, _other) = UnixStream::pair().unwrap();
        let groups = groups_of(one.as_fd());
        assert!(groups.contains(&rustix::process::getegid().as_raw()));
        for group in rustix::process::getgroups().unwrap() {
            assert!(groups.contains(&group.as_raw()));
        }
    }
}
