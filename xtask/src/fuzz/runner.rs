//! One run of one target.

use super::output::Progress;
use super::targets::Target;
use crate::sources::shown;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest that one input may take.
const STUCK: Duration = Duration::from_secs(25);
/// So much longer than it should a run may take: to start, and to run what is known.
const SPARE: Duration = Duration::from_secs(90);
/// A round is not begun for less than this.
const LEAST: Duration = Duration::from_secs(1);
/// Random inputs that a search begins with, beside those that are known.
const SEEDS: u32 = 16;
/// Most resident memory of a target, MB.
const MEMORY_MB: u32 = 4096;

/// Where a target runs, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    /// The root of the repository.
    pub(crate) root: &'a Path,
    /// Where inputs and logs are kept between runs.
    pub(crate) folder: &'a Path,
    /// For temporary files, taken away later.
    pub(crate) temporary: PathBuf,
    /// The test program.
    pub(crate) program: &'a Path,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Its progress.
    pub(crate) progress: Progress,
    /// What is wrong, if anything is.
    pub(crate) fault: Option<String>,
    /// Why the target cannot run on this machine, if it says so.
    pub(crate) skipped: Option<String>,
    /// Inputs that show it.
    pub(crate) inputs: Vec<PathBuf>,
}

impl Place<'_> {
    /// The inputs of earlier runs.
    pub(crate) fn grown(&self, target: &Target) -> PathBuf {
        self.folder.join("corpus").join(target.name)
    }

    /// What the last run said.
    pub(crate) fn log(&self, target: &Target) -> PathBuf {
        self.folder.join("log").join(format!("{}.log", target.name))
    }

    /// What it printed, as tests do: in the end, or why it cannot run.
    fn printed(&self, target: &Target) -> PathBuf {
        self.folder.join("log").join(format!("{}.out", target.name))
    }

    /// The test program, told to run the target under libFuzzer with `arguments`.
    pub(crate) fn command(&self, target: &Target, arguments: &[String]) -> Command {
        let mut command = Command::new(self.program);
        command.args([&target.path(), "--exact", "--nocapture", "--quiet", "--test-threads", "1"]);
        command.env("BOLERO_LIBFUZZER_ARGS", arguments.join(" ")).env("TMPDIR", &self.temporary);
        // Ctrl-C is ours to handle: a group of its own.
        command.current_dir(self.root).process_group(0).stdin(Stdio::null());
        command
    }

    /// Searches for `time`; ends early once `stop` is set. `progress` is kept up to date.
    pub(crate) fn search(
        &self,
        target: &Target,
        (time, seed): (Duration, u32),
        progress: &Mutex<Progress>,
        stop: &AtomicBool,
    ) -> Result<Outcome> {
        let crashes = self.root.join(target.folder()).join("crashes");
        let (before, end) = (files(&crashes), Instant::now() + time);
        fs::create_dir_all(&crashes)?;
        let (mut fault, mut skipped) = (None, None);
        for round in 0.. {
            let rest = end.saturating_duration_since(Instant::now());
            if fault.is_some()
                || skipped.is_some()
                || stop.load(Ordering::Relaxed)
                || (round > 0 && rest < LEAST)
            {
                break;
            }
            fault = self.round(target, (rest.max(LEAST), seed.wrapping_add(round)), progress, stop)?;
            skipped = skip(&fs::read_to_string(self.printed(target)).unwrap_or_default());
        }
        let fault = fault.filter(|_| skipped.is_none());
        let inputs: Vec<PathBuf> = files(&crashes).difference(&before).cloned().collect();
        // Empty ones are of no use to anybody.
        crashes.ancestors().take(3).try_for_each(fs::remove_dir).ok();
        let progress = *progress.lock().map_err(|_| anyhow::anyhow!("a listener panicked"))?;
        Ok(Outcome { progress, fault, skipped, inputs })
    }

    /// Runs the program once; returns what is wrong, if anything.
    fn round(
        &self,
        target: &Target,
        (time, seed): (Duration, u32),
        progress: &Mutex<Progress>,
        stop: &AtomicBool,
    ) -> Result<Option<String>> {
        let arguments = self.search_arguments(target, time, seed)?;
        fs::create_dir_all(self.folder.join("log"))?;
        let printed = File::create(self.printed(target))?;
        let mut child = self.command(target, &arguments).stdout(printed).stderr(Stdio::piped()).spawn()?;
        let listener = listen(&mut child, &self.log(target))?;
        let before = begin(progress);
        let status = std::thread::scope(|scope| {
            scope.spawn(|| listener.listen(progress));
            watch(&mut child, Instant::now() + time + SPARE, stop)
        })?;
        let inputs = progress.lock().map_or(0, |progress| progress.inputs() - before);
        Ok(fault(status, inputs, stop.load(Ordering::Relaxed)))
    }

    fn search_arguments(&self, target: &Target, time: Duration, seed: u32) -> Result<Vec<String>> {
        let grown = self.grown(target);
        fs::create_dir_all(&grown).with_context(|| format!("make {}", grown.display()))?;
        let crashes = self.root.join(target.folder()).join("crashes");
        let mut arguments = vec![shown(self.root, &grown)];
        let kept = [crashes.clone(), self.root.join(target.folder()).join("corpus"), self.sow(target, seed)?];
        arguments.extend(kept.iter().filter(|folder| folder.is_dir()).map(|folder| shown(self.root, folder)));
        if target.fresh > 0 {
            arguments.push(format!("-runs={}", target.fresh));
        }
        arguments.extend([
            format!("-max_total_time={}", time.as_secs().max(1)),
            // 0 would let libFuzzer choose.
            format!("-seed={}", seed.max(1)),
            format!("-max_len={}", target.max_len),
            format!("-timeout={}", STUCK.as_secs()),
            format!("-rss_limit_mb={MEMORY_MB}"),
            format!("-artifact_prefix={}/", shown(self.root, &crashes)),
            "-len_control=20".to_owned(),
            "-print_final_stats=1".to_owned(),
            "-report_slow_units=1000".to_owned(),
        ]);
        Ok(arguments)
    }
}

impl Place<'_> {
    /// Makes random inputs of all lengths. Inputs that libFuzzer makes from nothing grow by a byte now and then: a
    /// target of a few inputs a second would never see more than one step.
    fn sow(&self, target: &Target, seed: u32) -> Result<PathBuf> {
        let folder = self.folder.join("seeds").join(target.name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut random = fastrand::Rng::with_seed(seed.into());
        for number in 1..=SEEDS {
            let input: Vec<u8> = (0..target.max_len * number / SEEDS).map(|_| random.u8(..)).collect();
            fs::write(folder.join(number.to_string()), input)?;
        }
        Ok(folder)
    }
}

/// Another round begins: what was counted before it.
fn begin(progress: &Mutex<Progress>) -> u64 {
    progress.lock().map_or(0, |mut progress| {
        progress.begin();
        progress.inputs()
    })
}

/// Why a target says that it cannot run here.
fn skip(printed: &str) -> Option<String> {
    printed.lines().find_map(|line| line.strip_prefix("SKIPPED: ")).map(str::to_owned)
}

/// The error of a round of so many inputs with this exit status.
fn fault(status: Option<ExitStatus>, inputs: u64, stopped: bool) -> Option<String> {
    match status {
        _ if stopped => None,
        None => Some("it did not end".to_owned()),
        Some(status) if !status.success() => Some(format!("it failed ({status})")),
        Some(_) if inputs == 0 => Some("it ran no input at all".to_owned()),
        Some(_) => None,
    }
}

/// Waits for the end of `child`; ends it itself at `end` (`None` then) and once `stop` is set.
fn watch(child: &mut Child, end: Instant, stop: &AtomicBool) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let late = Instant::now() >= end;
        if late || stop.load(Ordering::Relaxed) {
            child.kill()?;
            let status = child.wait()?;
            return Ok(Some(status).filter(|_| !late));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Reads the output of a target.
struct Listener {
    lines: BufReader<std::process::ChildStderr>,
    log: File,
}

fn listen(child: &mut Child, log: &Path) -> Result<Listener> {
    let lines = BufReader::new(child.stderr.take().context("no stderr")?);
    Ok(Listener { lines, log: File::create(log)? })
}

impl Listener {
    fn listen(mut self, progress: &Mutex<Progress>) {
        let mut line = Vec::new();
        while self.lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let _ = self.log.write_all(&line);
            if let Ok(mut progress) = progress.lock() {
                progress.read(String::from_utf8_lossy(&line).trim_end());
            }
            line.clear();
        }
    }
}

/// The files of a folder.
pub(crate) fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn target_that_ran_nothing_fails_unless_skipped() {
        let end = Some(ExitStatus::from_raw(0));
        assert_eq!(fault(end, 1, false), None);
        assert!(fault(end, 0, false).is_some() && fault(None, 1, false).is_some());
        assert!(fault(Some(ExitStatus::from_raw(6)), 9, false).is_some());
        assert_eq!(skip("running 1 test\nSKIPPED: no interface\n"), Some("no interface".to_owned()));
        assert_eq!(skip("test any ... ok\n"), None);
    }
}
