//! Arguments of `crosslane bench steady`, and what they do.

use super::{CASES, Plan, measure, tally};
use crate::cli::Output;
use anyhow::{Result, bail};
use clap::Args;

/// What is measured, in words that need no other page.
const HELP: &str = "\
sockperf's ping-pong and redis-benchmark with one client run for a second on streams, then for a
second on the kernel's TCP over a veth pair between the same two hosts of a lab, again and again.
Shown is how many of these seconds had which mean, those apart in which the hypervisor gave more
than 5 % of the processors' time to others (steal). All runs on two processors.
Bars: TCP is never faster in the second that follows; of the seconds with at most 5 % of steal, at
most one in twenty has a mean above 5 us.
100 turns of both programs take about eight minutes.";

/// `crosslane bench steady`: how often a ping-pong is much slower than usual.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct SteadyArgs {
    /// Seconds of each program on streams, and as many on TCP
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub turns: u16,
    /// Run only these: sockperf, redis
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
    /// Use all processors instead of two
    #[arg(long)]
    pub all_processors: bool,
    /// Exit with code 1 if a bar is missed
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

impl SteadyArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// `--only` names something that is not there.
    pub fn check(&self) -> Result<()> {
        match self.only.iter().find(|name| CASES.iter().all(|case| case.name != name.as_str())) {
            Some(unknown) => bail!("`{unknown}` is no program of this; there are: sockperf, redis"),
            None => Ok(()),
        }
    }
}

/// Runs `crosslane bench steady`.
///
/// # Errors
/// The lab does not come up, a file cannot be written, or `--check` found a missed bar.
pub fn run_steady(args: &SteadyArgs) -> Result<()> {
    let report = measure(&Plan {
        turns: args.turns.into(),
        only: args.only.clone(),
        two_processors: !args.all_processors,
    })?;
    args.output.conclude(args.check, &report, tally::table, tally::markdown)
}
