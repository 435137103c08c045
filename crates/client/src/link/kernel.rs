//! The kernel's idle TCP connection of a stream (its carrier): what it reports about the far program.

use crate::End;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use crosslane_stream::Direction;
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use rustix::net::sockopt;

/// The events to poll for: after the FIN, only a reset.
pub fn events(end: &End) -> PollFlags {
    let fin = end.shared().status.fin.load(Relaxed) != 0;
    if fin { PollFlags::empty() } else { PollFlags::IN | PollFlags::RDHUP }
}

/// Handles the events that `poll` returned for it: FIN, RST, or bytes that should not be there. `heard_before`: see [`End::note_fin`].
pub fn news(
    end: &End,
    tid: u32,
    carrier: BorrowedFd<'_>,
    told: PollFlags,
    heard_before: impl FnOnce() -> Duration,
) {
    // Without ERR, SO_ERROR may hold an error that a cut cable caused earlier (ICMP) and that does not end the carrier connection.
    if told.contains(PollFlags::ERR)
        && let Ok(Err(errno)) = sockopt::socket_error(carrier)
    {
        // A reset that follows the FIN; the FIN is slower than the record in the ring that ends the direction.
        let is_behind = errno.raw_os_error() == libc::ECONNRESET && end.has_end();
        end.break_off(if is_behind { libc::EPIPE } else { errno.raw_os_error() });
    }
    // If the receiving side travels by TCP and is shut down, the kernel reports the same.
    let ours = end.rx() == Direction::Tcp && end.shared().status.read_shut.load(Relaxed) != 0;
    if told.contains(PollFlags::HUP) || told.contains(PollFlags::RDHUP) && !ours {
        end.note_fin(heard_before);
    }
    if told.contains(PollFlags::IN) && end.rx() != Direction::Tcp {
        stray_bytes(end, tid, carrier);
    }
}

/// Bytes on the carrier connection have no place in the order of the stream, unless the far end went over to TCP: a
/// program wrote to the socket without this library. The stream is aborted.
fn stray_bytes(end: &End, tid: u32, carrier: BorrowedFd<'_>) {
    end.refresh(tid);
    // A FIN is `IN`, too: then there are none.
    let count = rustix::io::ioctl_fionread(carrier).unwrap_or(0);
    if end.rx() != Direction::Tcp && count > 0 && !end.goes_over_to_tcp(tid) {
        end.give_up(&format!("{count} stray bytes on the carrier connection: written past the library"));
    }
}
