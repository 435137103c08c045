//! Arguments of `crosslane bench direct-vs-tcp`, and what they do.

use super::{DirectVsTcp, Plan};
use crate::export;
use crate::frame::args::{Common, check_distinct};
use anyhow::Result;
use clap::Args;
use crosslane_pcie::Cable;

/// What is measured, in words that need no other page.
const HELP: &str = "\
Cables of software behave like PCIe cables (docs/link-model.md), from one lane on. Over each:
  direct    stores of 64 KB by one program into the other host's memory, MB/s (10^6): beside the limit of the
            cable for a processor's stores; the share of the raw rate, beside study 1's own; and the time of
            64 bytes one way, median, us
  sockets   unmodified iperf3 and sockperf under the library, and netperf where it is installed
  IP        the same programs by the kernel's TCP over Crosslane's IP (xl0), and ping
  veth TCP  the same by the kernel's TCP between the two namespaces, past the cable, in the same run
With --quick sockperf, netperf and ping run over the narrowest of the cables only.
Behind them, over the narrowest of the cables: one stream through two and three in a row (hosts between copy), and
two programs between neighbours in a ring of three, by both ways round (all_ways) beside the shortest, and over two
cables side by side beside one cable, by turns; and one stream that is striped over two cables (stripe), beside one cable.
Ratios are above 1 where Crosslane is better. Bars: direct has 0.95 of the limit, sockets 0.9, through several cables
0.85, two ways 1.8 times one, where this machine keeps up with the cable: where more than 5 % of the
bytes landed more than 250 us late, a figure that misses its bar has none, and a note says so. Times one way are those of this machine's sleeping threads, mostly.
Needs iperf3 and sockperf. With --out FILE a run that was interrupted goes on where it was, from FILE.partial.";

/// `crosslane bench direct-vs-tcp`: direct access, sockets and TCP by generation and lanes, on timed cables (study 1).
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct DirectArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Measure this cable instead, as `gen3 x4, fibre 10 m`; may be given several times
    #[arg(long = "cable", value_name = "TEXT")]
    pub cables: Vec<Cable>,
    /// How long each run lasts, in whole seconds [default: 3, with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: Option<u32>,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        let seconds = if common.quick { 1 } else { 3 };
        Self {
            cables: Self::cables(common.quick),
            runs: common.usual_runs(3),
            seconds,
            programs: true,
            brief: common.quick,
        }
    }
}

/// Runs `crosslane bench direct-vs-tcp`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_direct(args: &DirectArgs) -> Result<()> {
    let DirectArgs { common, cables, seconds } = args;
    check_distinct(cables)?;
    let usual = Plan::usual(common);
    let cables = if cables.is_empty() { usual.cables } else { cables.clone() };
    let plan = Plan { cables, seconds: seconds.unwrap_or(usual.seconds), ..usual };
    common.run(&mut DirectVsTcp::new(plan), export::table, export::markdown)
}
