//! Which network namespace a socket or a process belongs to: addresses mean something only there.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

/// The kernel's number of the network namespace of a socket, which is never used again; `None` before Linux 5.14.
pub fn cookie(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut len: libc::socklen_t = 8;
    // SAFETY: the kernel stores at most `len` bytes, 8, into `cookie`, and the length into `len`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    (outcome == 0 && len == 8).then_some(cookie)
}

/// The number of the namespace that this process makes sockets in.
pub fn own() -> Option<u64> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").ok()?;
    cookie(socket.as_fd())
}

/// Whether a process is in another network namespace than this one; `None` if the kernel does not let us know.
pub fn is_elsewhere(pid: i32) -> Option<bool> {
    let of = |process: &str| std::fs::metadata(format!("/proc/{process}/ns/net")).ok();
    let (own, theirs) = (of("self")?, of(&pid.to_string())?);
    Some((own.dev(), own.ino()) != (theirs.dev(), theirs.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn namespace_of_a_process_of_ours_is_here_and_of_one_that_is_gone_nowhere() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(is_elsewhere(pid), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(is_elsewhere(pid), None);
    }

    #[test]
    fn sockets_of_one_process_are_in_one_namespace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(cookie(listener.as_fd()), own());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(cookie(file.as_fd()), None);
    }
}
