//! Samples of the kernel on all processors, by `perf`.
//!
//! `perf record` runs `cat` for us, whose input we hold: when we close it, or end in whatever way, `cat` ends and
//! `perf` with it. Its output lies in a folder of the lab, which goes with the lab.

use super::attribute::Profile;
use crate::program::process::find;
use crate::speaker::Reaped;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

/// Samples a second and processor; not a round number, so that no timer keeps step with it.
const RATE: &str = "3989";
/// The workload of `perf`: reports that sampling has begun, and waits for our end.
const WAIT: &str = "echo; exec cat";

/// Where the kernel lists its tracers; the first is there on most machines, the second where only debugfs is mounted.
const TRACERS: [&str; 2] =
    ["/sys/kernel/tracing/available_tracers", "/sys/kernel/debug/tracing/available_tracers"];

/// A running sampling.
pub struct Sampler {
    perf: Reaped,
    input: ChildStdin,
    log: File,
    data: PathBuf,
}

impl Sampler {
    /// Begins to sample all processors, and returns when it does.
    ///
    /// There is no `perf`, or the kernel does not permit it: the error says what to do.
    /// There is no `perf`, or the kernel does not let us: in words that say what to do.
    pub fn start(folder: &Path) -> Result<Self> {
        let program = find("perf").context("perf is not installed (Debian: apt-get install linux-perf)")?;
        let (data, log) = (folder.join("stack.perf"), tempfile::tempfile()?);
        let mut command = Command::new(program);
        command.args(["record", "-q", "-a", "-g", "-B", "-e", "cpu-clock", "-F", RATE, "-o"]).arg(&data);
        command.args(["--", "sh", "-c", WAIT]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.try_clone()?);
        let mut perf = Reaped(command.spawn().context("cannot start perf")?);
        let input = perf.0.stdin.take().context("no input")?;
        let output = perf.0.stdout.take().context("no output")?;
        let mut sampler = Self { perf, input, log, data };
        // Its output ends at once if perf refuses.
        match BufReader::new(output).read_line(&mut String::new()) {
            Ok(1) => Ok(sampler),
            _ => Err(sampler.refusal()),
        }
    }

    /// Ends sampling, and attributes the samples of `pids` to their parts.
    ///
    /// # Errors
    /// What `perf` wrote cannot be read, or has no names of kernel functions.
    pub fn stop(self, pids: &[u32]) -> Result<Profile> {
        let Self { mut perf, input, log: _log, data } = self;
        drop(input);
        let status = perf.0.wait()?;
        let profile = read(&data, pids);
        let _ = std::fs::remove_file(&data);
        ensure!(status.success(), "perf record failed ({status})");
        profile
    }

    fn refusal(&mut self) -> anyhow::Error {
        let mut words = String::new();
        let _ = self.log.rewind().and_then(|()| self.log.read_to_string(&mut words));
        let said = words.lines().map(str::trim).find(|line| !line.is_empty() && *line != "Error:");
        let line = said.unwrap_or("it does not say why");
        anyhow!("perf cannot sample: {line} (run as root, or `sysctl kernel.perf_event_paranoid=-1`)")
    }
}

fn read(data: &Path, pids: &[u32]) -> Result<Profile> {
    let program = find("perf").context("perf is gone")?;
    let mut command = Command::new(program);
    command.args(["script", "-F", "pid,ip,sym", "--no-inline", "-i"]).arg(data);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut script = Reaped(command.spawn().context("cannot start perf script")?);
    let output = script.0.stdout.take().context("no output")?;
    let profile = Profile::read(BufReader::new(output), pids)?;
    let status = script.0.wait()?;
    ensure!(status.success(), "perf script failed ({status})");
    Ok(profile)
}

/// Why functions are sampled rather than traced, in one line.
pub fn why_sampled() -> String {
    match TRACERS.iter().find_map(|path| std::fs::read_to_string(path).ok()) {
        None => {
            "the kernel's tracers cannot be read (tracefs is not mounted, or not for this user)".to_owned()
        }
        Some(tracers) if tracers.split_whitespace().any(|tracer| tracer == "function_graph") => {
            "function_graph is there and is not used: it would stop at each function, sampling does not"
                .to_owned()
        }
        Some(tracers) => {
            let tracers = tracers.trim();
            format!("this kernel has no function_graph (tracers: {tracers}): CONFIG_FUNCTION_GRAPH_TRACER")
        }
    }
}
