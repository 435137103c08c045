//! The least time that a packet's way through two daemons can take: sleepers that only wake each other.

use anyhow::{Context, Result, anyhow, ensure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, retry_on_intr, write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread waits for another, which can only be late.
const PEER_TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Mean time, us, from a thread's ring until the answer wakes it. The first relay is woken, wakes the second, and looks
/// for its answer without sleeping, as a daemon does; then it wakes the asker. All sleep for `pause` before each of
/// `rounds`.
///
/// # Errors
/// There are no eventfds, or no threads.
pub(super) fn relay(rounds: u32, pause: Duration) -> Result<f64> {
    let event = || eventfd(0, EventfdFlags::CLOEXEC).context("eventfd");
    let [first, second, asker] = [event()?, event()?, event()?];
    let answered = AtomicU32::new(0);
    thread::scope(|scope| {
        let near = scope.spawn(|| -> Result<()> {
            for round in 1..=rounds {
                await_ring(&first)?;
                wake(&second)?;
                look(&answered, round)?;
                wake(&asker)?;
            }
            Ok(())
        });
        let far = scope.spawn(|| -> Result<()> {
            for round in 1..=rounds {
                await_ring(&second)?;
                answered.store(round, Ordering::Release);
            }
            Ok(())
        });
        let mut spent = Duration::ZERO;
        for _ in 0..rounds {
            thread::sleep(pause);
            let start = Instant::now();
            wake(&first)?;
            await_ring(&asker)?;
            spent += start.elapsed();
        }
        for relay in [near, far] {
            relay.join().map_err(|_| anyhow!("a relay failed"))??;
        }
        Ok(spent.as_secs_f64() * 1e6 / f64::from(rounds))
    })
}

fn wake(event: &OwnedFd) -> Result<()> {
    retry_on_intr(|| write(event, &1_u64.to_ne_bytes())).context("cannot wake")?;
    Ok(())
}

fn await_ring(event: &OwnedFd) -> Result<()> {
    let mut polled = [PollFd::new(event, PollFlags::IN)];
    ensure!(retry_on_intr(|| poll(&mut polled, Some(&PEER_TIMEOUT)))? == 1, "nobody rang");
    read(event, &mut [0; 8]).context("cannot read the event")?;
    Ok(())
}

/// Looks for the answer of this round, without sleep.
fn look(answered: &AtomicU32, round: u32) -> Result<()> {
    let end = Instant::now() + Duration::try_from(PEER_TIMEOUT)?;
    while answered.load(Ordering::Acquire) != round {
        ensure!(Instant::now() < end, "no answer");
        std::hint::spin_loop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_answers_every_round() {
        let mean = relay(20, Duration::from_millis(1)).unwrap();
        assert!(mean > 0.0 && mean < 5e6, "{mean} us");
    }
}
