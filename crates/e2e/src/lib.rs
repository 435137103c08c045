//! End-to-end tests: unmodified programs in a lab. Tests compare the bytes, and ask the daemons' counters whether the
//! fabric carried them.
//!
//! * [`rig`]: a lab for one test, programs in its hosts, and what the daemons counted.
//! * [`program`]: a running program: its output, its end, and that it does end.
//! * [`reach`]: which hosts a host reaches, and over how many cables.
//! * [`payload`]: bytes to send, and whether they arrived.
//! * [`package`]: programs that may not be installed: a test is skipped with a line then, and fails in continuous integration.
//! * [`honest`], [`attacks`]: users who must notice nothing, and programs that do harm.
//! * [`soak`]: transfers round a ring, compared, while everything is cut and killed.
//! * [`podman`]: containers of `dist/containers`.
//! * [`apps`]: the programs that measurements start too, in a lab.
//! * One module for each other unmodified program: how to start it, and what to ask of it.
//!
//! The tests are in `tests/`, by theme. They need the release build of the whole workspace (`make build`).

pub mod apps;
pub mod attacks;
pub mod echo;
pub mod go;
pub mod honest;
pub mod iperf3;
pub mod memcached;
pub mod netperf;
pub mod nfs;
pub mod nginx;
pub mod nodejs;
pub mod openssh;
pub mod own_calls;
pub mod package;
pub mod payload;
pub mod podman;
pub mod postgres;
pub mod program;
pub mod python;
pub mod qperf;
pub mod raw;
pub mod reach;
pub mod redis;
pub mod rig;
pub mod soak;
pub mod sockperf;
pub mod steps;
pub mod uvloop;

use anyhow::Context;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// How long a server may take to listen, or a daemon to reach an expected state.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a client may take for all of its work.
pub const WORK: Duration = Duration::from_secs(60);
/// Pause between two looks at something that has no event to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Seed of a test's random choices: `CROSSLANE_SEED`, or a new one each time. It is printed.
pub fn seed() -> u64 {
    let given = std::env::var("CROSSLANE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::from(now.subsec_nanos())
    });
    println!("seed {seed}: CROSSLANE_SEED={seed} repeats it");
    seed
}

/// A program of this package, of the same build as the program that asks.
///
/// # Errors
/// The path of the running program is not known.
pub fn own_program(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    // A test's executable lies in `deps`, the programs in the folder above.
    let folder = own.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    Ok(folder.context("no folder")?.join(name))
}

/// Polls until `holds` gives something; the error says that `what` did not come, and what `holds` saw last.
///
/// # Errors
/// Nothing came within `patience`.
pub fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut holds: impl FnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match holds() {
            Ok(value) => return Ok(value),
            Err(seen) if Instant::now() >= deadline => {
                anyhow::bail!("not within {} s: {what}: {seen}", patience.as_secs())
            }
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}
