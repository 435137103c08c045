//! `SO_RCVTIMEO` and `SO_SNDTIMEO`.

use crate::descriptors::choice::Choice;
use crate::descriptors::table::Held;
use crate::kernel::sockopt;
use crate::waiting::wait;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crosslane_client::shared::Status;

/// Option numbers: the old one, and the one with 64-bit times (`SO_RCVTIMEO_NEW`, `SO_SNDTIMEO_NEW`).
pub const RECEIVE_NAMES: [c_int; 2] = [libc::SO_RCVTIMEO, 66];
/// See [`RECEIVE_NAMES`].
pub const SEND_NAMES: [c_int; 2] = [libc::SO_SNDTIMEO, 67];

/// Which calls an option's time-out is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Those that receive.
    Receive = 0,
    /// Those that send.
    Send = 1,
}

impl Timeout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Receive, Self::Send];

    /// Which calls an option of `SOL_SOCKET` is a time-out for, by its old or its 64-bit number.
    pub fn of(name: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|which| which.names().contains(&name))
    }

    fn names(self) -> [c_int; 2] {
        match self {
            Self::Receive => RECEIVE_NAMES,
            Self::Send => SEND_NAMES,
        }
    }

    /// The word of a stream's status that holds the time-out.
    pub fn word(self, status: &Status) -> &AtomicU32 {
        match self {
            Self::Receive => &status.receive_timeout,
            Self::Send => &status.send_timeout,
        }
    }
}

/// Called after the kernel accepted a time-out for `fd`. With a negative one calls do not wait, though the kernel
/// reports it as none.
pub fn given(fd: c_int, end: Option<&Held>, which: Timeout, given: libc::timeval) {
    let at_once = given.tv_sec < 0;
    match end {
        Some(end) if at_once => which.word(&end.shared().status).store(wait::AT_ONCE, Relaxed),
        Some(_) => {}
        None => keep(fd, which, at_once),
    }
}

/// Called when a socket becomes a stream: applies negative time-outs, which the kernel does not report.
pub fn begin(choice: &Choice, end: &Held) {
    for which in Timeout::ALL.into_iter().filter(|which| choice.at_once[*which as usize]) {
        which.word(&end.shared().status).store(wait::AT_ONCE, Relaxed);
    }
}

/// Copies the kernel's value to the stream `fd`.
pub fn take(fd: c_int, end: &Held, which: Timeout) {
    let Some(value) = sockopt::time(fd, which.names()[0]) else { return };
    let ms = value.tv_sec.saturating_mul(1000).saturating_add((value.tv_usec + 999) / 1000);
    let ms = u32::try_from(ms).unwrap_or(wait::AT_ONCE).min(wait::AT_ONCE - 1);
    which.word(&end.shared().status).store(ms, Relaxed);
}

/// Records whether a time-out set for `fd`, which is no stream, is negative: the kernel does not report that later.
fn keep(fd: c_int, which: Timeout, at_once: bool) {
    let mut choice = Choice::of(fd);
    if choice.at_once[which as usize] != at_once && sockopt::is_tcp(fd) {
        choice.at_once[which as usize] = at_once;
        choice.keep(fd);
    }
}
