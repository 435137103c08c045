//! Arguments of the measuring commands, and what they do.

use crate::affinity::Cores;
use crate::calm;
use crate::direct::{self, DirectVsTcp};
use crate::export;
use crate::figure::Report;
use crate::frame::{self, args::check_distinct};
use crate::output::Output;
use crate::perf::access::{self, Operation, sides};
use crate::perf::{self, Part, Plan, Size, choose, session};
use crate::scratchpad::{self, Scratchpads};
use anyhow::Result;
use clap::Args;
use crosslane_pcie::Cable;
use std::net::IpAddr;

/// What `perf` measures, in words that need no other page.
const PERF_HELP: &str = "\
Two processes, each on a processor of its own, send to one another through two segments of
shared memory, as neighbours do. The parts of the measurement:
  writes    one processor's stores into a segment, 64 bytes to 8 MB at a time: by memcpy through
            the caches, by non-temporal stores, by rep movs; in Gb/s, 10^9 bits in a second;
            limit: memcpy into private memory
  messages  time from one program to the other and back, 8 bytes to 4 KB: means, percentiles;
            in ns; limits: the time of one cache line, and the bare ring
  streams   bandwidth and messages in a second, 8 bytes to 4 MB at a time, one way and both
            ways at once; in Gb/s and 1/s; limit: the bare ring
With put, get or atomic, two programs on three hosts of a lab are measured instead, on one host,
over one cable and over two: 8 bytes that are waited for, limit: one cache line there and back;
and 8 bytes to 8 MB (atomics: 8 bytes) of which many are posted, limit: the bare ring.
With --cable, a program's stores into the other host's memory over a cable of software that behaves as
a PCIe cable does (docs/link-model.md): rate, share of the raw rate, and 64 bytes one way.
The bare ring is two copies and two indices in the same memory, with no records, no checks and
no sleep: what the machine gives at best. A ratio above 1 is better than its limit. Cases take
turns, so that what disturbs the machine disturbs all; medians are shown.
All of it takes about two minutes. Sizes are from 8 to 8M bytes; 1K is 1024.";

/// `crosslane perf`: direct access from user space, beside the limits of this machine.
#[derive(Args, Clone, Debug)]
#[command(after_help = PERF_HELP)]
pub struct PerfArgs {
    /// Measure one-sided access instead: these operations
    #[arg(value_enum, value_name = "OPERATION", conflicts_with_all = ["only", "protocol"])]
    pub operations: Vec<Operation>,
    /// Measure the main points only (less than 20 s)
    #[arg(long)]
    pub quick: bool,
    /// Processors for the two sides, as in 0,1 (default: the last two)
    #[arg(long, value_name = "A,B")]
    pub cores: Option<Cores>,
    /// Repetitions of each case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: Option<u16>,
    /// Measure these parts only
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_enum)]
    pub only: Vec<Part>,
    /// Measure these sizes instead of the usual ones, as in 64,128K,1M
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Size>,
    /// Measure another protocol over the same software ports, with ours beside it
    #[arg(long, value_enum, conflicts_with = "only")]
    pub protocol: Option<Protocol>,
    /// Measure stores over a timed cable, as `gen3 x4, fibre 10 m`, beside its limit; may be given several times
    #[arg(long = "cable", value_name = "TEXT", conflicts_with_all = ["operations", "only", "sizes", "protocol"])]
    pub cables: Vec<Cable>,
    /// Hosts of its ring
    #[arg(long, value_name = "N", default_value_t = 5, requires = "protocol",
          value_parser = clap::value_parser!(u32).range(3..=5))]
    pub hosts: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: calm::Machine,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
    /// (internal) Answer the cases of the process that started this one
    #[arg(long, hide = true)]
    pub answer: bool,
    /// (internal) Serve memory at this address
    #[arg(long, hide = true)]
    pub own: Option<IpAddr>,
    /// (internal) Ask for memory that is offered
    #[arg(long, hide = true)]
    pub request: Option<String>,
}

/// A protocol that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// The ring study's: data into the window, four words into scratchpads, a doorbell; whole transfers are forwarded
    Scratchpad,
}

/// Runs `crosslane perf`.
///
/// # Errors
/// The answering process does not start or falls silent, or a file cannot be written.
pub fn run_perf(args: &PerfArgs) -> Result<()> {
    if args.answer {
        return session::answer();
    }
    let cores = args.cores.map_or_else(Cores::pick, Ok)?;
    if let Some(address) = args.own {
        return sides::own(address, cores.far);
    }
    if let Some(offer) = &args.request {
        return sides::request(offer, cores.near);
    }
    args.machine.begin();
    args.output.conclude(false, &measured(args, cores)?, export::table, export::markdown)
}

/// What `crosslane perf` is to measure.
fn measured(args: &PerfArgs, cores: Cores) -> Result<Report> {
    let runs = |usual| args.runs.map_or(usual, usize::from);
    if !args.operations.is_empty() {
        let mut plan = access::Plan::new(args.operations.clone(), args.quick);
        plan.runs = runs(plan.runs);
        choose(&mut plan.sizes, &args.sizes);
        return access::measure(&plan, cores);
    }
    if !args.cables.is_empty() {
        check_distinct(&args.cables)?;
        let (cables, seconds) = (args.cables.clone(), if args.quick { 1 } else { 3 });
        let plan = direct::Plan { cables, runs: runs(5), seconds, programs: false, brief: args.quick };
        return Ok(frame::measure(&mut DirectVsTcp::new(plan), None)?.0);
    }
    if args.protocol == Some(Protocol::Scratchpad) {
        let mut plan = scratchpad::Plan::new(args.hosts, args.quick);
        plan.runs = runs(plan.runs);
        choose(&mut plan.sizes, &args.sizes);
        return Ok(frame::measure(&mut Scratchpads::new(plan, cores), None)?.0);
    }
    let mut plan = if args.quick { Plan::quick() } else { Plan::full() };
    plan.runs = runs(plan.runs);
    plan.narrow(&args.only, &args.sizes);
    perf::run(&plan, cores)
}
