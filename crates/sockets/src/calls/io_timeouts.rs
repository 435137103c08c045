//! `SO_RCVTIMEO` and `SO_SNDTIMEO`.

use crate::descriptors::choice::Choice;
use crate::descriptors::table::Held;
use crate::kernel::sockopt;
use crate::waiting::wait;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crosslane_client::shared::Status;

/// The options by their old numbers, and by those with a time of 64 bits everywhere (`SO_RCVTIMEO_NEW`, `SO_SNDTIMEO_NEW`).
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

    /// What an option of `SOL_SOCKET` is a time-out for, by its old name or the one with a time of 64 bits everywhere.
    pub fn of(name: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|which| which.names().contains(&name))
    }

    fn names(self) -> [c_int; 2] {
        match self {
            Self::Receive => RECEIVE_NAMES,
            Self::Send => SEND_NAMES,
        }
    }

    /// Where a stream has it.
    pub fn word(self, status: &Status) -> &AtomicU32 {
        match self {
            Self::Receive => &status.receive_timeout,
            Self::Send => &status.send_timeout,
        }
    }
}

/// After the kernel accepted a time-out for `fd`: with a negative one calls wait for nothing, though the kernel says afterwards
/// that there is none.
pub fn given(fd: c_int, end: Option<&Held>, which: Timeout, given: libc::timeval) {
    let at_once = given.tv_sec < 0;
    match end {
        Some(end) if at_once => which.word(&end.shared().status).store(wait::AT_ONCE, Relaxed),
        Some(_) => {}
        None => keep(fd, which, at_once),
    }
}

/// A socket becomes a stream: what the kernel does not tell counts for it too.
pub fn begin(choice: &Choice, end: &Held) {
    for which in Timeout::ALL.into_iter().filter(|which| choice.at_once[*which as usize]) {
        which.word(&end.shared().status).store(wait::AT_ONCE, Relaxed);
    }
}

/// The kernel's value counts for the stream `fd` from now on.
pub fn take(fd: c_int, end: &Held, which: Timeout) {
    let Some(value) = sockopt::time(fd, which.names()[0]) else { return };
    let ms = value.tv_sec.saturating_mul(1000).saturating_add((value.tv_usec + 999) / 1000);
    let ms = u32::try_from(ms).unwrap_or(wait::AT_ONCE).min(wait::AT_ONCE - 1);
    which.word(&end.shared().status).store(ms, Relaxed);
}

/// A time-out was set for `fd`, which is no stream: whether it is a negative one, which the kernel does not tell later.
fn keep(fd: c_int, which: Timeout, at_once: bool) {
    let mut choice = Choice::of(fd);
    if choice.at_once[which as usize] != at_once && sockopt::is_tcp(fd) {
        choice.at_once[which as usize] = at_once;
        choice.keep(fd);
    }
}
