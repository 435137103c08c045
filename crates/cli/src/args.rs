//! The command line.

use crate::plan::PlanArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use crosslane_bench::all::args::AllArgs;
use crosslane_bench::apps::args::AppsArgs;
use crosslane_bench::cli::PerfArgs;
use crosslane_bench::demo::DemoArgs;
use crosslane_bench::direct::args::DirectArgs;
use crosslane_bench::kernel::args::KernelArgs;
use crosslane_bench::media::args::MediaArgs;
use crosslane_bench::quick::args::QuickArgs;
use crosslane_bench::ring::args::RingArgs;
use crosslane_bench::scale::args::ScaleArgs;
use crosslane_bench::sdp::args::SdpArgs;
use crosslane_bench::stack::command::StackArgs;
use crosslane_bench::steady::args::SteadyArgs;
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; ping: no answer came at all; doctor: there is a finding of severity error;
       compare: B is worse (or differs, with --fail-on any)
  2    the command line was not understood, or its values make no sense; config check: not good;
       compare: the two cannot be compared
  3    no daemon answers at the control socket
  4    there is no lab of that name, or it has no such host
  125  run, lab exec: the program could not be prepared
  126  run, lab exec: the program cannot be run
  127  run, lab exec: the program was not found
  Otherwise run and lab exec become the program: its exit code and its signals are its own.

Environment:
  CROSSLANE_SOCKET  control socket of the daemon (as --socket)
  CROSSLANE_BIN     folder of crosslaned, crosslane-keeper, libcrosslane_sockets.so and libcrosslane_malloc.so";

/// One network of hosts joined by PCIe NTB cables, or by software ports on one machine.
#[derive(Debug, Parser)]
#[command(name = "crosslane", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Crosslane {
    /// Control socket of this host's daemon [default: $CROSSLANE_SOCKET, or /run/crosslane/crosslaned.sock]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hosts on this machine: each a network namespace with its own daemon
    #[command(subcommand)]
    Lab(LabCommand),
    /// Run a program accelerated on this host
    Run(RunArgs),
    /// Show hosts, ports, circuits and counters
    Status(JsonArgs),
    /// Measure round trips to a host through the fabric
    Ping(PingArgs),
    /// Measure direct access from user space, beside the limits of this machine
    Perf(Box<PerfArgs>),
    /// Measure unmodified programs, all that has a bar, in one run
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run unmodified programs between three hosts of a lab, and compare with the kernel's TCP
    Demo(Box<DemoArgs>),
    /// Tell what two results of perf, bench or demo differ by, and how sure that is
    Compare(CompareArgs),
    /// Make one HTML page of results of perf, bench or demo, which needs no network
    Report(ReportArgs),
    /// Show the network, ports, streams, latency and switch-overs, live
    Top(TopArgs),
    /// Tell which way the connections of a program go, and why
    Explain(ExplainArgs),
    /// Look at this machine and its daemon: what is in the way, why it matters, what to do
    Doctor(DoctorArgs),
    /// Tell what hosts joined by PCIe cables would give: bandwidth, bisection, latency, window memory
    Plan(Box<PlanArgs>),
    /// Print names and addresses of all hosts, in the form of /etc/hosts
    Hosts(JsonArgs),
    /// Print the daemon's counters in Prometheus' text format
    Metrics,
    /// Look at a daemon's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Keys by which hosts prove who they are to the network
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write all pages into a folder
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Allocations of at least SIZE (bytes, or with K, M, G; 16K or more) become memory that programs at the far ends
    /// of its streams may map for reading, so that what is sent from there is copied once
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) malloc: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// A size as people write it, of an allocation.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| *size >= 16 << 10).ok_or_else(|| "not a size of 16K or more, as 64K or 1M".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Host id, name (h2), or fabric address
    pub(crate) host: String,
    /// How many probes
    #[arg(short = 'c', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Pause between probes, ms
    #[arg(short = 'i', long, default_value_t = 100)]
    pub(crate) interval: u64,
    /// Print only the summary
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const TOP_HELP: &str = "\
Keys: F1 h ? all keys; Tab next table; F3 / search; F4 \\ filter; F6 < > column to sort by;
I the other way round; P M T N sort by load, bytes moved, age, process; arrows, PgUp, PgDn, Home,
End select; Space tags, U untags; p pauses; + - delay; z forgets round trips; F10 q Ctrl-C quit.

Latency: once a second this host's daemon sends each other host (16 at most, the next ones in turn)
the probe of `crosslane ping`; p50, p90, p99 and max are of all round trips since the start. They go
from daemon to daemon, over the control channel of the cables: it is not the latency of a program's
messages, which pass no daemon. --no-probes sends none.

NO_COLOR turns colours off; without a UTF-8 locale all is ASCII. Where standard input or output is no
terminal, or TERM is unset or dumb, text is printed as with --plain.";

#[derive(Debug, Args)]
#[command(after_long_help = TOP_HELP)]
pub(crate) struct TopArgs {
    /// How many times to refresh [default: until a key or a signal ends it]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) refreshes: Option<u32>,
    /// Time between refreshes, s
    #[arg(short = 'd', long, default_value_t = 1.0)]
    pub(crate) delay: f64,
    /// Print one JSON line each refresh
    #[arg(long)]
    pub(crate) json: bool,
    /// Print text each refresh, also to a terminal
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Measure no round trips to other hosts
    #[arg(long)]
    pub(crate) no_probes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Process id, and one descriptor of it
    #[arg(value_name = "PID[:FD]")]
    pub(crate) target: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Look at the files of another machine (sys, proc, dev, boot, lib), which lie in FOLDER; a daemon is asked
    /// only if --socket names one
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(crate) root: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file as the daemon would
    Check {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a private key in a new file that only its owner can read, and print its public key
    Generate(KeyArgs),
    /// Print the public key of a private one
    Show(KeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// File of the private key
    pub(crate) file: PathBuf,
    /// Print the line of the file of public keys for this host (1 to 254), or for all (`*`)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// One experiment after the other, in one report
    All(Box<AllArgs>),
    /// Everything that has a bar
    Quick(Box<QuickArgs>),
    /// Three hosts in a ring: each pair alone and all at once, by size, as the ring study measured them
    Ring(Box<RingArgs>),
    /// Cycles a message by function, ours and the kernel's TCP, as the TCP/IP study measured them
    Stack(Box<StackArgs>),
    /// The modes of a stream by size of message, beside the kernel's TCP, as the SDP study measured SDP
    Sdp(Box<SdpArgs>),
    /// Programs of others, on streams and on the kernel's TCP by turns: rate and processor time
    Apps(Box<AppsArgs>),
    /// The kernel's own clients of an NTB bridge and Crosslane on the same one by turns, between two virtual machines
    Kernel(Box<KernelArgs>),
    /// Direct access, sockets, IP and the kernel's TCP on timed cables, by generation and lanes, as study 1 measured them
    DirectVsTcp(Box<DirectArgs>),
    /// Copper and fibre under a remote block device, on timed cables, as the media study measured them
    Media(Box<MediaArgs>),
    /// Many connections, many hosts, hundreds of simulated ones: what is left of each
    Scale(Box<ScaleArgs>),
    /// Many short ping-pongs on streams and on TCP by turns: how often one is much slower, and what was stolen
    Steady(Box<SteadyArgs>),
}

/// What `compare` says and does.
const COMPARE_HELP: &str = "\
Files are what perf, bench and demo write with --out. For each metric of both one of these is said:
  faster by 3.1 % (2.0 to 4.2)             there is a difference, and it lies in this interval; also
                                           slower, or better and worse for what is no speed
  no difference (1.5 % would have been seen)   such a difference would be found 9 times of 10
  too few runs to tell (3 and 3)           the runs scatter too much for their number
Percents are of the value itself: a time of 100 ns that becomes 50 ns is faster by 50 %. Where both
files have runs of the same reference (as ratios to: veth TCP, bare ring), ratios of the single runs
to it are compared, since machines differ from one hour to the next.
All metrics are judged together (Holm): with 95 % confidence nothing is found where nothing is.

Of three results and more it is told how far medians of ratios move from one to the next: for each
ratio of a figure to a reference the largest distance of one result from the median of all, and how
many ratios move by less than --limit.

Exit codes:
  0  nothing is worse (--fail-on any: nothing differs; never: always if they can be compared)
  1  a metric is worse (any: differs; of three results and more: a ratio moves by --limit or more)
  2  they cannot be compared: a file is no result, no metric is in both, or none has enough runs";

#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
pub(crate) struct CompareArgs {
    /// The result that is the measure
    pub(crate) a: PathBuf,
    /// The other one
    pub(crate) b: PathBuf,
    /// More results of the same command: how far ratios move
    pub(crate) more: Vec<PathBuf>,
    /// What counts as moved, of three results and more, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 15.0)]
    pub(crate) limit: f64,
    /// How sure all differences together must be, percent (50 to 99.99)
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0)]
    pub(crate) confidence: f64,
    /// Smaller differences do not count, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub(crate) min: f64,
    /// When to exit with code 1
    #[arg(long, value_enum, default_value = "slower")]
    pub(crate) fail_on: FailOn,
    /// Compare values as they are, not their ratios to references
    #[arg(long)]
    pub(crate) values: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the JSON to a file too
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// A metric is slower, or worse in another way
    Slower,
    /// A metric differs
    Any,
    /// Never
    Never,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Files that perf, bench and demo wrote with --out
    #[arg(required = true, value_name = "FILE")]
    pub(crate) results: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub(crate) out: PathBuf,
    /// Write each plot as an SVG file of its own into this folder too
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plots: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder to write all pages into
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Bring up a lab and wait until all its links are up
    Up(UpArgs),
    /// Run a program in a host of the lab, accelerated
    Exec(ExecArgs),
    /// Show hosts and links of the lab
    Status(NamedArgs),
    /// Pull the cable between two hosts: its link stays down until it is mended
    Cut(CableArgs),
    /// Plug in again what was cut
    Mend(CableArgs),
    /// Kill (SIGKILL) the daemon of a host; its programs live on
    Kill(KillArgs),
    /// Start the daemon of a host again, and wait for the links that it can have
    Start(HostArgs),
    /// End the lab and everything that runs in it
    Down(DownArgs),
    /// List the labs of this user
    List(JsonArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TopologyArg {
    /// Each host to the next, the last to the first
    Ring,
    /// Two hosts and one cable
    Pair,
    /// Each host to the next
    Chain,
    /// Rows and columns, each closed to a ring: four cables a host (--hosts 9 is 3 x 3)
    Torus,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ResilienceArg {
    /// A stream whose cable is lost goes on over another way
    Keep,
    /// It is reset; nothing is kept for sending it again
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CableKindArg {
    /// Memory between two daemons
    Soft,
    /// The same, with stores that land later
    Posted,
}

/// Reads `10` or `0-1000`.
fn delay_of(text: &str) -> Result<(u32, u32), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if least <= most => Ok((least, most)),
        _ => Err("give one number of microseconds, or LEAST-MOST".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// How many hosts
    #[arg(long, default_value_t = 3)]
    pub(crate) hosts: u8,
    /// How they are cabled
    #[arg(long, value_enum, default_value = "ring")]
    pub(crate) topology: TopologyArg,
    /// Cables side by side between two neighbours, 1 to 4: new streams take the one with the fewest busy streams
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) beside: u8,
    /// Name of the lab
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// Replace a lab of that name
    #[arg(long)]
    pub(crate) force: bool,
    /// What the cables are
    #[arg(long, value_enum, default_value = "soft")]
    pub(crate) cable_kind: CableKindArg,
    /// How long stores are under way on posted cables, us: one number, or LEAST-MOST [default: the daemon's]
    #[arg(long, value_name = "US", value_parser = delay_of)]
    pub(crate) delay_us: Option<(u32, u32)>,
    /// Stores land as on this PCIe cable, as in `gen4 x8, mps 256, fibre 10 m, hops 2, errors 1e-12, dma` (docs/link-model.md)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["delay_us", "cable_kind"])]
    pub(crate) cable: Option<crosslane_pcie::Cable>,
    /// What settles the delays of posted cables [default: 0]
    #[arg(long)]
    pub(crate) seed: Option<u32>,
    /// Stores over posted cables land in their order, and not only between store fences
    #[arg(long)]
    pub(crate) in_order: bool,
    /// Inbound memory of each port (sparse)
    #[arg(long, default_value = "32G")]
    pub(crate) window: String,
    /// Largest ring of a stream [default: the daemon's]
    #[arg(long)]
    pub(crate) ring_max: Option<String>,
    /// Longest spin before a sleep, us [default: the daemon's]
    #[arg(long)]
    pub(crate) spin_us: Option<u32>,
    /// All traffic goes in one direction round the ring (3 hosts or more)
    #[arg(long)]
    pub(crate) one_way: bool,
    /// Streams between two hosts go both ways round the ring, not the shortest way only
    #[arg(long, conflicts_with = "one_way")]
    pub(crate) all_ways: bool,
    /// Each stream uses two cables at once, where there are two ways of one length (--beside 2) or with --all-ways
    #[arg(long)]
    pub(crate) stripe: bool,
    /// Hosts between copy what passes through them, as with hardware, in place of handing memory on
    #[arg(long)]
    pub(crate) pump: bool,
    /// What becomes of a stream whose cable is lost [default: the daemon's]
    #[arg(long, value_enum)]
    pub(crate) resilience: Option<ResilienceArg>,
    /// A rule for all hosts, libsdp form; may be given several times
    #[arg(long = "rule", value_name = "RULE")]
    pub(crate) rules: Vec<String>,
    /// Log level of the daemons (as CROSSLANE_LOG)
    #[arg(long, default_value = "info")]
    pub(crate) log: String,
    /// Each host is a virtual machine with a kernel of its own, joined by NTB bridges of software (`make vm-image` first)
    #[arg(long)]
    pub(crate) vms: bool,
    /// Memory of each virtual machine, MB [default: 512]
    #[arg(long, value_name = "MB", requires = "vms")]
    pub(crate) vm_memory: Option<u32>,
    /// Folder with the virtual machines' vmlinuz and initrd.gz [default: where `make vm-image` puts them]
    #[arg(long, value_name = "FOLDER", requires = "vms")]
    pub(crate) vm_image: Option<PathBuf>,
    /// How long to wait for the links, s [default: 20, of virtual machines 300]
    #[arg(long)]
    pub(crate) timeout: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Name of the host: h1, h2, ..
    pub(crate) host: String,
    /// Do not accelerate: only the kernel's sockets
    #[arg(long)]
    pub(crate) plain: bool,
    /// Name of the lab
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct CableArgs {
    /// A host: h1, or 1
    #[arg(value_name = "A")]
    pub(crate) one: String,
    /// Its neighbour
    #[arg(value_name = "B")]
    pub(crate) other: String,
    /// Name of the lab
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// The host: h1, or 1
    pub(crate) host: String,
    /// Name of the lab
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// All that runs in the host, as if it lost its power
    #[arg(long)]
    pub(crate) programs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NamedArgs {
    /// Name of the lab
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Name of the lab
    #[arg(long, default_value = "default", conflicts_with = "all")]
    pub(crate) name: String,
    /// All labs of this user
    #[arg(long)]
    pub(crate) all: bool,
}
