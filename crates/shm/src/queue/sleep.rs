//! How the lander sleeps until one of many queues has an entry.

use super::{Reader, now};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use rustix::io::Errno;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, Timespec};

/// Most queues of one sleep: one system call waits for `FUTEX_WAITV_MAX` futexes, of which one is the lander's own.
pub const QUEUES_MAX: usize = 127;
/// First and longest time between two looks, ns, where not every queue can wake the lander.
const LOOKS: (u64, u64) = (1_000_000, 50_000_000);
/// Longest time between two looks in all cases, ns: a writer that is killed between its store and its wake wakes no lander.
const LOOK_ANYWAY: u64 = 1_000_000_000;

/// Wakes the lander for other reasons than a store.
#[derive(Debug, Default)]
pub struct Waker(AtomicU32);

impl Waker {
    /// Wakes the lander, now or as soon as it is about to sleep.
    pub fn wake(&self) {
        self.0.fetch_add(1, Release);
        let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
    }

    /// The present value: a sleep that is given an older one ends at once.
    pub fn value(&self) -> u32 {
        self.0.load(Acquire)
    }
}

/// Sleeps until a writer of one of `queues` wakes the lander, `waker` has another value than `value`, or the time `until`
/// (ns) is reached. These queues were [armed](Reader::arm), and then all were looked at; only [`QUEUES_MAX`] of them can wake, and
/// there may be `others`. `quiet` is how long, ns, no store came: the sleep lasts at most as long again, and less where not every
/// queue can end it.
pub fn sleep<'a>(
    queues: impl Iterator<Item = &'a Reader>,
    others: bool,
    waker: (&Waker, u32),
    until: Option<u64>,
    quiet: u64,
) {
    let mut waits = vec![wait_for(&waker.0.0, waker.1)];
    waits.extend(queues.take(QUEUES_MAX).map(|queue| wait_for(queue.wake_word(), queue.seen)));
    let look = now() + quiet.clamp(LOOKS.0, LOOKS.1);
    let soon = until.unwrap_or(look).min(look);
    let anyway = now() + quiet.clamp(LOOKS.0, LOOK_ANYWAY);
    let by = Some(if others { soon } else { until.map_or(anyway, |until| until.min(anyway)) });
    let waited = futex::waitv(&waits, WaitvFlags::empty(), by.map(timespec).as_ref(), ClockId::Monotonic);
    // The lander was woken, or need not sleep; any other errno: the kernel cannot wait for several futexes.
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

/// Lets this thread's sleeps end on time, instead of up to 50 us late.
pub fn sleep_exactly() {
    // SAFETY: only numbers are passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
