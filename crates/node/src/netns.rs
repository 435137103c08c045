//! Which network namespace a socket belongs to: its addresses mean something only there.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn sockets_of_one_process_are_in_one_namespace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(cookie(listener.as_fd()), own());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(cookie(file.as_fd()), None);
    }
}
