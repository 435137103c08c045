//! `cargo xtask fuzz`: runs the fuzz targets, guided by coverage, on a stable toolchain.
//!
//! The targets are bolero's, beside the code that they try. `cargo test` runs each for a moment, on the inputs that the
//! repository keeps and on random ones; here they are built with libFuzzer.

mod args;
mod build;
mod keep;
mod output;
mod runner;
pub(crate) mod targets;

use crate::sources::shown;
use anyhow::{Context, Result, bail};
use args::Arguments;
use output::Progress;
use runner::{Outcome, Place};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use targets::Target;

/// How often progress is printed.
const NEWS: Duration = Duration::from_secs(10);
/// Lines of a failed target's log that are printed.
const TAIL: usize = 40;

/// Runs the command.
pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<()> {
    let Some(arguments) = args::read(arguments)? else { return Ok(()) };
    let programs = build::build(root, &arguments.targets)?;
    let temporary = Temporary::new()?;
    let folder = build::folder(root);
    let campaign =
        Campaign { root, folder: &folder, programs, temporary: &temporary.0, arguments: &arguments };
    if arguments.keep { campaign.keep() } else { campaign.search() }
}

/// A folder below the system's for temporary files (paths of sockets must be short); it goes with this.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("crosslane-fuzz-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One call of the command.
struct Campaign<'a> {
    root: &'a Path,
    folder: &'a Path,
    programs: HashMap<(String, String), PathBuf>,
    temporary: &'a Path,
    arguments: &'a Arguments,
}

impl Campaign<'_> {
    fn place(&self, target: &Target) -> Result<Place<'_>> {
        let key = (target.package(), target.test().to_owned());
        let program =
            self.programs.get(&key).with_context(|| format!("no test program of {}", target.name))?;
        let temporary = self.temporary.join(target.name);
        fs::create_dir_all(&temporary)?;
        Ok(Place { root: self.root, folder: self.folder, temporary, program })
    }

    fn keep(&self) -> Result<()> {
        for target in &self.arguments.targets {
            let count = keep::keep(&self.place(target)?, target)?;
            println!("fuzz: {}: {count} inputs are kept in {}", target.name, target.folder().display());
        }
        Ok(())
    }

    fn search(&self) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let Arguments { seed, targets, time, jobs, .. } = self.arguments;
        println!(
            "fuzz: {} targets, {} s each, {jobs} side by side, --seed {seed}",
            targets.len(),
            time.as_secs()
        );
        let slots: Vec<Slot> = targets.iter().map(|target| Slot::new(*target)).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..*jobs).map(|_| scope.spawn(|| self.work(&slots, &next, &stop))).collect();
            while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                print_progress(&slots, &workers);
            }
        });
        self.report(&slots, stop.load(Ordering::Relaxed))
    }

    /// Runs targets until none is left.
    fn work(&self, slots: &[Slot], next: &AtomicUsize, stop: &AtomicBool) {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            slot.set(Stage::Running(Instant::now()));
            let time = (self.arguments.time, self.arguments.seed);
            let run = self
                .place(&slot.target)
                .and_then(|place| place.search(&slot.target, time, &slot.progress, stop));
            let outcome = run.unwrap_or_else(|error| Outcome {
                progress: Progress::default(),
                fault: Some(format!("{error:#}")),
                skipped: None,
                inputs: Vec::new(),
            });
            slot.set(Stage::Done(outcome));
        }
    }

    /// Prints the result of each target, and fails if one found something or ran nothing.
    fn report(&self, slots: &[Slot], stopped: bool) -> Result<()> {
        println!("fuzz: {:20} {:>12} {:>9} {:>6} {:>7}", "target", "inputs", "coverage", "new", "corpus");
        let done: Vec<(&Target, Outcome)> =
            slots.iter().filter_map(|slot| Some((&slot.target, slot.outcome()?))).collect();
        for (target, outcome) in &done {
            let Progress { coverage, known, corpus, .. } = outcome.progress;
            let (inputs, fresh) = (outcome.progress.inputs(), coverage.saturating_sub(known));
            println!("fuzz: {:20} {inputs:>12} {coverage:>9} {fresh:>6} {corpus:>7}", target.name);
        }
        let bad: Vec<_> = done.iter().filter(|(_, outcome)| outcome.fault.is_some()).collect();
        if !bad.is_empty() {
            println!("\nfailures:\n");
            bad.iter().for_each(|(target, outcome)| self.print_fault(target, outcome));
        }
        // As in tests: what was skipped counts as passed, and is subtracted where all results are added up.
        for (target, outcome) in &done {
            outcome.skipped.iter().for_each(|why| println!("SKIPPED: {}: {why}", target.name));
        }
        let (good, bad) = (done.len() - bad.len(), bad.len());
        let word = if bad == 0 { "ok" } else { "FAILED" };
        println!("test result: {word}. {good} passed; {bad} failed; 0 ignored");
        match (bad, stopped) {
            (0, false) => Ok(()),
            (0, true) => bail!("interrupted"),
            _ => bail!("{bad} of {} targets failed (--seed {})", slots.len(), self.arguments.seed),
        }
    }

    fn print_fault(&self, target: &Target, outcome: &Outcome) {
        let (name, fault) = (target.name, outcome.fault.as_deref().unwrap_or_default());
        println!("---- {name} stdout ----\n{fault}");
        if let Ok(place) = self.place(target) {
            let log = fs::read(place.log(target)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with('#')).collect();
            lines.iter().skip(lines.len().saturating_sub(TAIL)).for_each(|line| println!("{line}"));
        }
        for input in &outcome.inputs {
            println!("input: {}", shown(self.root, input));
        }
        let (package, test, path) = (target.package(), target.test(), target.path());
        println!("tried again by: cargo test -p {package} --test {test} {path}\n");
    }
}

/// A target and its progress.
struct Slot {
    target: Target,
    progress: Mutex<Progress>,
    stage: Mutex<Stage>,
}

enum Stage {
    Waiting,
    Running(Instant),
    Done(Outcome),
}

impl Slot {
    fn new(target: Target) -> Self {
        Self { target, progress: Mutex::default(), stage: Mutex::new(Stage::Waiting) }
    }

    fn set(&self, stage: Stage) {
        if let Ok(mut slot) = self.stage.lock() {
            *slot = stage;
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        match &*self.stage.lock().ok()? {
            Stage::Done(outcome) => Some(outcome.clone()),
            _ => None,
        }
    }

    /// Its progress while it runs.
    fn news(&self) -> Option<String> {
        let Stage::Running(since) = *self.stage.lock().ok()? else { return None };
        let progress = *self.progress.lock().ok()?;
        let (inputs, coverage) = (progress.inputs(), progress.coverage);
        let seconds = since.elapsed().as_secs();
        Some(format!("{} {seconds} s, {inputs} inputs, coverage {coverage}", self.target.name))
    }
}

/// Waits a while, as long as a target runs, and prints the progress.
fn print_progress(slots: &[Slot], workers: &[std::thread::ScopedJoinHandle<'_, ()>]) {
    let end = Instant::now() + NEWS;
    while Instant::now() < end {
        if workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let done = slots.iter().filter(|slot| slot.outcome().is_some()).count();
    let running: Vec<String> = slots.iter().filter_map(Slot::news).collect();
    println!("fuzz: {done} of {} done; {}", slots.len(), running.join("; "));
}
