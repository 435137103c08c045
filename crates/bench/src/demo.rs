//! `crosslane demo`: three hosts in a ring, program after program.

use crate::calm;
use crate::compare::{Setting, compare};
use crate::export;
use crate::figure::Report;
use crate::output::Output;
use crate::place::{self, InLab};
use crate::program::process::find;
use crate::program::{self, Effort};
use crate::progress::{USUAL, line, print, progress};
use crate::versions;
use anyhow::Result;
use clap::Args;
use crosslane_lab::Options;

/// `crosslane demo`: unmodified programs between the hosts of a lab.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Runs of each program at each place; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: calm::Machine,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// Runs `crosslane demo`.
///
/// # Errors
/// The lab does not come up, or a file cannot be written.
pub fn run_demo(args: &DemoArgs) -> Result<()> {
    args.machine.begin();
    args.output.conclude(false, &demo(args.runs.into())?, export::summary, export::markdown)
}

/// The programs one after the other, with progress on the terminal.
fn demo(runs: usize) -> Result<Report> {
    let setting = Setting { runs, effort: Effort::Short, bars: false, remark: String::new(), brief: true };
    eprintln!("Three hosts in a ring, each a network namespace with its own crosslaned ...");
    let lab = place::up(&Options::scratch("demo"))?;
    for host in &lab.state().hosts {
        eprintln!("  {}  {}  {}", host.name, host.address, host.address6);
    }
    let places = InLab::all(&lab)?;
    let mut report = Report::new("Unmodified programs between h1 and h2");
    report.cables = vec![[1, 2], [2, 3], [1, 3]];
    let programs = program::shown();
    report.programs = versions::of(programs.iter().flat_map(|it| it.needs).filter_map(|needed| find(needed)));
    let progress = progress(programs.len() as u64, USUAL);
    for program in &programs {
        let figures = compare(program, &places, &setting, &progress);
        figures.iter().for_each(|figure| print(&progress, &line(figure)));
        report.figures.extend(figures);
        progress.inc(1);
    }
    progress.finish_and_clear();
    place::down(lab)?;
    Ok(report)
}
