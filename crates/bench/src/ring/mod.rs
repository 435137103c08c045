//! `crosslane bench ring`: the ring study's figures 5 and 6, three hosts and all their pairs, over our streams.
//!
//! Each pair alone; one host to both neighbours at once; all three pairs at once, each host sending to both neighbours.
//! The programs are plain ones ([`flow`]) under the preloaded library, in a lab of three hosts.

pub mod args;
pub mod flow;

use crate::calm::turn;
use crate::clock::clock;
use crate::export::{heading, two, warnings, whole};
use crate::figure::{Figure, Report, Sample, Unit, bytes};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::place;
use crate::program::VETH;
use crate::program::process::Server;
use crate::speaker::{Speaker, own_program};
use anyhow::{Context, Result, ensure};
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_lab::{Lab, Options, Preload};
use flow::Moved;
use indicatif::ProgressBar;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Ports of the receivers: accelerated ones, and plain ones.
const PORT: u16 = 23_000;
const PLAIN_PORT: u16 = 23_001;
/// Time for all connected senders of a run to learn when they are to begin.
const START: Duration = Duration::from_millis(10);
/// Least part of the rate at 1 MB that larger sizes must keep: the study's fell to pieces there.
const COLLAPSE: f64 = 0.5;

/// The groups of the report.
const ALONE: &str = "a pair alone";
const BOTH: &str = "one host to both, each";
const ALL: &str = "all pairs at once, each way";
const SUM: &str = "all pairs at once, sum";
/// References: the kernel's TCP between the same hosts, in the same arrangement; and our own rate at 1 MB.
const AT_MEGABYTE: &str = "at 1 MB";

/// The study's own figures, MB/s by DMA, at 512 KB: where its rate was highest. It gives the curves as pictures.
const STUDY: [(&str, f64); 2] = [("PEX8733", 3500.0), ("PEX8749", 2600.0)];
const STUDY_SIZE: usize = 512 << 10;

/// Who sends to whom.
type Flows = &'static [(&'static str, &'static str)];
const PAIRS: [Flows; 3] = [&[("h1", "h2")], &[("h2", "h3")], &[("h3", "h1")]];
const ONE_TO_BOTH: Flows = &[("h1", "h2"), ("h1", "h3")];
const EVERYBODY: Flows =
    &[("h1", "h2"), ("h2", "h3"), ("h3", "h1"), ("h2", "h1"), ("h3", "h2"), ("h1", "h3")];

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes of writes and reads, bytes.
    pub sizes: Vec<usize>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each sends, ms.
    pub millis: u64,
}

impl Plan {
    /// The study's sizes, 1 KB to 512 KB, and 1 to 4 MB; two of them if `quick`, in shorter runs.
    pub fn new(runs: usize, quick: bool) -> Self {
        let full = || (10..=22).map(|shift| 1 << shift).collect();
        let sizes = if quick { vec![1 << 20, 4 << 20] } else { full() };
        Self { sizes, runs, millis: if quick { 80 } else { 200 } }
    }
}

/// A lab with a receiver in each host.
#[derive(Debug)]
pub(crate) struct Rig {
    lab: Lab,
    program: PathBuf,
    _sinks: Vec<Server>,
}

impl Rig {
    fn new() -> Result<Self> {
        Self::of(&Options::scratch("ring"))
    }

    /// Of a lab with these options.
    ///
    /// # Errors
    /// The lab does not come up.
    pub(crate) fn of(options: &Options) -> Result<Self> {
        let lab = place::up(options)?;
        let program = own_program()?;
        let mut sinks = Vec::new();
        for host in &lab.state().hosts {
            for (preload, port) in [(Preload::On, PORT), (Preload::Off, PLAIN_PORT)] {
                let mut sink = lab.command(&host.name, preload, &program)?;
                sink.env(OWN_CALLS_VARIABLE, FILES).args(["bench", "ring", "--sink", &port.to_string()]);
                sinks.push(Server::start(sink, port)?);
            }
        }
        Ok(Self { lab, program, _sinks: sinks })
    }

    /// The lab.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The rates of flows that run at the same time, MB/s: accelerated, or the kernel's TCP over the veth pairs.
    ///
    /// # Errors
    /// A program fails.
    pub(crate) fn rates(
        &self,
        preload: Preload,
        flows: &[(&str, &str)],
        size: usize,
        millis: u64,
    ) -> Result<Vec<f64>> {
        turn(|| self.once(preload, flows, size, millis))
    }

    fn once(&self, preload: Preload, flows: &[(&str, &str)], size: usize, millis: u64) -> Result<Vec<f64>> {
        let senders = flows.iter().map(|(from, to)| {
            let mut sender = self.lab.command(from, preload, &self.program)?;
            let to = match preload {
                Preload::On => format!("{}:{PORT}", self.lab.address(to)?),
                Preload::Off => format!("{}:{PLAIN_PORT}", self.lab.baseline(from, to)?),
            };
            sender.env(OWN_CALLS_VARIABLE, FILES).args(["bench", "ring", "--pour", &to]);
            sender.args([size.to_string(), millis.to_string()]);
            Speaker::start(sender)
        });
        let mut senders = senders.collect::<Result<Vec<_>>>()?;
        for sender in &mut senders {
            let flow::Connected = sender.receive().context("a sender")?;
        }
        let at = clock() + u64::try_from(START.as_nanos())?;
        senders.iter_mut().try_for_each(|sender| sender.say(&at))?;
        let rate = |sender: &mut Speaker| Ok(sender.receive::<Moved>().context("a sender")?.rate());
        senders.iter_mut().map(rate).collect()
    }

    /// All arrangements of one run: a pair's rate alone, one host's rate to each of its neighbours, each rate of all at once, and their sum.
    fn arrangements(&self, preload: Preload, size: usize, millis: u64) -> Result<[f64; 4]> {
        let alone = PAIRS.map(|pair| self.rates(preload, pair, size, millis)).into_iter();
        let alone = alone.collect::<Result<Vec<_>>>()?.concat();
        let both = self.rates(preload, ONE_TO_BOTH, size, millis)?;
        let all = self.rates(preload, EVERYBODY, size, millis)?;
        Ok([mean(&alone), mean(&both), mean(&all), all.iter().sum()])
    }

    /// All measurements of one size.
    fn figures(&self, plan: &Plan, size: usize) -> Result<Vec<Figure>> {
        let (mut ours, mut veth) = ([const { Vec::new() }; 4], [const { Vec::new() }; 4]);
        for _ in 0..plan.runs {
            let before = self.streams();
            for (preload, values) in [(Preload::On, &mut ours), (Preload::Off, &mut veth)] {
                let run = self.arrangements(preload, size, plan.millis)?;
                values.iter_mut().zip(run).for_each(|(values, rate)| values.push(rate));
            }
            ensure!(self.streams() > before, "the connections were not accelerated");
        }
        let (ours, veth) = (ours.map(Sample::new), veth.map(Sample::new));
        let alone = ours[0].clone();
        let groups = [ALONE, BOTH, ALL, SUM].into_iter().zip(ours).zip(veth);
        let figures = groups.map(|((group, sample), veth)| {
            let alone = if group == ALONE { None } else { alone.clone() };
            let figure = Figure::new(group, bytes(size), Unit::MegabytesPerSecond, sample);
            figure.against(ALONE, alone).against(VETH, veth).by_turns()
        });
        Ok(figures.collect())
    }

    /// Stream ends that programs in `h1` have got so far.
    fn streams(&self) -> u64 {
        self.lab.status("h1").unwrap_or_default().counters.streams_opened
    }
}

/// The experiment: a step for each size.
#[derive(Debug)]
pub struct RingOfThree {
    plan: Plan,
    rig: Shared<Rig>,
}

impl RingOfThree {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, rig: Shared::default() }
    }
}

impl Experiment for RingOfThree {
    fn title(&self) -> String {
        let Plan { runs, millis, .. } = self.plan;
        format!(
            "crosslane bench ring, three hosts and all their pairs, accelerated streams, medians of {runs} runs of {millis} ms"
        )
    }

    fn steps(&self) -> Vec<String> {
        self.plan.sizes.iter().map(|size| bytes(*size)).collect()
    }

    fn take(&mut self, step: usize, _: &ProgressBar) -> Result<Taken> {
        let (plan, size) = (&self.plan, self.plan.sizes[step]);
        Ok(self.rig.with(Rig::new, |rig| rig.figures(plan, size))?.into())
    }

    fn conclude(&self, report: &mut Report) {
        report.cables = vec![[1, 2], [2, 3], [1, 3]];
        hold_against_a_megabyte(report, &self.plan.sizes);
        let processors = report.machine.processors;
        let hosts = format!("12 programs share {processors} processors when all pairs send at once");
        report.warnings.push(hosts);
    }
}

/// Sizes above 1 MB have a bar: where the study's adapters had no more buffer, nothing may collapse.
fn hold_against_a_megabyte(report: &mut Report, sizes: &[usize]) {
    let megabyte = bytes(1 << 20);
    let larger: Vec<String> = sizes.iter().filter(|size| **size > 1 << 20).map(|size| bytes(*size)).collect();
    let at = |group: &str| report.find(group, &megabyte)?.sample.clone();
    let references = [ALONE, BOTH, ALL, SUM].map(|group| (group, at(group)));
    for figure in report.figures.iter_mut().filter(|figure| larger.contains(&figure.case)) {
        let Some((_, sample)) = references.iter().find(|(group, _)| *group == figure.group) else { continue };
        *figure = figure.clone().against(AT_MEGABYTE, sample.clone()).bar(AT_MEGABYTE, COLLAPSE, None);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The report as the study's two figures in one table: sizes down, arrangements across, MB/s (10^6), with the study's
/// own figures at the end.
pub fn table(report: &Report) -> String {
    let groups = [ALONE, BOTH, ALL, SUM];
    let mut out = format!("{}\nMB/s    ", heading(report));
    groups.iter().for_each(|group| out.push_str(&format!("  {group}")));
    let _ = write!(out, "  of {ALONE}  of {VETH}");
    STUDY.iter().for_each(|(board, _)| out.push_str(&format!("  study, {board}")));
    out.push('\n');
    for figure in report.figures.iter().filter(|figure| figure.group == ALONE) {
        let _ = write!(out, "{:<8}", figure.case);
        let of = |group: &str| report.find(group, &figure.case);
        for group in groups {
            let rate = of(group).and_then(Figure::median);
            let _ = write!(out, "  {:>1$}", whole(rate), group.len());
        }
        for reference in [ALONE, VETH] {
            let ratio = of(ALL).and_then(|all| all.ratio(all.reference(reference)?));
            let _ = write!(out, "  {:>1$}", two(ratio), "of ".len() + reference.len());
        }
        for (board, rate) in STUDY {
            let rate = (figure.case == bytes(STUDY_SIZE)).then_some(rate);
            let _ = write!(out, "  {:>1$}", whole(rate), "study, ".len() + board.len());
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "\nThe study's are up to 3500 and 2600 MB/s, by DMA over PCIe 3.0 x16 at 512 KB; above 1 MB its rate collapses. Ours are\n\
         stores of processors over software ports: another scale. No collapse above 1 MB: {}",
        match report.failed().count() {
            0 => "met".to_owned(),
            missed => format!("MISSED {missed} times (at least {COLLAPSE} of the rate at 1 MB)"),
        }
    );
    out + &warnings(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(above: f64) -> Report {
        let mut report = Report::new("ring");
        report.warnings.clear();
        let sizes = [STUDY_SIZE, 1 << 20, 2 << 20];
        for (size, rate) in sizes.into_iter().zip([9000.0, 10_000.0, above]) {
            let sample = |factor: f64| Sample::new(vec![rate * factor]);
            let figure = |group, factor| {
                Figure::new(group, bytes(size), Unit::MegabytesPerSecond, sample(factor))
                    .against(ALONE, sample(1.0))
                    .against(VETH, Sample::new(vec![500.0]))
            };
            report.figures.extend([
                figure(ALONE, 1.0),
                figure(BOTH, 0.9),
                figure(ALL, 0.5),
                figure(SUM, 3.0),
            ]);
        }
        report.gather_groups();
        hold_against_a_megabyte(&mut report, &sizes);
        report
    }

    #[test]
    fn ring_table_shows_the_studys_figures_beside() {
        let text = table(&report(9500.0));
        let row = text.lines().find(|line| line.starts_with("512 KB")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            ["512", "KB", "9000", "8100", "4500", "27000", "0.50", "9.00", "3500", "2600"],
            "{text}"
        );
        assert!(text.contains("No collapse above 1 MB: met"), "{text}");
    }

    #[test]
    fn ring_collapse_is_a_missed_bar() {
        let collapsed = report(4000.0);
        assert_eq!(collapsed.failed().count(), 4);
        assert!(table(&collapsed).contains("MISSED 4 times"));
    }
}
