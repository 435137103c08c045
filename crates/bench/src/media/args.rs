//! Arguments of `crosslane bench media`, and what they do.

use super::{Media, Plan};
use crate::export;
use crate::frame::args::{Common, check_distinct};
use anyhow::Result;
use clap::Args;
use crosslane_pcie::Cable;
use std::time::Duration;

/// What is measured, in words that need no other page.
const HELP: &str = "\
A block device in one host's memory (nbdkit) is used by another one (fio with its engine for NBD), both unmodified
programs under the library, over cables of software that behave as PCIe cables do (docs/link-model.md) and differ in
their medium: copper of 1 and 10 m, fibre of 10 and 100 m. Written and read in order by 1 MB and 64 KB, at random by
4 KB; MB/s (10^6), beside the limit of the cable and the kernel's TCP between the same two hosts past it. All cables take
turns. For each pattern a sentence says what the media differ by, or that there is no difference, as `crosslane compare`
tells it: what 15 runs can show.
At last the bandwidth between this host's memory and its GPU, if it has one with CUDA's driver, by python3.
Needs nbdkit and fio.";

/// `crosslane bench media`: copper and fibre under a remote block device, on timed cables (study 5).
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct MediaArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Measure these cables instead, as `gen3 x4, fibre 10 m`; to be given several times: others are held against the first
    #[arg(long = "cable", value_name = "TEXT")]
    pub cables: Vec<Cable>,
    /// How long each run lasts, ms [default: 1000, with --quick 250]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(100..))]
    pub millis: Option<u16>,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        let time = Duration::from_millis(if common.quick { 250 } else { 1000 });
        Self { cables: Self::cables(common.quick), runs: common.usual_runs(5), time }
    }
}

/// Runs `crosslane bench media`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_media(args: &MediaArgs) -> Result<()> {
    let MediaArgs { common, cables, millis } = args;
    check_distinct(cables)?;
    let mut plan = Plan::usual(common);
    if !cables.is_empty() {
        plan.cables.clone_from(cables);
    }
    if let Some(millis) = millis {
        plan.time = Duration::from_millis((*millis).into());
    }
    common.run(&mut Media::new(plan), export::table, export::markdown)
}
