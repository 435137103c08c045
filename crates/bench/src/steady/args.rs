//! Arguments of `crosslane bench steady`, and what they do.

use super::{CASES, Plan, Steady, tally};
use crate::frame::args::Common;
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
--runs is how many seconds each program has on streams, and as many on TCP: 100 by default, with
--quick 6. 100 of both programs take about eight minutes.";

/// `crosslane bench steady`: how often a ping-pong is much slower than usual.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct SteadyArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Run only these: sockperf, redis
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
    /// Use all processors instead of two
    #[arg(long)]
    pub all_processors: bool,
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

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        Self { turns: common.runs(100, 6), only: Vec::new(), two_processors: true }
    }
}

/// Runs `crosslane bench steady`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_steady(args: &SteadyArgs) -> Result<()> {
    let (only, two_processors) = (args.only.clone(), !args.all_processors);
    let plan = Plan { only, two_processors, ..Plan::usual(&args.common) };
    args.common.run(&mut Steady::new(plan), tally::table, tally::markdown)
}
