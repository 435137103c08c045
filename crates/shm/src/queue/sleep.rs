//! How the lander sleeps until one of many queues has something.

use super::{Reader, now};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use rustix::io::Errno;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, Timespec};

/// Most futexes of one system call, `FUTEX_WAITV_MAX`; one is our own.
const QUEUES_MAX: usize = 127;
/// First and longest time between two looks where not every queue can wake us, ns.
const LOOKS: (u64, u64) = (1_000_000, 50_000_000);
/// Longest time between two looks at all, ns: a writer that is killed between its store and its wake leaves the store there.
const LOOK_ANYWAY: u64 = 1_000_000_000;

/// Wakes the lander for what is no store.
#[derive(Debug, Default)]
pub struct Waker(AtomicU32);

impl Waker {
    /// Wakes it, now or when it wants to sleep.
    pub fn wake(&self) {
        self.0.fetch_add(1, Release);
        let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
    }

    /// Its present value: a sleep with an older one ends at once.
    pub fn value(&self) -> u32 {
        self.0.load(Acquire)
    }
}

/// Sleeps until a writer of one of `queues`, all of them [armed](Reader::arm) and looked at since, wakes us, `waker` has another
/// value than `value`, or it is `until`, ns. `quiet` is how long nothing was stored, ns: one looks again when as long has passed
/// once more, and more often where the kernel cannot wait for all of them.
pub fn sleep<'a>(
    queues: impl Iterator<Item = &'a Reader>,
    waker: (&Waker, u32),
    until: Option<u64>,
    quiet: u64,
) {
    let mut waits = vec![wait_for(&waker.0.0, waker.1)];
    let mut left = 0_usize;
    for queue in queues {
        if waits.len() > QUEUES_MAX {
            left += 1;
        } else {
            waits.push(wait_for(queue.wake_word(), queue.seen));
        }
    }
    let look = now() + quiet.clamp(LOOKS.0, LOOKS.1);
    let soon = until.unwrap_or(look).min(look);
    let anyway = now() + quiet.clamp(LOOKS.0, LOOK_ANYWAY);
    let by = Some(if left > 0 { soon } else { until.map_or(anyway, |until| until.min(anyway)) });
    let waited = futex::waitv(&waits, WaitvFlags::empty(), by.map(timespec).as_ref(), ClockId::Monotonic);
    // Woken, or no need to sleep; else the kernel cannot wait for many.
    if waited.is_err_and(|errno| ![Errno::AGAIN, Errno::TIMEDOUT, Errno::INTR].contains(&errno)) {
        let nap = timespec(soon.saturating_sub(now()));
        let _ = futex::wait(&waker.0.0, futex::Flags::empty(), waker.1, Some(&nap));
    }
}

fn wait_for(word: &AtomicU32, value: u32) -> Wait {
    let mut wait = Wait::new();
    wait.val = value.into();
    wait.uaddr = WaitPtr::new(word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

fn timespec(ns: u64) -> Timespec {
    let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    Timespec { tv_sec: seconds.cast_signed(), tv_nsec: rest.cast_signed() }
}

/// Lets this thread's sleeps end when they shall, and not up to 50 us later.
pub fn sleep_exactly() {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
