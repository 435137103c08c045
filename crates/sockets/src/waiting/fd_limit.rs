//! Sleep under a limit of descriptors: `poll` refuses to look at more of them than the limit, however low their numbers
//! (`vsftpd` sets it to 0, `sshd` to 1). An epoll set that was made before has no such bound.

use crate::daemon::waiters::Waiter;
use crate::daemon::{process, watch};
use crate::descriptors::internal_fds;
use crate::descriptors::table::Held;
use crate::kernel::{polling, program, thread};
use crate::socket::carrier;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use crosslane_client::link::kernel;
use crosslane_shm::lock::Lock;
use libc::epoll_event;
use rustix::event::{PollFlags, Timespec};
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::time::Duration;

/// Key of the carrier socket in the set.
const QUIET: u64 = 1;
/// Key of the wake event.
const WAKE: u64 = 2;
/// Key of the daemon's session.
const DAEMON: u64 = 3;

/// The set; -1 if there is none.
static SET: AtomicI32 = AtomicI32::new(-1);
static LOCK: Lock = Lock::new();

/// Before a limit that leaves no room for descriptors of ours.
pub fn prepare() {
    if SET.load(Relaxed) < 0
        && let Ok(set) = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
    {
        SET.store(internal_fds::hide(set), Relaxed);
    }
}

/// In the child of `fork`: the set is the parent's.
pub fn after_fork() {
    LOCK.reset();
    let set = SET.swap(-1, Relaxed);
    if set >= 0 {
        internal_fds::close(set);
    }
}

/// Sleeps until the carrier socket `fd` of `end` has news or the waiter is rung; for at most `timeout` (`None` is for
/// ever), and without a set for `blind` only. Returns whether there was news.
pub fn doze(
    fd: c_int,
    end: &Held,
    waiter: Option<Waiter>,
    timeout: Option<Timespec>,
    blind: Duration,
) -> Result<bool, Errno> {
    let guard = LOCK.try_lock(thread::tid());
    let set = SET.load(Relaxed);
    if let (Some(_guard), Some(waiter), true) = (guard, waiter, set >= 0 && !program::sandboxed()) {
        return wait_in(set, fd, end, waiter, timeout.as_ref());
    }
    let blind = Timespec { tv_sec: 0, tv_nsec: blind.subsec_nanos().into() };
    let blind = timeout.filter(|time| (time.tv_sec, time.tv_nsec) < (0, blind.tv_nsec)).unwrap_or(blind);
    match look(fd, end, Some(&blind)) {
        Err(Errno::INVAL) => rustix::event::poll(&mut [], Some(&blind)).map(|_| false),
        outcome => outcome,
    }
}

/// The carrier socket alone.
fn look(fd: c_int, end: &Held, timeout: Option<&Timespec>) -> Result<bool, Errno> {
    let mut fds = [carrier::polled(fd, end)];
    let had_events = rustix::event::poll(&mut fds, timeout)? > 0;
    if had_events {
        carrier::news(fd, end, fds[0].revents());
    }
    Ok(had_events)
}

fn wait_in(
    set: RawFd,
    fd: c_int,
    end: &Held,
    waiter: Waiter,
    timeout: Option<&Timespec>,
) -> Result<bool, Errno> {
    let ms = timeout.map_or(-1, |time| {
        c_int::try_from(time.tv_sec * 1000 + (time.tv_nsec + 999_999) / 1_000_000).unwrap_or(c_int::MAX)
    });
    let asked = u32::from(kernel::events(end).bits()) | libc::EPOLLET.unsigned_abs();
    control(set, libc::EPOLL_CTL_ADD, fd, asked, QUIET);
    control(set, libc::EPOLL_CTL_ADD, waiter.fd, libc::EPOLLIN.unsigned_abs(), WAKE);
    let daemon = watch::present();
    if let Some(daemon) = daemon {
        control(set, libc::EPOLL_CTL_ADD, daemon.fd, 0, DAEMON);
    }
    let mut events = [epoll_event { events: 0, u64: 0 }; 3];
    let count = polling::wait(set, &mut events, ms);
    if let Some(daemon) = daemon {
        control(set, libc::EPOLL_CTL_DEL, daemon.fd, 0, DAEMON);
    }
    control(set, libc::EPOLL_CTL_DEL, fd, 0, QUIET);
    control(set, libc::EPOLL_CTL_DEL, waiter.fd, 0, WAKE);
    let count = count.map_err(Errno::from_raw_os_error)?;
    for event in events.iter().take(count).filter(|event| event.u64 == QUIET) {
        let news = PollFlags::from_bits_retain(u16::try_from(event.events & 0xffff).unwrap_or(0));
        carrier::news(fd, end, news);
    }
    if let (Some(daemon), true) = (daemon, events.iter().take(count).any(|event| event.u64 == DAEMON)) {
        process::lost(daemon);
    }
    Ok(count > 0)
}

fn control(set: RawFd, operation: c_int, fd: RawFd, events: u32, key: u64) {
    let _ = polling::control(set, operation, fd, epoll_event { events, u64: key });
}
