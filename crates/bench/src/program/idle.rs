//! The processor time of a hundred connections on which nothing moves.

use super::connect::{python, serve, with_script};
use super::process::{Server, processor_time};
use crate::place::Place;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Opens `connections` connections that stay idle, and measures for `time` how much of one processor (in percent)
/// the two programs and the processes `daemons` use in all.
///
/// # Errors
/// The programs do not start, or a process ends meanwhile.
pub fn idle(place: &dyn Place, connections: u32, time: Duration, daemons: &[u32]) -> Result<f64> {
    let port = place.port()?;
    let server = serve(place, port)?;
    let connections = connections.to_string();
    let client =
        Server::start_speaking(with_script(place.client(python())?, "hold", place, port, &[&connections]))?;
    let pids: Vec<u32> = daemons.iter().copied().chain([server.id(), client.id()]).collect();
    used(&pids, time)
}

/// How much of one processor, in percent, idle processes use in all, measured for `time`.
///
/// # Errors
/// A process ends meanwhile.
pub fn used(pids: &[u32], time: Duration) -> Result<f64> {
    let used = || {
        let times: Option<Vec<u64>> = pids.iter().map(|&pid| processor_time(pid)).collect();
        times.map(|times| times.iter().sum::<u64>()).context("a process ended while it should be idle")
    };
    // After-effects of the set-up (adaptive spinning, timers) end within a moment. The later sleep is no wait, but the
    // measurement.
    std::thread::sleep(Duration::from_millis(500));
    let (before, start) = (used()?, Instant::now());
    std::thread::sleep(time);
    let (after, elapsed) = (used()?, start.elapsed());
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    // Threads that have ended take their time with them.
    Ok(after.saturating_sub(before) as f64 / elapsed.as_nanos() as f64 * 100.0)
}
