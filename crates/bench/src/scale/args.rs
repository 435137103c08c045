//! Arguments of `crosslane bench scale`, and what they do.

use super::{Plan, Scale, crowd};
use crate::export;
use crate::frame::args::Common;
use anyhow::Result;
use clap::Args;
use std::time::Duration;

/// What is measured, in words that need no other page.
const HELP: &str = "\
connections  1 to 10,000 connections between two hosts of a lab, which plain programs wait for by epoll: 64
             bytes there and back, on one connection after the other, up to 32 at a time; how many a
             second, how long one takes, behind a first one on each, which takes more and has a figure
             of its own; how many connections are opened a second, and how many of
             them were streams (the others went by TCP); beside the kernel's TCP over a veth pair
hosts        rings of 2 to 8 hosts on this machine: each sends to the next one at once, all together;
             and what all daemons take while nothing moves, percent of one processor
simulated    rings of 2 to 512 hosts in virtual time, as `crosslane plan --simulate`: each number
             beside its formula
All of it takes about ten minutes, the largest simulated ring most of it; with --quick one.";

/// `crosslane bench scale`: many connections, many hosts.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct ScaleArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Measure these numbers of connections instead
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub connections: Vec<u32>,
    /// Measure these numbers of hosts instead
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(2..=32))]
    pub hosts: Vec<u8>,
    /// Simulate these numbers of hosts instead
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=512))]
    pub simulated: Vec<u16>,
    /// (internal) Answer on this port
    #[arg(long, hide = true, value_name = "PORT")]
    pub answer: Option<u16>,
    /// (internal) Ask: address, connections, milliseconds
    #[arg(long, hide = true, num_args = 3)]
    pub ask: Vec<String>,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        let (runs, millis) = (common.usual_runs(5), if common.quick { 200 } else { 500 });
        if common.quick {
            let (connections, hosts, simulated) = (vec![1, 100, 1000], vec![2, 4], vec![2, 8, 32]);
            return Self { connections, hosts, simulated, runs, millis };
        }
        let connections = vec![1, 10, 100, 1000, 10_000];
        Self { connections, hosts: (2..=8).collect(), simulated: vec![2, 8, 32, 128, 512], runs, millis }
    }
}

/// Runs `crosslane bench scale`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_scale(args: &ScaleArgs) -> Result<()> {
    if let Some(port) = args.answer {
        return crowd::answer(port);
    }
    if let [to, connections, millis] = &args.ask[..] {
        return crowd::asker(to.parse()?, connections.parse()?, Duration::from_millis(millis.parse()?));
    }
    let mut plan = Plan::usual(&args.common);
    let asked = !(args.connections.is_empty() && args.hosts.is_empty() && args.simulated.is_empty());
    if asked {
        plan.connections.clone_from(&args.connections);
        plan.hosts.clone_from(&args.hosts);
        plan.simulated.clone_from(&args.simulated);
    }
    args.common.run(&mut Scale::new(plan), export::table, export::markdown)
}
