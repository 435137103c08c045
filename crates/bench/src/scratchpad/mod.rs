//! The protocol of the ring study (its section on sending), over the same software ports as ours: the baseline that
//! `crosslane perf --protocol scratchpad` prints.
//!
//! Data go into the neighbour's window; source, destination, address and length into its scratchpads; then a doorbell.
//! The interrupted host reads the scratchpads: if it is the destination it takes the data where they lie, otherwise it
//! forwards the whole in the same way to its other neighbour, in one direction round the ring.
//!
//! The study does not say how a sender learns that buffer and scratchpads are free again. Here a doorbell answers: the least that works.
//! There is one set of scratchpads, so there is one transfer at a time on each cable; a buffer has 1 MB, and longer transfers are cut. With
//! every host sending over two cables at once such a ring can deadlock (each buffer waits for the next one); no case here does that.

mod host;
mod ring;

use crate::affinity::Cores;
use crate::calm::turn;
use crate::figure::{Figure, Report, Sample, Unit, bytes};
use crate::frame::{Experiment, Taken};
use crate::perf::{self, cables};
use crate::pumped::Chain;
use anyhow::Result;
pub use host::{BUFFER, Host, Transfer, Wake};
use indicatif::ProgressBar;
pub use ring::Ring;
use std::time::Duration;

/// Name of the study's protocol in tables, and of what is left of it without interrupts.
const STUDY: &str = "scratchpads";
const POLLED: &str = "scratchpads, polled";
/// Bytes of the messages whose time is measured.
const MESSAGE: usize = 64;
/// The runs are taken in so many rounds, each of all cases: what slows the machine for a while then slows runs of ours and of the study's.
const ROUNDS: usize = 3;

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Hosts in the ring.
    pub hosts: u32,
    /// Sizes of transfers, bytes.
    pub sizes: Vec<usize>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each run lasts, ms.
    pub millis: u64,
}

impl Plan {
    /// A ring of `hosts`; the main points only if `quick`.
    pub fn new(hosts: u32, quick: bool) -> Self {
        let full = (10..=23).map(|shift| 1 << shift).collect();
        let sizes = if quick { vec![1 << 10, 64 << 10, 1 << 20] } else { full };
        Self { hosts, sizes, runs: if quick { 9 } else { 11 }, millis: 20 }
    }
}

/// The experiment: one step.
#[derive(Debug)]
pub struct Scratchpads {
    plan: Plan,
    cores: Cores,
}

impl Scratchpads {
    /// Of this plan.
    pub fn new(plan: Plan, cores: Cores) -> Self {
        Self { plan, cores }
    }
}

impl Experiment for Scratchpads {
    fn title(&self) -> String {
        let Plan { hosts, runs, .. } = self.plan;
        format!(
            "The ring study's protocol and ours over software ports, {hosts} hosts, medians of {runs} runs"
        )
    }

    fn steps(&self) -> Vec<String> {
        vec!["all of it".to_owned()]
    }

    fn take(&mut self, _: usize, progress: &ProgressBar) -> Result<Taken> {
        let mut all = Vec::new();
        for runs in parts(self.plan.runs) {
            let figures = measure(&Plan { runs, ..self.plan.clone() }, self.cores, progress)?;
            all = if all.is_empty() { figures } else { all.into_iter().zip(figures).map(join).collect() };
        }
        Ok(all.into())
    }

    fn conclude(&self, report: &mut Report) {
        let processors = report.machine.processors;
        report.warnings.push(format!(
            "ours over more than one cable: rings and pumps alone, no daemons; {processors} processors"
        ));
    }
}

/// How many runs each round has.
fn parts(runs: usize) -> impl Iterator<Item = usize> {
    (0..ROUNDS).map(move |round| (runs + round) / ROUNDS).filter(|&runs| runs > 0)
}

/// The runs of both.
fn join((mut figure, more): (Figure, Figure)) -> Figure {
    let both = |one: &Sample, other: &Sample| Sample::new([&one.runs[..], &other.runs].concat());
    figure.sample = figure.sample.zip(more.sample).and_then(|(one, other)| both(&one, &other));
    for (reference, more) in figure.references.iter_mut().zip(&more.references) {
        if let Some(sample) = both(&reference.sample, &more.sample) {
            reference.sample = sample;
        }
    }
    figure
}

/// Measures the study's protocol over 1 to `hosts - 1` cables, and ours over as many.
fn measure(plan: &Plan, cores: Cores, progress: &ProgressBar) -> Result<Vec<Figure>> {
    let ours = Ours { neighbours: measure_neighbours(plan, cores)?, runs: plan.runs };
    let mut ring = Ring::new(plan.hosts)?;
    let mut figures = Vec::new();
    let time = Duration::from_millis(plan.millis);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for hops in 1..plan.hosts {
        progress.set_message(format!("bandwidth over {}", cables(hops as usize)));
        for &size in &plan.sizes {
            let (group, case) = (format!("bandwidth, {}", cables(hops as usize)), bytes(size));
            let sample =
                ours.sample(hops, "stream one way", &case, |chain| Ok(chain.rate(size, time)? * 8e-9))?;
            let figure = Figure::new(&group, case, Unit::GigabitsPerSecond, sample);
            let rate = |wake| Ok(ring.rate(hops, size, time, wake)? * 8e-9);
            figures.push(beside(figure, hops, plan.runs, processors, rate)?);
        }
    }
    progress.set_message("latency");
    for hops in 1..plan.hosts {
        let size = bytes(MESSAGE);
        let sample = ours.sample(hops, "message one way", &size, |chain| chain.one_way(MESSAGE, time))?;
        let case = cables(hops as usize);
        let figure = Figure::new(&format!("{size} one way"), case, Unit::Nanoseconds, sample);
        let one_way = |wake| ring.one_way(hops, MESSAGE, time, wake);
        figures.push(beside(figure, hops, plan.runs, processors, one_way)?);
    }
    Ok(figures)
}

/// `figure` with the study's protocol beside it, by interrupts and, where each host on the way can have a processor of
/// its own, by polling.
fn beside(
    figure: Figure,
    hops: u32,
    runs: usize,
    processors: usize,
    mut measure: impl FnMut(Wake) -> Result<f64>,
) -> Result<Figure> {
    let mut sample = |wake| -> Result<Option<Sample>> {
        Ok(Sample::new((0..runs).map(|_| turn(|| measure(wake))).collect::<Result<_>>()?))
    };
    let study = sample(Wake::Interrupt)?;
    let polled = if (hops as usize) < processors { sample(Wake::Poll)? } else { None };
    Ok(figure.against(STUDY, study).against(POLLED, polled))
}

/// What `crosslane perf` measures between two neighbours.
fn measure_neighbours(plan: &Plan, cores: Cores) -> Result<Report> {
    let plan = perf::Plan {
        writes: Vec::new(),
        messages: vec![MESSAGE],
        streams: plan.sizes.clone(),
        runs: plan.runs,
        millis: plan.millis,
    };
    perf::run(&plan, cores)
}

/// Our own figures.
struct Ours {
    neighbours: Report,
    runs: usize,
}

impl Ours {
    /// Over one cable the result of `crosslane perf`; over more of them that of `pumped`, run after run. The pumps have
    /// ended when this returns: they would poll for a while, at the expense of the study's hosts.
    fn sample(
        &self,
        hops: u32,
        group: &str,
        case: &str,
        mut pumped: impl FnMut(&mut Chain) -> Result<f64>,
    ) -> Result<Option<Sample>> {
        if hops > 1 {
            let mut chain = Chain::new(hops as usize - 1)?;
            // The first one only touches fresh memory.
            pumped(&mut chain)?;
            return Ok(Sample::new(
                (0..self.runs).map(|_| turn(|| pumped(&mut chain))).collect::<Result<_>>()?,
            ));
        }
        Ok(self.neighbours.find(group, case).and_then(|figure| figure.sample.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratchpad_figures_stand_beside_the_studys() {
        let mut asked = Vec::new();
        let figure = Figure::new("bandwidth, 2 cables", "1 KB", Unit::GigabitsPerSecond, None);
        let figure = beside(figure, 2, 3, 2, |wake| {
            asked.push(wake);
            Ok(2.0)
        });
        let figure = figure.unwrap();
        assert_eq!(asked, [Wake::Interrupt; 3], "three hosts cannot poll on two processors");
        assert_eq!((figure.references.len(), &*figure.references[0].name), (1, STUDY));
        assert_eq!(figure.references[0].sample.median, 2.0);
    }

    #[test]
    fn scratchpad_rounds_have_all_runs() {
        let of = |runs| parts(runs).collect::<Vec<_>>();
        assert_eq!([of(9), of(11), of(1)], [vec![3, 3, 3], vec![3, 4, 4], vec![1]]);
        let figure = |runs: [f64; 2]| {
            let [ours, study] = runs.map(|run| Sample::new(vec![run]));
            Figure::new("one way", "1 cable", Unit::Nanoseconds, ours).against(STUDY, study)
        };
        let both = join((figure([1.0, 10.0]), figure([3.0, 30.0])));
        assert_eq!(both.sample.as_ref().unwrap().runs, [1.0, 3.0]);
        assert_eq!(both.references[0].sample.runs, [10.0, 30.0]);
    }

    #[test]
    fn scratchpad_figure_is_of_neighbours_over_one_cable() {
        let mut report = Report::new("perf");
        let sample = Sample::new(vec![9.0]);
        report.figures.push(Figure::new("stream one way", "1 KB", Unit::GigabitsPerSecond, sample.clone()));
        let ours = Ours { neighbours: report, runs: 2 };
        let over = |hops, case| ours.sample(hops, "stream one way", case, |_| Ok(4.0)).unwrap();
        assert_eq!(over(1, "1 KB"), sample);
        assert_eq!(over(1, "2 KB"), None);
        assert_eq!(over(2, "1 KB"), Sample::new(vec![4.0, 4.0]), "never one for another");
    }
}
