//! Whole runs: `crosslane bench quick` and `crosslane demo`.

use crate::affinity::{Cores, Pin};
use crate::compare::{Setting, compare, steps};
use crate::figure::{Figure, Report, Sample, Unit};
use crate::perf::Plan;
use crate::place::{self, InLab, Place};
use crate::program::{self, Effort, Program};
use crate::progress::{USUAL, line, print, progress};
use crate::quick::Quick;
use crate::{perf, transit};
use anyhow::{Result, bail};
use crosslane_lab::{Lab, Options};
use indicatif::ProgressBar;
use std::time::Duration;

/// Connections of the idle case, and how long they are watched.
const IDLE_CONNECTIONS: u32 = 100;
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Most of one processor that idle connections may use, percent.
const IDLE_BAR: f64 = 1.0;
/// Hosts of the ring that idles, and the most of one processor that all its daemons may use, percent.
const RING: u8 = 8;
const RING_BAR: f64 = 2.0;
/// Percent of a processor that count as nothing.
const LEAST: f64 = 0.01;
/// Parts of a run, as `--only` names them, beside programs and those of [`transit`].
const PARTS: [&str; 3] = ["perf", "idle", "ip"];
/// Processors of the pinned part.
const PINNED: Cores = Cores { near: 0, far: 1 };

/// Checks that all requested parts exist.
///
/// # Errors
/// One does not; the error names all that do.
pub fn check(quick: &Quick) -> Result<()> {
    let (all, plain) = (program::all(), program::over_ip());
    let programs = all.iter().chain(&plain).map(|program| program.name);
    let mut names: Vec<&str> = PARTS.into_iter().chain(transit::names()).chain(programs).collect();
    names.dedup();
    match quick.only.iter().find(|only| !names.contains(&only.as_str())) {
        Some(unknown) => bail!("`{unknown}` is nothing that can be run; there are: {}", names.join(", ")),
        None => Ok(()),
    }
}

/// Runs everything that has a bar.
///
/// # Errors
/// The lab does not come up. What fails later is a figure that says why it is missing.
pub fn quick(quick: &Quick) -> Result<Report> {
    let mut report = Report::new(format!("crosslane bench quick, medians of {} runs", quick.runs));
    if quick.wants("perf") {
        let plan = Plan { runs: 3 * quick.runs, ..Plan::quick() };
        let cores = Cores::pick()?;
        let cores = if cores.is_shared() { cores } else { Cores::pick_close()? };
        match perf::run(&plan, cores) {
            Ok(perf) => report.figures.extend(perf.figures.into_iter().filter(is_main)),
            Err(error) => report.figures.push(Figure::failed("perf", &error)),
        }
    }
    in_lab(quick, "", true, &mut report)?;
    if quick.wants("idle") {
        report.figures.push(idle_ring(quick.runs));
    }
    transit::measure(quick, &mut report);
    if quick.pinned {
        match Pin::both(PINNED) {
            Ok(_confined) => in_lab(quick, ", on 2 processors", false, &mut report)?,
            Err(error) => report.warnings.push(format!("nothing was run on two processors: {error:#}")),
        }
    }
    report.warn_of_noise();
    Ok(report)
}

/// Figures of `perf` that belong into a summary.
fn is_main(figure: &Figure) -> bool {
    figure.bar.is_some() || figure.group.starts_with("stream") || figure.group == "message one way"
}

/// Brings up a lab of two hosts, runs the requested parts in it, and takes it down again.
fn in_lab(quick: &Quick, remark: &str, bars: bool, report: &mut Report) -> Result<()> {
    let (programs, idle) = (quick.programs(), quick.wants("idle"));
    let plain = if bars { quick.plain_programs() } else { Vec::new() };
    if programs.is_empty() && plain.is_empty() && !idle {
        return Ok(());
    }
    let setting = Setting { runs: quick.runs, effort: quick.effort, bars, remark: remark.to_owned() };
    let lab = place::up(&place::pair("bench"))?;
    let places = InLab::all(&lab)?;
    let progress = progress(programs.len() as u64 * steps(places.len(), &setting), USUAL);
    run_all(&programs, &places, &setting, &progress, report);
    if idle {
        progress.set_message(format!("{IDLE_CONNECTIONS} idle connections{remark}"));
        report.figures.push(idle_connections(&lab, &places[0], remark, quick.runs));
    }
    if !lab.state().tun && !plain.is_empty() {
        report.warnings.push("no /dev/net/tun for this user: IP over the fabric was not measured".to_owned());
    } else {
        let places = InLab::plain(&lab)?;
        progress.inc_length(plain.len() as u64 * steps(places.len(), &setting));
        run_all(&plain, &places, &setting, &progress, report);
    }
    progress.finish_and_clear();
    place::down(lab)
}

/// A ring in which nothing moves.
fn idle_ring(runs: usize) -> Figure {
    let measured = || -> Result<Vec<f64>> {
        let lab = Lab::up(&Options { hosts: RING, ..Options::scratch("idle") })?;
        let daemons = daemons(&lab);
        anyhow::ensure!(daemons.len() == usize::from(RING), "not all daemons run");
        let values = (0..runs.min(3)).map(|_| program::used(&daemons, IDLE_TIME)).collect();
        lab.down()?;
        values
    };
    idle_figure("idle ring", format!("{RING} daemons in a ring"), RING_BAR, measured())
}

/// Connections on which nothing moves.
fn idle_connections(lab: &Lab, place: &dyn Place, remark: &str, runs: usize) -> Figure {
    let daemons = daemons(lab);
    let case = format!("{IDLE_CONNECTIONS} connections, {} daemons and both programs", daemons.len());
    let measured =
        (0..runs.min(3)).map(|_| program::idle(place, IDLE_CONNECTIONS, IDLE_TIME, &daemons)).collect();
    idle_figure(&format!("idle{remark}"), case, IDLE_BAR, measured)
}

/// Processes of the daemons that run.
pub(crate) fn daemons(lab: &Lab) -> Vec<u32> {
    lab.state().hosts.iter().filter_map(|host| host.daemon?.pid.try_into().ok()).collect()
}

/// The processor time of idle processes, held against `limit` percent of a processor.
fn idle_figure(group: &str, case: String, limit: f64, measured: Result<Vec<f64>>) -> Figure {
    let name = format!("limit of {limit} %");
    let missing = measured.as_ref().err().map(|error| format!("{error:#}"));
    // A value of 0 would have no ratio to the limit.
    let values = measured.unwrap_or_default().into_iter().map(|value| value.max(LEAST)).collect();
    let figure = Figure::new(group, case, Unit::PercentOfCore, Sample::new(values)).without(missing);
    figure.against(&name, Sample::new(vec![limit])).bar(&name, 1.0, None)
}

/// Three hosts in a ring, program after program, with progress on the terminal.
///
/// # Errors
/// The lab does not come up.
pub fn demo(runs: usize) -> Result<Report> {
    let setting = Setting { runs, effort: Effort::Short, bars: false, remark: String::new() };
    eprintln!("Three hosts in a ring, each a network namespace with its own crosslaned ...");
    let lab = place::up(&Options::scratch("demo"))?;
    for host in &lab.state().hosts {
        eprintln!("  {}  {}  {}", host.name, host.address, host.address6);
    }
    let places = InLab::all(&lab)?;
    let mut report = Report::new("Unmodified programs between h1 and h2");
    let programs = program::shown();
    let progress = progress(programs.len() as u64 * steps(places.len(), &setting), USUAL);
    run_all(&programs, &places, &setting, &progress, &mut report);
    progress.finish_and_clear();
    place::down(lab)?;
    Ok(report)
}

/// Runs `programs` one after the other, and prints each figure when it is complete.
fn run_all(
    programs: &[Program],
    places: &[impl Place],
    setting: &Setting,
    progress: &ProgressBar,
    report: &mut Report,
) {
    for program in programs {
        let figures = compare(program, places, setting, progress);
        figures.iter().for_each(|figure| print(progress, &line(figure)));
        report.figures.extend(figures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_reports_what_is_missing() {
        let quick = |only: &[&str]| Quick {
            runs: 1,
            effort: Effort::Short,
            pinned: false,
            only: only.iter().map(|&name| name.to_owned()).collect(),
        };
        assert!(check(&quick(&[])).is_ok());
        assert!(check(&quick(&["perf", "loss", "iperf3", "IP: ping"])).is_ok());
        let error = check(&quick(&["iperf3", "transits"])).unwrap_err().to_string();
        assert!(error.contains("`transits`") && error.contains("transit, safety"), "{error}");
        assert!(quick(&["loss"]).programs().is_empty());
    }

    #[test]
    fn suite_unmeasured_misses_its_bar() {
        let figure = |measured| idle_figure("idle", String::new(), 2.0, measured);
        assert_eq!(figure(Ok(vec![0.0, 1.9, 0.1])).meets_bar(), Some(true));
        assert_eq!(figure(Ok(vec![2.1])).meets_bar(), Some(false));
        let missing = figure(Err(anyhow::anyhow!("no lab")));
        assert_eq!((missing.meets_bar(), missing.missing.as_deref()), (None, Some("no lab")));
        assert!(missing.bar.is_some());
    }
}
