//! The carrier connection of a stream: what its kernel socket reports, and what it is made to do.

use crate::daemon::process;
use crate::daemon::watch::{self, Watched};
use crate::descriptors::table::Held;
use crate::kernel::{fd, program, sockopt, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::link::kernel;
use crosslane_client::shared::UNHEARD_TOLD;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Looks whether the carrier TCP connection of `end` has ended or was reset, without waiting.
pub fn look_at_kernel(fd: c_int, end: &Held) {
    let daemon = watch::present();
    let carrier = polled(fd, end);
    let mut fds = [carrier.clone(), daemon.map_or(carrier, Watched::poll)];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&zero)).is_ok_and(|count| count > 0) {
        let revents = fds[0].revents();
        news(fd, end, revents);
        ended(daemon, fds.get(1));
    }
}

/// Called when bytes were sent to a far end that has gone: a byte on the carrier connection makes the far kernel answer
/// with a reset, as it would for TCP. Then the kernel's socket is in the state that the program is to see. `true`: a
/// reset had come already, and the bytes are refused.
#[cold]
pub fn have_reset(fd: c_int, end: &Held, bytes: usize) -> bool {
    look_at_kernel(fd, end);
    let (status, fd) = (&end.shared().status, end.fd(fd).unwrap_or(fd));
    if status.reset.load(Relaxed) != 0 {
        return true;
    }
    if bytes == 0 || status.unheard.swap(UNHEARD_TOLD, Relaxed) == UNHEARD_TOLD {
        return false;
    }
    sockopt::send_byte(fd, program::sandboxed());
    look_at_kernel(fd, end);
    false
}

/// Handles the kernel's events of a carrier socket: FIN, RST, or bytes that should not be there.
pub fn news(fd: c_int, end: &Held, events: PollFlags) {
    let fd = end.fd(fd).unwrap_or(fd);
    kernel::news(end, thread::tid(), fd::borrow(fd), events, || sockopt::heard_before(fd));
}

/// Handles what `poll` reported of the daemon's session.
pub fn ended(daemon: Option<Watched>, polled: Option<&PollFd<'_>>) {
    if let (Some(daemon), Some(polled)) = (daemon, polled)
        && watch::has_ended(polled)
    {
        process::lost(daemon);
    }
}

/// The carrier socket, with the events that it can still report.
pub fn polled(fd: c_int, end: &Held) -> PollFd<'static> {
    let fd = end.fd(fd).unwrap_or(fd);
    PollFd::from_borrowed_fd(fd::borrow(fd), kernel::events(end))
}
