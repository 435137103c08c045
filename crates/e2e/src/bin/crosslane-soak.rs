//! The soak as a command: `cargo xtask soak` builds and runs it. See [`crosslane_e2e::soak`].

use anyhow::{Context, Result, bail, ensure};
use crosslane_e2e::soak::{Plan, Report, run};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const USAGE: &str = "\
usage: crosslane-soak [--minutes N] [--seed S] [--json]
  --minutes N  how long (2)
  --seed S     what faults and bytes follow from; without it one that is never the same, and printed
  --json       the report as JSON
Ends early, in order, at Ctrl-C. Exit codes: 0 nothing was wrong, 1 something was, 2 wrong arguments.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let (plan, json) = match read(&words) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("crosslane-soak: {error:#}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match soak(&plan, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosslane-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn read(words: &[String]) -> Result<(Plan, bool)> {
    let mut plan = Plan { time: minutes("2")?, seed: 0, stop: Arc::new(AtomicBool::new(false)) };
    let (mut seed, mut json, mut words) = (None, false, words.iter());
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--minutes" => plan.time = minutes(value()?)?,
            "--seed" => seed = Some(value()?.parse().context("--seed")?),
            "--json" => json = true,
            other => bail!("`{other}` is not known"),
        }
    }
    plan.seed = seed.unwrap_or_else(crosslane_e2e::seed);
    Ok((plan, json))
}

fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse().context("--minutes")?;
    ensure!((0.1..=10_000.0).contains(&minutes), "--minutes: {text} is not between 0.1 and 10000");
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

fn soak(plan: &Plan, json: bool) -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, plan.stop.clone())?;
    }
    eprintln!("soak: {:?}, seed {}", plan.time, plan.seed);
    let Some(report) = run(plan)? else { return Ok(()) };
    ensure!(report.tally.whole > 0, "nothing arrived: {report:?}");
    if json {
        println!("{}", serde_json::to_string(&report)?)
    } else {
        print(&report)
    }
    Ok(())
}

fn print(report: &Report) {
    let (tally, faults) = (report.tally, report.faults);
    println!("seed {}, {} s", report.seed, report.seconds);
    println!(
        "transfers {}: {} whole, {} broken off by a kill or a torn network, {} MB compared, none wrong",
        tally.transfers,
        tally.whole,
        tally.broken,
        tally.bytes / 1_000_000
    );
    println!(
        "faults: {} cuts, {} mends, killed: {} senders, {} servers, {} daemons",
        faults.cuts, faults.mends, faults.senders, faults.servers, faults.daemons
    );
    for (host, first, last) in &report.held {
        println!("{host} held after the warm-up {first:?}, at the end {last:?}");
    }
}
