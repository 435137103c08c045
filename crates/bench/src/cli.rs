//! Arguments of the measuring commands, and what they do.

use crate::affinity::Cores;
use crate::export;
use crate::figure::Report;
use crate::perf::{self, Plan, session};
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;

/// `crosslane perf`: direct access from user space, beside the limits of this machine.
#[derive(Args, Clone, Debug)]
pub struct PerfArgs {
    /// Measure the main points only (less than 20 s)
    #[arg(long)]
    pub quick: bool,
    /// Processors for the two sides, as in 0,1 (default: the last two)
    #[arg(long, value_name = "A,B")]
    pub cores: Option<Cores>,
    /// Repetitions of each case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: Option<u16>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
    /// (internal) Answer the cases of the process that started this one
    #[arg(long, hide = true)]
    pub answer: bool,
}

/// Where results go.
#[derive(Args, Clone, Debug, Default)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write the JSON to a file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write Markdown tables to a file too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

impl Output {
    /// Prints and writes `report`.
    pub fn deliver(&self, report: &Report) -> Result<()> {
        let json = export::json(report)?;
        if let Some(path) = &self.out {
            std::fs::write(path, &json).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.markdown {
            let text = export::markdown(report);
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            println!("{json}")
        } else {
            print!("{}", export::table(report))
        }
        Ok(())
    }
}

/// Runs `crosslane perf`.
pub fn run_perf(args: &PerfArgs) -> Result<()> {
    if args.answer {
        return session::answer();
    }
    let mut plan = if args.quick { Plan::quick() } else { Plan::full() };
    plan.runs = args.runs.map_or(plan.runs, usize::from);
    let cores = args.cores.map_or_else(Cores::pick, Ok)?;
    args.output.deliver(&run_plan(&plan, cores)?)
}

/// Measures `plan` against a copy of this process, which must understand `perf --answer`.
pub fn run_plan(plan: &Plan, cores: Cores) -> Result<Report> {
    let mut command = Command::new(std::env::current_exe().context("cannot find my own program")?);
    command.args(["perf", "--answer"]);
    perf::measure(plan, cores, &mut session::Session::spawn(command, cores)?)
}
