//! `crosslane plan`: what a network of cables would give.

use crate::exit;
use crate::table::{Table, bytes, count, or_dash};
use anyhow::{Context, Result};
use clap::Args;
use crosslane_pcie::{Cable, NANOSECOND};
use crosslane_plan::{Figure, Forwarding, Memory, Part, Plan, Settings, Topology, Unit, cable_of, plan};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the tables say, in words that need no other page.
const PLAN_HELP: &str = "\
Rows of the tables:
  neighbours            a program that never stops writing to a host one cable away; with \"each way of
                        both\", while the other direction is as busy (acknowledgements take their part)
  a stream over N       the same to a host N cables away; each host between copies it from its memory
                        into the next one's (--forward-rate, --forward-latency)
  all to all            every host to every other, each pair as much: one host's part, and all together
  bisection             what the cables between two halves of the network carry: the two halves with
                        the fewest cables between them
  half to half          every host of one half to every one of the other and back, through the hosts
                        between, each pair as much
  64 bytes, 4 KB        from the order to write until all of it is in the far memory, when nothing else is
                        under way: to a neighbour, mean of all pairs of hosts, and worst
Columns:
  UNIT        GB/s: 10^9 bytes of payload a second; us: microseconds
  FORMULA     what the formulas give
  SIMULATED   what the same network gives in virtual time (--simulate)
  DIFF %      how much the simulator is above the formula, in percent
  LIMITED BY  the part that is full first; for times, over how many cables
Window memory, K, M, G powers of 1024: what a port's window must hold for --streams streams between all hosts, if
each has its shortest ring (64 KB), and if each may grow to 8 MB. A window of hardware is a
power of two.
The second table is of what is left when cables are lost: those of --lost-cables, or one of them.

Example:
  crosslane plan --hosts 12 --topology ring --cable \"gen4 x8, mps 256, fibre 10 m\" --simulate

All of it is computed: nothing is measured, and no daemon is asked. docs/plan.md says what is assumed.";

/// What is planned.
#[derive(Args, Clone, Debug)]
#[command(after_help = PLAN_HELP)]
pub(crate) struct PlanArgs {
    /// How many hosts, 2 to 512; a pair and a torus-AxB say it themselves
    #[arg(long, value_name = "N")]
    hosts: Option<u16>,
    /// How they are cabled: pair, ring, chain, mesh (each to each), torus (as square as N allows), or torus-AxB (A rows, B columns)
    #[arg(long, default_value = "ring")]
    topology: Topology,
    /// All cables: generation and lanes, then any of mps BYTES, copper or fibre LENGTH m, hops N, errors SHARE, and stores, dma or dma BUFFER
    #[arg(long, value_name = "TEXT")]
    cable: Cable,
    /// Streams that each host opens to each other one (window memory)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    streams: u64,
    /// What a host between copies at most, GB/s
    #[arg(long, value_name = "GB/S", default_value = "10", value_parser = rate)]
    forward_rate: f64,
    /// From data in the memory of a host between until it begins to write them on, ns
    #[arg(long, value_name = "NS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    forward_latency: u64,
    /// Cables that are lost, as h1-h2,h5-h6 [default: the middle one]
    #[arg(long, value_name = "CABLES", value_delimiter = ',', value_parser = cable_of)]
    lost_cables: Vec<(u16, u16)>,
    /// Run the simulator beside the formulas (some seconds)
    #[arg(long)]
    simulate: bool,
    /// What settles the simulator's bit errors, and the order of messages
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    seed: u64,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write the JSON to a file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A rate in GB/s as people write it, in bytes a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.001..=1e6).contains(rate));
    rate.map(|rate| rate * 1e9).ok_or_else(|| "give GB/s, 0.001 to 1000000".to_owned())
}

impl PlanArgs {
    /// What is planned; the number of hosts that the topology says, if none was given.
    ///
    /// # Errors
    /// There is no number of hosts.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let hosts = self.hosts.or(self.topology.own_hosts());
        let hosts = hosts
            .ok_or_else(|| exit::usage(format!("--hosts: say how many hosts the {} has", self.topology)))?;
        let latency = self.forward_latency * NANOSECOND;
        Ok(Settings {
            hosts,
            topology: self.topology,
            cable: self.cable,
            forwarding: Forwarding { rate: self.forward_rate, latency, ..Forwarding::default() },
            streams: self.streams,
            lost: self.lost_cables.clone(),
        })
    }
}

/// Plans, and prints.
///
/// # Errors
/// There is no such network (exit code 2), or a file cannot be written.
pub(crate) fn run(args: &PlanArgs) -> Result<()> {
    let progress = Progress::new(args.simulate);
    let seed = args.simulate.then_some(args.seed);
    let planned = plan(&args.settings()?, seed, &mut |name, share| progress.tell(name, share));
    progress.0.finish_and_clear();
    let plan = planned.map_err(|error| exit::usage(error.to_string()))?;
    let json = serde_json::to_string_pretty(&plan)?;
    if let Some(path) = &args.out {
        write(path, &json)?;
    }
    let mut out = stdout().lock();
    if args.json { Ok(writeln!(out, "{json}")?) } else { print(&plan, args.simulate, &mut out) }
}

fn write(path: &Path, json: &str) -> Result<()> {
    std::fs::write(path, format!("{json}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// The terminal's display while the simulator runs.
struct Progress(ProgressBar);

impl Progress {
    const STEPS: u64 = 1000;

    fn new(shown: bool) -> Self {
        if !shown {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("  {bar:30} {percent} %  {elapsed}  {msg}");
        let bar =
            ProgressBar::new(Self::STEPS).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    fn tell(&self, name: &str, share: f64) {
        self.0.set_message(name.to_owned());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 1000")]
        self.0.set_position((share.clamp(0.0, 1.0) * Self::STEPS as f64) as u64);
    }
}

fn print(plan: &Plan, simulated: bool, out: &mut impl Write) -> Result<()> {
    let assumed = &plan.assumed;
    writeln!(out, "{} hosts, {}, {}", plan.hosts, plan.topology, of_part(&plan.whole))?;
    writeln!(out, "cable: {}", assumed.cable)?;
    let (rate, latency) = (assumed.forward_rate / 1e9, assumed.forward_latency_ns);
    writeln!(out, "hosts between: copy {rate} GB/s at most, and begin {latency} ns after the data came")?;
    figures(&plan.whole.figures, simulated, out)?;
    writeln!(out, "\nwithout {}: {}", plan.lost_cables.join(", "), of_part(&plan.after_loss))?;
    figures(&plan.after_loss.figures, simulated, out)?;
    memory(&plan.memory, out)?;
    plan.notes.iter().try_for_each(|note| Ok(writeln!(out, "\nnote: {note}")?))
}

fn of_part(part: &Part) -> String {
    let (cables, farthest) = (count(part.cables, "cable"), count(part.farthest.into(), "cable"));
    format!("{cables}, {farthest} between the farthest hosts")
}

fn figures(figures: &[Figure], simulated: bool, out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(if simulated {
        "figure|unit|>formula|>simulated|>diff %|limited by"
    } else {
        "figure|unit|>formula|limited by"
    });
    for figure in figures {
        let (name, unit, limit) = (figure.name.clone(), unit(figure.unit), figure.limited_by.clone());
        let formula = number(figure.unit, figure.formula);
        if simulated {
            let theirs = or_dash(figure.simulated.map(|value| number(figure.unit, value)));
            let difference = or_dash(figure.difference_percent.map(|value| format!("{value:+.2}")));
            table.row([name, unit, formula, theirs, difference, limit]);
        } else {
            table.row([name, unit, formula, limit]);
        }
    }
    if table.is_empty() { Ok(writeln!(out, "no host reaches another")?) } else { table.print(out) }
}

fn unit(unit: Unit) -> String {
    match unit {
        Unit::Rate => "GB/s",
        Unit::Time => "us",
    }
    .to_owned()
}

fn number(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Rate => format!("{:.3}", value / 1e9),
        Unit::Time => format!("{:.3}", value / 1e3),
    }
}

fn memory(memory: &Memory, out: &mut impl Write) -> Result<()> {
    let streams = format!("{} a pair of hosts each way", count(usize::try_from(memory.streams)?, "stream"));
    writeln!(
        out,
        "\nwindow memory, {streams}: {} over the busiest cable",
        count(usize::try_from(memory.circuits)?, "circuit")
    )?;
    let mut table = Table::new("window|>rings of 64 KB|>power of two|>rings to 8 MB|>power of two");
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let size = |value: u64| bytes(value as f64);
    let mut row = |name: String, least: u64, long: u64, each: bool| {
        let power = |value: u64| if each { size(value.next_power_of_two()) } else { "-".to_owned() };
        table.row([name, size(least), power(least), size(long), power(long)]);
    };
    row("of its ports".to_owned(), memory.port_least, memory.port_long, true);
    row(format!("all ports of {}", memory.host), memory.host_least, memory.host_long, false);
    table.print(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use crosslane_node::{cable, config};
    use crosslane_plan::memory;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PlanArgs,
    }

    fn settings(line: &str) -> Settings {
        let words =
            [&["plan", "--cable", "gen4 x8"], line.split(' ').collect::<Vec<_>>().as_slice()].concat();
        Line::try_parse_from(words).expect("understood").args.settings().expect("complete")
    }

    #[test]
    fn plan_settings_have_the_values_of_the_command_line() {
        let settings =
            settings("--topology torus-3x4 --forward-rate 2.5 --forward-latency 75 --lost-cables h1-h2,3-4");
        assert_eq!((settings.hosts, settings.lost), (12, vec![(0, 1), (2, 3)]));
        assert_eq!((settings.forwarding.rate, settings.forwarding.latency), (2.5e9, 75_000));
    }

    #[test]
    fn plan_tables_have_what_was_computed() {
        let settings = settings("--hosts 4");
        let mut out = Vec::new();
        print(&plan(&settings, None, &mut |_, _| {}).expect("a ring"), false, &mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        for words in
            ["4 hosts, ring, 4 cables", "bisection", "without h2-h3: 3 cables", "64 bytes, worst", "WINDOW"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("SIMULATED"), "{text}");
    }

    /// What the plan takes for the daemon's is the daemon's.
    #[test]
    fn plan_windows_are_laid_out_as_the_daemons() {
        assert_eq!(memory::WINDOW_MIN, config::WINDOW_MIN);
        for window in [config::WINDOW_MIN, 2 << 20, 4 << 20, 5 << 20, 8 << 20, 64 << 20, 1 << 35] {
            assert_eq!(memory::channels(window), cable::circuits(window), "{window}");
        }
        let written = config::Config::parse("host = 1").expect("a configuration");
        assert_eq!(memory::RING_MAX, written.ring_max);
    }
}
