//! Arguments of `crosslane bench ring`, and what they do.

use super::{Plan, RingOfThree, flow, table};
use crate::export;
use crate::frame::args::Common;
use crate::perf::{Size, choose};
use anyhow::Result;
use clap::Args;
use std::time::Duration;

/// `crosslane bench ring`: three hosts and all their pairs, as the ring study measured them.
#[derive(Args, Clone, Debug)]
pub struct RingArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Measure these sizes instead of 1K to 4M
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Size>,
    /// (internal) Be a receiver on this port
    #[arg(long, hide = true, value_name = "PORT")]
    pub sink: Option<u16>,
    /// (internal) Be a sender: address, size, milliseconds
    #[arg(long, hide = true, num_args = 3)]
    pub pour: Vec<String>,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        Self::new(common.usual_runs(12), common.quick)
    }
}

/// Runs `crosslane bench ring`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_ring(args: &RingArgs) -> Result<()> {
    if let Some(port) = args.sink {
        return flow::sink(port);
    }
    if let [to, size, millis] = &args.pour[..] {
        return flow::sender(to.parse()?, size.parse()?, Duration::from_millis(millis.parse()?));
    }
    let mut plan = Plan::usual(&args.common);
    choose(&mut plan.sizes, &args.sizes);
    args.common.run(&mut RingOfThree::new(plan), table, export::markdown)
}
