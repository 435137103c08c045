//! The differential tester: random sequences of socket calls, drawn from a seed, on the kernel's TCP and on streams at once;
//! whatever the calls give is compared. Differences that are meant are the list in `meant.rs`, which is the table in
//! `docs/compatibility.md`.
//!
//! `CROSSLANE_SEED` is the first seed (1), `CROSSLANE_SECONDS` how long it hunts.

#![allow(unreachable_pub, reason = "modules of one test")]

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod executor;
mod generate;
mod hunt;
mod meant;
mod random;
mod script;
mod shrink;

use compare::compare_strictly;
use executor::{On, Stage, Trace};
use hunt::{Found, Pair, Report, hunt};
use script::Script;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds of a hunt that nobody asked more of.
const SECONDS: u64 = 10;
/// A hunt ends after so many different differences.
const MOST: usize = 60;

fn print(report: &Report, seconds: u64) {
    let rate = report.scripts / seconds.max(1);
    println!("{} scripts, {} calls, {rate} scripts a second", report.scripts, report.calls);
    for (name, times) in &report.meant {
        println!("meant, {times} times: {name}");
    }
    println!("{} seeds are unsteady on the kernel: {:?}", report.unsteady.len(), report.unsteady);
    println!("{} differences did not show again", report.passing.len());
    for (seed, difference) in report.passing.iter().take(20) {
        println!("  seed {seed}, call {}: {}", difference.index, difference.signature());
    }
    for (signature, found) in &report.found {
        let Found { seed, difference, script, kernel, stream } = found;
        println!("\n=== {signature}\nseed {seed}, call {}", difference.index);
        println!("{}", side_by_side(script, kernel, stream));
    }
}

/// A script with what its calls gave.
fn side_by_side(script: &Script, kernel: &Trace, stream: &Trace) -> String {
    let mut text = String::new();
    for (at, op) in script.ops.iter().enumerate() {
        let line = |trace: &Trace| {
            let begin = format!("{at} ");
            let line = trace.iter().find(|line| line.starts_with(&begin)).map_or("", String::as_str);
            line.split(' ').skip(2).collect::<Vec<_>>().join(" ")
        };
        let (kernel, stream) = (line(kernel), line(stream));
        if kernel == stream {
            text += &format!("  {op}    # {kernel}\n");
        } else {
            text += &format!("  {op}\n      # kernel {kernel}\n      # stream {stream}\n");
        }
    }
    text
}

/// The first seed, and for how many seconds to hunt.
fn settings() -> (u64, u64) {
    let setting = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = setting("CROSSLANE_SEED").unwrap_or(1);
    println!("seed {seed}");
    (seed, setting("CROSSLANE_SECONDS").unwrap_or(SECONDS))
}

/// Else whatever differs would say nothing.
#[test]
fn kernel_tcp_equals_itself() {
    let stage = Stage::new().unwrap();
    let (seed, seconds) = settings();
    let seconds = seconds.min(10);
    let report = hunt(&stage, On::Kernel, seed, Duration::from_secs(seconds), MOST);
    print(&report, seconds);
    assert!(report.found.is_empty(), "{} differences", report.found.len());
    let steady = report.scripts - report.unsteady.len() as u64 - report.passing.len() as u64;
    assert!(steady * 20 > report.scripts * 19, "{steady} of {} scripts give the same twice", report.scripts);
}

/// Scripts that once differed, by name; `CROSSLANE_SCRIPT` is the path of another one, which is run alone.
fn kept() -> Vec<(PathBuf, Script)> {
    let only = std::env::var_os("CROSSLANE_SCRIPT").map(PathBuf::from);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differ/kept");
    let all = || fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths = only.map_or_else(|| all().collect(), |only| vec![only]);
    paths.sort();
    let read = |path: &PathBuf| Script::parse(&fs::read_to_string(path).unwrap()).unwrap();
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

#[test]
fn kept_scripts_no_longer_differ() {
    let stage = Stage::new().unwrap();
    let mut pair = Pair::new(&stage, 0, On::Streams);
    let (kept, mut differ) = (kept(), 0);
    for (path, script) in &kept {
        let (kernel, stream) = pair.run(script);
        let difference = compare_strictly(script, &kernel, &stream);
        differ += usize::from(difference.is_some());
        if difference.is_some() || kept.len() == 1 {
            println!("=== {}\n{}", path.display(), side_by_side(script, &kernel, &stream));
        }
    }
    assert_eq!(differ, 0, "of {}", kept.len());
}

#[test]
fn streams_equal_kernel_tcp() {
    let stage = Stage::new().unwrap();
    let (seed, seconds) = settings();
    let report = hunt(&stage, On::Streams, seed, Duration::from_secs(seconds), MOST);
    print(&report, seconds);
    let [opened, bytes] = stage.daemon.streams().unwrap();
    println!("{opened} ends of streams, {bytes} bytes on them");
    // Nine of ten scripts have a connection and send something.
    assert!(
        opened > report.scripts as f64 && bytes > report.scripts as f64,
        "the connections were no streams"
    );
    assert!(report.found.is_empty(), "{} differences", report.found.len());
}
