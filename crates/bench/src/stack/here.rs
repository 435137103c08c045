//! A sender and a receiver on this very machine, and what their messages cost: ours count themselves, the kernel's TCP is traced.

use super::Outcome;
use super::graph::Tracer;
use super::part::{Cycles, Part};
use super::rig::{Pair, every};
use crate::place::{Here, Place};
use anyhow::{Context, Result, ensure};
use crosslane_shm::account::{self, Counts};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whose messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Streams inside this host: the library is preloaded into this program.
    Ours,
    /// The kernel's TCP over loopback.
    Kernel,
}

/// What this machine said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    /// The result.
    pub outcome: Outcome,
    /// Functions of the kernel that were seen, and how often they were called.
    pub calls: Vec<(String, u64)>,
    /// The kernel's release.
    pub kernel: String,
    /// TCP's congestion control.
    pub congestion: String,
}

/// Sends messages of `size` bytes for `time`: once as it is, for rate and processor time, and once counted or traced.
///
/// # Errors
/// A program fails, ours counted nothing, or the kernel cannot be traced.
pub fn measure(by: By, size: usize, time: Duration) -> Result<Said> {
    let (place, clock) = (Here::new()?, account::ticks_per_second());
    let mut pair = Pair::start(&place, size, time, None)?;
    let done = pair.run(size)?;
    let mut outcome = Outcome { rate: done.rate(), programs: done.programs(clock), ..Outcome::default() };
    let calls = match by {
        By::Ours => count(&place, size, time, &mut outcome).map(|()| Vec::new()),
        By::Kernel => trace(&place, size, time, &mut outcome),
    }?;
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(Said { outcome, calls, kernel, congestion: pair.congestion })
}

fn count(place: &Here, size: usize, time: Duration, outcome: &mut Outcome) -> Result<()> {
    let files = ["sender", "receiver"].map(|name| place.folder().join(name));
    let mut pair = Pair::start(place, size, time, Some(&files))?;
    let done = pair.run(size)?;
    let read = files.iter().map(|path| Counts::read(path)).collect::<std::io::Result<Vec<_>>>();
    let counts = read.context("nothing is counted")?.iter().fold(Counts::default(), |all, one| all.plus(one));
    let calls: u64 = every().map(|(way, function)| counts.of(way, function).calls).sum();
    ensure!(calls > 0, "the connection was not accelerated");
    outcome.cycles = Cycles::counted(&counts, done.messages);
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let spans = calls as f64 / done.messages.max(1) as f64;
    (outcome.counting, outcome.counted_rate) = (Some(spans * account::overhead().whole), Some(done.rate()));
    Ok(())
}

fn trace(place: &Here, size: usize, time: Duration, outcome: &mut Outcome) -> Result<Vec<(String, u64)>> {
    let mut pair = Pair::start(place, size, time, None)?;
    let tracer = Tracer::start(&pair.pids)?;
    let done = pair.run(size)?;
    let graph = tracer.stop()?;
    outcome.cycles = graph.cycles(done.messages, account::ticks_per_second());
    ensure!(outcome.cycles.of(Part::SendOther).is_some(), "none of TCP's functions was seen");
    outcome.counted_rate = Some(done.rate());
    Ok(graph.calls().into_iter().map(|(name, calls)| (name.to_owned(), calls)).collect())
}
