//! The kernel's idle connection beside a stream: how long ago its last packet came.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Error of the kernel's answer: it counts in ticks of its clock, of 10 ms at most.
const TICK_MS: u32 = 10;

/// How long ago, at least, the last packet of a TCP connection came, for instance its FIN; zero if the kernel does not
/// say. `ask` calls `getsockopt(TCP_INFO)` and returns whether it has filled its arguments.
pub fn heard_before(ask: impl FnOnce(&mut libc::tcp_info, &mut libc::socklen_t) -> bool) -> Duration {
    // SAFETY: plain numbers, for which zeros are values.
    let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
    let Ok(mut len) = libc::socklen_t::try_from(size_of::<libc::tcp_info>()) else { return Duration::ZERO };
    let known =
        ask(&mut info, &mut len) && len as usize > core::mem::offset_of!(libc::tcp_info, tcpi_last_ack_recv);
    let ms = if known { info.tcpi_last_ack_recv.saturating_sub(TICK_MS) } else { 0 };
    Duration::from_millis(ms.into())
}

/// As [`heard_before`], by the C library's `getsockopt`.
pub fn heard_of(fd: impl AsFd) -> Duration {
    heard_before(|info, len| {
        let (fd, value) = (fd.as_fd().as_raw_fd(), core::ptr::from_mut(info).cast());
        // SAFETY: `len` bytes that may be written.
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, len) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn fin_is_older_the_longer_it_lies() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let begin = std::time::Instant::now();
        while heard_of(&near) < Duration::from_millis(20) {
            assert!(begin.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert!(begin.elapsed() >= Duration::from_millis(19), "{:?}", begin.elapsed());
        assert_eq!(heard_of(std::io::stderr()), Duration::ZERO);
    }
}
