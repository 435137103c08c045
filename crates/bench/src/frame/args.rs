//! The options that all experiments have.

use super::{Experiment, measure};
use crate::calm;
use crate::figure::Report;
use crate::output::Output;
use anyhow::{Context, Result, bail};
use clap::Args;
use crosslane_pcie::Cable;
use std::path::PathBuf;

/// Runs of a case by default: with so many `crosslane compare` finds a true difference of 3 % in 90 of 100 pairs of results (docs/results.md).
const RUNS: usize = 15;

/// Options of every experiment.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// The main points only, each as briefly as makes sense
    #[arg(long)]
    pub quick: bool,
    /// Runs of each case; medians are shown [default: mostly 15; few with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: Option<u16>,
    /// Exit with code 1 if a bar is missed
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: calm::Machine,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// Checks that no cable is given twice: each is a step of its own.
///
/// # Errors
/// One is.
pub fn check_distinct(cables: &[Cable]) -> Result<()> {
    let twice = cables.iter().enumerate().find(|(at, cable)| cables[..*at].contains(cable));
    twice.map_or(Ok(()), |(_, cable)| bail!("--cable: `{cable}` is given twice"))
}

impl Common {
    /// How many runs each case has, unless `--runs` says it: as many as it takes to find a true 3 %, or `quick` ones with `--quick`.
    pub fn usual_runs(&self, quick: usize) -> usize {
        self.runs(RUNS, quick)
    }

    /// The same of an experiment that has `usual` runs.
    pub fn runs(&self, usual: usize, quick: usize) -> usize {
        self.runs.map_or(if self.quick { quick } else { usual }, usize::from)
    }

    /// Where steps are kept while others are to come: beside the result.
    fn partial(&self) -> Option<PathBuf> {
        let out = self.output.out.as_ref()?;
        let mut name = out.clone().into_os_string();
        name.push(".partial");
        Some(name.into())
    }

    /// Takes all steps of `experiment`, prints and writes its report, as people get it on a terminal (`table`) and in Markdown, and looks at the bars.
    ///
    /// # Errors
    /// A file cannot be read or written, or `--check` found a missed bar.
    pub fn run(
        &self,
        experiment: &mut dyn Experiment,
        table: fn(&Report) -> String,
        markdown: fn(&Report) -> String,
    ) -> Result<()> {
        self.machine.begin();
        let partial = self.partial();
        let (report, failed) = measure(experiment, partial.as_deref())?;
        let concluded = self.output.conclude(self.check, &report, table, markdown);
        // Where steps failed the others are kept for another try.
        if let Some(path) = partial.filter(|_| failed == 0) {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        concluded
    }
}
