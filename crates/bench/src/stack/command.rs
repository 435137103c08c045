//! Arguments of `crosslane bench stack`, and what it does.

use super::here::By;
use super::machine::StackInMachine;
use super::{Plan, Stack, flow, here, table};
use crate::export;
use crate::frame::args::Common;
use crate::perf::{Size, choose};
use crate::speaker::write_line;
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// What is measured, in words that need no other page.
const HELP: &str = "\
A plain socket program sends messages of one size to another for a while, between two hosts of a
lab. Every line is cycles of the processor's constant clock for one message, both ends together:
  direct          our streams, under the preloaded library; each function counts itself (rdtsc),
                  and nothing counts twice
  offload         the same with `offload on` at both ends: from 768K on the daemons' engines copy
  loopback TCP    the kernel's TCP within a host, the same programs without the library;
  veth TCP        and between two hosts: `perf` samples all processors, a sample belongs to the
                  innermost of the study's functions in its chain of callers, and its share of the
                  processor time of both programs is what the function took
  study           the TCP/IP study's own figures: thousands of clocks at 1.8 GHz, Linux 2.4.7
Waiting for space and for data is time on the clock, asleep or not, as in the study. Samples need
root (or kernel.perf_event_paranoid -1 and kernel.kptr_restrict 0) and `perf` (Debian: linux-perf);
without them that part is left out and the reason is named.
The lines there and back are of a question and an answer of that size, with blocking calls, which no engine may
make last twice as long. All of it takes about a quarter of an hour, with --quick one minute.
With --machine all of it runs inside one virtual machine (`make vm-image` builds its image): streams inside a host beside
loopback TCP, whose functions its kernel traces one by one (function_graph), each with what tracing takes.";

/// `crosslane bench stack`: where the time of a message goes, as the TCP/IP study measured it.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct StackArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Measure messages of these sizes instead of the study's 1400, 14000, 140000, 1M
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Size>,
    /// Measure inside a virtual machine, whose kernel is traced by function_graph instead of sampled
    #[arg(long)]
    pub machine: bool,
    /// Folder with the machine's image (default: where `make vm-image` or an installation puts it)
    #[arg(long, value_name = "FOLDER", requires = "machine")]
    pub image: Option<PathBuf>,
    /// (internal) Measure on this very machine: `ours` or `kernel`, size, milliseconds
    #[arg(long, hide = true, num_args = 3)]
    pub here: Vec<String>,
    /// (internal) Be a receiver of messages of this size
    #[arg(long, hide = true, value_name = "SIZE")]
    pub receive: Option<usize>,
    /// (internal) Be a sender: address, size, milliseconds
    #[arg(long, hide = true, num_args = 3)]
    pub send: Vec<String>,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        Self::new(common.usual_runs(8), common.quick)
    }
}

/// Runs `crosslane bench stack`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_stack(args: &StackArgs) -> Result<()> {
    if let Some(size) = args.receive {
        return flow::receiver(size);
    }
    if let [to, size, millis] = &args.send[..] {
        return flow::sender(to.parse()?, size.parse()?, Duration::from_millis(millis.parse()?));
    }
    if let [by, size, millis] = &args.here[..] {
        let by = By::from_str(by, true).map_err(|why| anyhow!(why))?;
        let said = here::measure(by, size.parse()?, Duration::from_millis(millis.parse()?))?;
        return write_line(&mut std::io::stdout(), &said);
    }
    let common = &args.common;
    let mut plan = Plan::usual(common);
    choose(&mut plan.sizes, &args.sizes);
    if args.machine {
        return common.run(&mut StackInMachine::new(plan, args.image.clone()), table, export::markdown);
    }
    common.run(&mut Stack::new(plan), table, export::markdown)
}
