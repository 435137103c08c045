//! Arguments of the measuring commands, and what they do.

use crate::affinity::Cores;
use crate::export;
use crate::figure::Report;
use crate::perf::access::{self, Operation, sides};
use crate::perf::{self, Part, Plan, Size, session};
use crate::program::Effort;
use crate::quick::Quick;
use crate::ring::{self, flow};
use crate::scratchpad;
use crate::suite;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Hosts of its ring
    #[arg(long, value_name = "N", default_value_t = 5, requires = "protocol",
          value_parser = clap::value_parser!(u32).range(3..=5))]
    pub hosts: u32,
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

/// `crosslane bench quick`: everything that has a bar, in one run.
#[derive(Args, Clone, Debug)]
pub struct QuickArgs {
    /// Runs of each case; medians are shown
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    /// Let each run of a program last three seconds instead of one
    #[arg(long)]
    pub long: bool,
    /// Leave out the second half, all programs on two processors
    #[arg(long)]
    pub no_pinned: bool,
    /// Run only these: perf, idle, ip, transit, safety, loss, or names of programs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
    /// Exit with code 1 if a bar is missed
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `crosslane bench ring`: three hosts and all their pairs, as the ring study measured them.
#[derive(Args, Clone, Debug)]
pub struct RingArgs {
    /// Runs of each case; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    /// Measure these sizes instead of 1K to 4M
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Size>,
    /// Exit with code 1 if a bar is missed
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
    /// (internal) Be a receiver on this port
    #[arg(long, hide = true, value_name = "PORT")]
    pub sink: Option<u16>,
    /// (internal) Be a sender: address, size, milliseconds
    #[arg(long, hide = true, num_args = 3)]
    pub pour: Vec<String>,
}

/// Runs `crosslane bench ring`.
///
/// # Errors
/// The lab does not come up, a program fails, a file cannot be written, or `--check` found a missed bar.
pub fn run_ring(args: &RingArgs) -> Result<()> {
    if let Some(port) = args.sink {
        return flow::sink(port);
    }
    if let [to, size, millis] = &args.pour[..] {
        return flow::sender(to.parse()?, size.parse()?, Duration::from_millis(millis.parse()?));
    }
    let mut plan = ring::Plan::new(args.runs.into());
    choose(&mut plan.sizes, &args.sizes);
    args.output.conclude(args.check, &ring::measure(&plan)?, ring::table, export::markdown)
}

/// `crosslane demo`: unmodified programs between the hosts of a lab.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Runs of each program at each place; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

impl QuickArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// `--only` names something that is not there.
    pub fn check(&self) -> Result<()> {
        suite::check(&self.plan())
    }

    fn plan(&self) -> Quick {
        Quick {
            runs: self.runs.into(),
            effort: if self.long { Effort::Long } else { Effort::Short },
            pinned: !self.no_pinned,
            only: self.only.clone(),
        }
    }
}

/// Runs `crosslane bench quick`.
///
/// # Errors
/// The lab does not come up, a file cannot be written, or `--check` found a missed bar.
pub fn run_quick(args: &QuickArgs) -> Result<()> {
    args.output.conclude(args.check, &suite::quick(&args.plan())?, export::table, export::markdown)
}

/// Runs `crosslane demo`.
///
/// # Errors
/// The lab does not come up, or a file cannot be written.
pub fn run_demo(args: &DemoArgs) -> Result<()> {
    args.output.conclude(false, &suite::demo(args.runs.into())?, export::summary, export::markdown)
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
    /// Prints and writes `report`, as people get it on a terminal (`form`) and in Markdown; then, if the bars are to be
    /// checked, looks at them.
    ///
    /// # Errors
    /// A file cannot be written, or a bar is missed.
    pub fn conclude(
        &self,
        check: bool,
        report: &Report,
        form: fn(&Report) -> String,
        markdown: fn(&Report) -> String,
    ) -> Result<()> {
        let json = export::json(report)?;
        for (path, text) in [(&self.out, &json), (&self.markdown, &markdown(report))] {
            let Some(path) = path else { continue };
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            println!("{json}")
        } else {
            print!("{}", form(report))
        }
        let missed = report.failed().count();
        ensure!(!check || missed == 0, "{missed} bars are missed");
        Ok(())
    }
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
    if args.protocol == Some(Protocol::Scratchpad) {
        let mut plan = scratchpad::Plan::new(args.hosts, args.quick);
        plan.runs = runs(plan.runs);
        choose(&mut plan.sizes, &args.sizes);
        return scratchpad::measure(&plan, cores);
    }
    let mut plan = if args.quick { Plan::quick() } else { Plan::full() };
    plan.runs = runs(plan.runs);
    plan.narrow(&args.only, &args.sizes);
    perf::run(&plan, cores)
}

/// Sizes that were asked for, in place of the usual ones.
pub(crate) fn choose(usual: &mut Vec<usize>, asked: &[Size]) {
    if !asked.is_empty() {
        *usual = asked.iter().map(|size| size.0).collect();
    }
}
