//! `poll` and `ppoll` over streams, epoll sets that hold streams, and kernel descriptors, in one call.
//!
//! ```text
//!   rings ready? --yes--> answer            (the kernel is asked first if it has descriptors of its own here)
//!      | no
//!   spin: rings at each round, the kernel each 10 us
//!      | in vain
//!   one waiter for all rings --> ppoll(kernel descriptors + quiet sockets + waiter + daemon) --> look again
//! ```

mod round;

use crate::hook::hook;
use crate::table::{self, Kind};
use crate::{epoll, own_calls, real, user};
use core::ffi::{c_int, c_short};
use core::mem::MaybeUninit;
use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};
use round::{EXTRA, Round};
use std::time::{Duration, Instant};

/// While rings are looked at, kernel descriptors are looked at this often.
pub const KERNEL_EVERY: Duration = Duration::from_micros(10);
/// Sleep of those who cannot be rung: another waiter is there first, or the daemon cannot be asked.
pub const BLIND: Duration = Duration::from_millis(5);
/// Descriptors that need no allocation.
const FEW: usize = 64;
/// The same in units of [`Moment`](crosslane_shm::clock::Moment).
pub const KERNEL_EVERY_UNITS: u64 = 400;

/// Among the events that are asked of a descriptor, none of the kernel's: it was open when the call began.
pub const WAS_OPEN: c_short = 0x4000;

/// How long a call may wait, from when it begins to: those that need not wait look at no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Not at all.
    Now,
    /// So long.
    After(Duration),
    /// For ever.
    Never,
}

/// Until when a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Not at all.
    Now,
    /// Until then.
    Until(Instant),
    /// For ever.
    Never,
}

/// As the kernel has it.
pub fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

hook! {
    /// `poll(2)`.
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: the program's promise to `poll`.
        let kernel = || unsafe { real::poll(fds, count, timeout) };
        ours(fds, count, |asked| Some(run(asked, Timeout::of_ms(timeout), core::ptr::null()))).unwrap_or_else(kernel)
    }

    /// `ppoll(2)`.
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: the program's promise to `ppoll`.
        let kernel = || unsafe { real::ppoll(fds, count, timeout, mask) };
        // SAFETY: the C library has read the time.
        let time = || Timeout::of_timespec(unsafe { timeout.as_ref() });
        ours(fds, count, |asked| time().map(|time| run(asked, time, mask))).unwrap_or_else(kernel)
    }

    /// `poll` as `_FORTIFY_SOURCE` has it.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        check(count, room);
        // SAFETY: the program's promise.
        unsafe { poll(fds, count, timeout) }
    }

    /// `ppoll` as `_FORTIFY_SOURCE` has it.
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int {
        check(count, room);
        // SAFETY: the program's promise.
        unsafe { ppoll(fds, count, timeout, mask) }
    }
}

/// Whether the kernel alone cannot answer for `fd`.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    match table::look(fd).map(|entry| entry.kind) {
        Some(Kind::Stream | Kind::Unknown) => true,
        Some(Kind::Epoll) => epoll::is_shadowed(fd),
        Some(Kind::Shy) => {
            own_calls::waited_for(fd);
            false
        }
        _ => false,
    }
}

/// Fills in `revents` and returns how many are not zero. `Err` is the error number for the program.
pub fn run(fds: &mut [pollfd], timeout: Timeout, mask: *const sigset_t) -> Result<usize, c_int> {
    let nothing = pollfd { fd: -1, events: 0, revents: 0 };
    if fds.len() <= FEW {
        let mut kernel = [nothing; FEW + EXTRA];
        let len = fds.len() + EXTRA;
        Round::new(fds, &mut kernel[..len]).wait(timeout, mask)
    } else {
        let mut kernel = vec![nothing; fds.len() + EXTRA];
        Round::new(fds, &mut kernel).wait(timeout, mask)
    }
}

impl Timeout {
    /// The C library's milliseconds.
    pub fn of_ms(ms: c_int) -> Self {
        match u64::try_from(ms) {
            Ok(ms) => Self::after(Duration::from_millis(ms)),
            Err(_) => Self::Never,
        }
    }

    /// A relative time; `None` if it is not valid.
    pub fn of_timespec(time: Option<&timespec>) -> Option<Self> {
        let Some(time) = time else { return Some(Self::Never) };
        let nanos = u32::try_from(time.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000)?;
        Some(Self::after(Duration::new(u64::try_from(time.tv_sec).ok()?, nanos)))
    }

    /// So long from when it begins.
    pub fn after(time: Duration) -> Self {
        if time.is_zero() { Self::Now } else { Self::After(time) }
    }

    /// From now on.
    pub fn begin(self) -> Limit {
        match self {
            Self::Now => Limit::Now,
            Self::After(time) => Instant::now().checked_add(time).map_or(Limit::Never, Limit::Until),
            Self::Never => Limit::Never,
        }
    }
}

impl Limit {
    /// Whether the time is up.
    pub fn is_over(self) -> bool {
        match self {
            Self::Now => true,
            Self::Until(end) => Instant::now() >= end,
            Self::Never => false,
        }
    }

    /// Time left, at most `cap`; `None` is for ever.
    pub fn left(self, cap: Option<Duration>) -> Option<Duration> {
        let left = match self {
            Self::Now => Some(Duration::ZERO),
            Self::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Never => None,
        };
        match (left, cap) {
            (Some(left), Some(cap)) => Some(left.min(cap)),
            (left, cap) => left.or(cap),
        }
    }
}

/// Does `wait` with a copy of the program's array, and tells the program what it found, if the kernel alone cannot answer for
/// it; `None`: it can, or `wait` says that the kernel is to.
fn ours(
    fds: *mut pollfd,
    count: nfds_t,
    wait: impl FnOnce(&mut [pollfd]) -> Option<Result<usize, c_int>>,
) -> Option<c_int> {
    let count = usize::try_from(count).ok().filter(|&count| (1..=table::MAX_FDS).contains(&count))?;
    if !table::met_any() {
        return None;
    }
    let (mut few, mut many) = ([const { MaybeUninit::<pollfd>::uninit() }; FEW], Vec::new());
    let asked = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, MaybeUninit::uninit());
        &mut many[..]
    };
    // SAFETY: any bytes are a `pollfd`.
    let asked = unsafe { user::load_all(fds, asked) }.ok()?;
    if !asked.iter().any(|asked| is_ours(asked.fd)) {
        return None;
    }
    let outcome = wait(asked)?.and_then(|found| tell(fds, asked).map(|()| found));
    Some(match outcome {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => real::fail(errno),
    })
}

/// Stores what was found in the program's array.
fn tell(fds: *mut pollfd, found: &[pollfd]) -> Result<(), c_int> {
    const REVENTS: usize = core::mem::offset_of!(pollfd, revents);
    found.iter().enumerate().try_for_each(|(at, found)| {
        let place = fds.wrapping_add(at).wrapping_byte_add(REVENTS).cast();
        // SAFETY: the program's array.
        unsafe { user::store(place, &found.revents) }
    })
}

/// An array that is shorter than its count: the program is broken, and ends as the C library would end it.
fn check(count: nfds_t, room: size_t) {
    if usize::try_from(count).is_ok_and(|count| room / size_of::<pollfd>() < count) {
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    }
}
