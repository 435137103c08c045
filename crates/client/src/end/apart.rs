//! Two threads that wait for each other on one processor.
//!
//! On one processor, a thread that spins keeps the far side from running, and a thread that sleeps costs each message a sleep
//! and a wake-up. The kernel can leave two such threads together for seconds although another processor is idle: the thread
//! that wakes the other is about to sleep, so its processor looks like a good place. So a thread whose waits have found the
//! far side on its own processor for some milliseconds steps aside: for a moment it may run on all processors but this one.

use super::CircuitEnd;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_wire::record::CPU_MASK;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the connecting end tolerates the far side on its processor, ms. One end moves first, or both would meet again.
const CLIENT_PATIENCE_MS: u32 = 2;
/// How long the accepting end tolerates it, ms.
const SERVER_PATIENCE_MS: u32 = 6;
/// Shortest time between two moves of a thread; doubled after each move that came soon after another, up to...
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// ...this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    /// When this thread moved last, and how long it must stay after that.
    static LAST: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// Whether the far side's last record came from the processor that this thread runs on, and not from one of another machine.
fn is_same_processor(end: &CircuitEnd) -> bool {
    if !end.has_near_writer() {
        return false;
    }
    let mine = u32::try_from(sched_getcpu()).unwrap_or(u32::MAX) & u32::from(CPU_MASK);
    end.shared().receiving.peer_cpu.load(Relaxed) == mine
}

/// How long to spin for the far side of `end`, ns: `ns`, or 0 where a spin keeps the far side from running. `may_move`:
/// whether this thread may move to another processor.
#[inline]
pub fn spin_ns(end: &CircuitEnd, ns: u32, may_move: bool) -> u32 {
    if ns == 0 {
        return 0;
    }
    let since = &end.shared().receiving.crowded_since;
    if is_same_processor(end) {
        return if may_move && is_over(end) && step_aside() { ns } else { 0 };
    }
    if since.load(Relaxed) != 0 {
        since.store(0, Relaxed);
    }
    ns
}

/// Whether both ends were on one processor at each wait, for longer than this end tolerates.
#[cold]
fn is_over(end: &CircuitEnd) -> bool {
    let (since, now) = (&end.shared().receiving.crowded_since, now_ms());
    let before = since.load(Relaxed);
    if before == 0 {
        since.store(now, Relaxed);
        return false;
    }
    let is_client = end.shared().status.client.load(Relaxed) != 0;
    now.wrapping_sub(before) >= if is_client { CLIENT_PATIENCE_MS } else { SERVER_PATIENCE_MS }
}

/// Milliseconds of the monotonic clock, never 0.
fn now_ms() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u32::try_from((now.tv_sec * 1000 + now.tv_nsec / 1_000_000) & 0xffff_ffff).unwrap_or(1).max(1)
}

/// Moves this thread to another processor, unless it moved a moment ago.
fn step_aside() -> bool {
    let now = Instant::now();
    let pause = match LAST.try_with(Cell::get) {
        Ok(Some((last, pause))) if now - last < pause => return false,
        Ok(Some((last, pause))) if now - last < 4 * pause => (2 * pause).min(LONGEST_PAUSE),
        _ => FIRST_PAUSE,
    };
    let _ = LAST.try_with(|cell| cell.set(Some((now, pause))));
    leave_processor()
}

/// Makes the kernel move this thread to another processor, and then restores the set of processors that it may use.
fn leave_processor() -> bool {
    let Ok(before) = sched_getaffinity(None) else { return false };
    let mut others = before;
    others.unset(sched_getcpu());
    if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
        return false;
    }
    // A set of processors that a thread asks for stays even if the host's set changes: a thread that may run everywhere
    // must not have asked for just the processors of today.
    let after = if is_everywhere(&before) { everywhere() } else { before };
    sched_setaffinity(None, &after).is_ok()
}

fn everywhere() -> CpuSet {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    all
}

/// Whether the set contains all processors that are online.
fn is_everywhere(set: &CpuSet) -> bool {
    static ONLINE: OnceLock<usize> = OnceLock::new();
    let online = *ONLINE.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        count(text.trim()).unwrap_or(usize::MAX)
    });
    usize::try_from(set.count()).is_ok_and(|count| count >= online)
}

/// How many numbers a list such as `0-3,8` contains.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |all, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        Some(all + last.checked_sub(first)? + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_leaves_its_processor_and_may_come_back() {
        let before = sched_getaffinity(None).unwrap();
        for _ in 0..20 {
            let from = sched_getcpu();
            if leave_processor() {
                // The kernel may have moved the thread back already, but only after it had left: most attempts show that.
                if sched_getcpu() != from {
                    assert_eq!(sched_getaffinity(None).unwrap(), before);
                    return;
                }
            } else {
                assert_eq!(before.count(), 1, "there is another processor");
                return;
            }
        }
        panic!("20 times it was where it had been");
    }

    #[test]
    fn moving_apart_rests_between_steps() {
        if step_aside() {
            assert!(!step_aside(), "at once again");
        }
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0-3,8"), Some(5));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }

    #[test]
    fn thread_that_is_bound_stays_bound() {
        std::thread::spawn(|| {
            let mut one = CpuSet::new();
            one.set(sched_getcpu());
            sched_setaffinity(None, &one).unwrap();
            assert!(!leave_processor());
            assert_eq!(sched_getaffinity(None).unwrap(), one);
        })
        .join()
        .unwrap();
    }
}
