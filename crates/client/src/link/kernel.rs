//! What the kernel's connection of a stream, which lies idle, tells of the far program.

use crate::End;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use crosslane_stream::Direction;
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use rustix::net::sockopt;

/// What it can still tell: after the FIN, only a reset.
pub fn events(end: &End) -> PollFlags {
    let fin = end.shared().status.fin.load(Relaxed) != 0;
    if fin { PollFlags::empty() } else { PollFlags::IN | PollFlags::RDHUP }
}

/// `poll` said `told` of it: FIN, RST, or bytes that should not be there. `heard_before`: see [`End::note_fin`].
pub fn news(
    end: &End,
    tid: u32,
    carrier: BorrowedFd<'_>,
    told: PollFlags,
    heard_before: impl FnOnce() -> Duration,
) {
    // Without ERR, SO_ERROR would tell what a cut cable did to the carrier connection a while ago (ICMP), which is no error to it.
    if told.contains(PollFlags::ERR)
        && let Ok(Err(errno)) = sockopt::socket_error(carrier)
    {
        // The kernel has it so behind a FIN, which on its way is slower than the end that the ring tells.
        let is_behind = errno.raw_os_error() == libc::ECONNRESET && end.has_end();
        end.break_off(if is_behind { libc::EPIPE } else { errno.raw_os_error() });
    }
    // Of a receiving side that travels by TCP and is shut, the kernel says the same.
    let ours = end.rx() == Direction::Tcp && end.shared().status.read_shut.load(Relaxed) != 0;
    if told.contains(PollFlags::HUP) || told.contains(PollFlags::RDHUP) && !ours {
        end.note_fin(heard_before);
    }
    if told.contains(PollFlags::IN) && end.rx() != Direction::Tcp {
        stray_bytes(end, tid, carrier);
    }
}

/// Bytes on the carrier connection have no place in the order of the stream, unless the far end went over to it: somebody wrote past
/// us. Never guess.
fn stray_bytes(end: &End, tid: u32, carrier: BorrowedFd<'_>) {
    end.refresh(tid);
    // A FIN is `IN`, too: then there are none.
    let count = rustix::io::ioctl_fionread(carrier).unwrap_or(0);
    if end.rx() != Direction::Tcp && count > 0 && !end.goes_over_to_tcp(tid) {
        end.give_up(&format!("{count} stray bytes on the carrier connection: written past the library"));
    }
}
