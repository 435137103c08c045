//! Which cases `perf` measures, and how their results become figures.

use super::cases::{Case, Outcome, Over, PERCENTILES};
use super::session::Session;
use super::windows::Window;
use crate::affinity::Cores;
use crate::calm::turn;
use crate::figure::{Figure, Report, Sample, Unit, bytes};
use crate::progress::progress;
use anyhow::{Context, Result, bail};
use crosslane_shm::copy::Strategy;
use indicatif::ProgressBar;
use std::str::FromStr;
use std::time::Duration;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// One processor's stores into a segment, by size and kind of copy
    Writes,
    /// Times of single messages: means and percentiles
    Messages,
    /// Bandwidth and message rate, one way and both ways
    Streams,
}

/// A number of bytes, as in `64`, `128K`, `1M`: at least 8, which the first bytes of a message need, and at most the
/// ring of 8 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (digits, shift) = match text.strip_suffix(['K', 'k']) {
            Some(digits) => (digits, 10),
            None => text.strip_suffix(['M', 'm']).map_or((text, 0), |digits| (digits, 20)),
        };
        let number: usize = digits.parse().with_context(|| format!("{text:?} is no size: 64, 128K, 1M"))?;
        match number.checked_mul(1 << shift) {
            Some(bytes @ 8..=0x80_0000) => Ok(Self(bytes)),
            _ => bail!("sizes from 8 bytes to 8M can be measured"),
        }
    }
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes of writes into a window, bytes.
    pub writes: Vec<usize>,
    /// Sizes of messages there and back, bytes.
    pub messages: Vec<usize>,
    /// Sizes of messages of a stream, bytes.
    pub streams: Vec<usize>,
    /// Repetitions of each case: many short ones rather than few long ones, so that a brief disturbance of the machine
    /// meets all cases alike and does not reach the medians.
    pub runs: usize,
    /// How long each run of a case lasts, ms.
    pub millis: u64,
}

impl Plan {
    /// Everything; about two minutes.
    pub fn full() -> Self {
        Self {
            writes: vec![64, 256, 1024, 4096, 16384, 65536, 262_144, 1 << 20, 4 << 20, 8 << 20],
            messages: vec![8, 16, 48, 64, 128, 256, 512, 1024, 2048, 4096],
            streams: vec![8, 64, 512, 4096, 16384, 65536, 131_072, 1 << 20, 4 << 20],
            runs: 21,
            millis: 40,
        }
    }

    /// The main points, in less than 20 s.
    pub fn quick() -> Self {
        Self {
            writes: vec![64, 4096, 65536, 1 << 20, 8 << 20],
            messages: vec![8, 64, 512, 4096],
            streams: vec![64, 4096, 131_072, 1 << 20],
            runs: 15,
            millis: 20,
        }
    }

    /// Leaves out all but `parts`, and measures `sizes` instead of the usual ones; either may be empty: no change.
    pub fn narrow(&mut self, parts: &[Part], sizes: &[Size]) {
        let lists = [
            (Part::Writes, &mut self.writes),
            (Part::Messages, &mut self.messages),
            (Part::Streams, &mut self.streams),
        ];
        for (part, list) in lists {
            if !parts.is_empty() && !parts.contains(&part) {
                list.clear();
            } else if !sizes.is_empty() {
                *list = sizes.iter().map(|size| size.0).collect();
            }
        }
    }

    /// How many single measurements that is.
    fn steps(&self) -> usize {
        let lines = usize::from(!self.messages.is_empty());
        let copies = Strategy::ALL.len() + 1;
        self.runs * (copies * self.writes.len() + 4 * self.messages.len() + lines + 4 * self.streams.len())
    }

    /// Shows the progress, on standard error if that is a terminal.
    fn progress(&self) -> ProgressBar {
        progress(self.steps() as u64, "  {bar:30} {pos}/{len}  {elapsed}  about {eta} left  {msg}")
    }
}

/// Name of the limit of a stream and of a message.
pub const BARE: &str = "bare ring";
/// Name of the limit of a one-way time.
pub const LINE: &str = "half a line's round trip";

/// Least part of the bare ring's bandwidth, from [`STREAM_BAR_FROM`] on.
const STREAM_BAR: f64 = 0.7;
const STREAM_BAR_FROM: usize = 128 * 1024;
/// The highest percentile that is compared: beyond it single interrupts tell.
const RARE: f64 = 99.0;
/// Message whose one-way time is held against the cache line's.
const LATENCY_BAR_SIZE: usize = 8;
const LATENCY_BAR: f64 = 1.0 / 3.0;

/// Measures everything that `plan` names, on `session`.
pub fn measure(plan: &Plan, cores: Cores, session: &mut Session) -> Result<Report> {
    let title = format!("crosslane perf, processors {cores}, medians of {} runs", plan.runs);
    let mut run = Run { plan, session, report: Report::new(title), progress: plan.progress() };
    run.begin("writes into a segment");
    run.writes()?;
    run.begin("messages");
    run.latencies()?;
    run.percentiles()?;
    for both in [false, true] {
        run.begin(if both { "streams both ways" } else { "streams one way" });
        run.streams(both)?;
    }
    let Run { mut report, progress, .. } = run;
    progress.finish_and_clear();
    if cores.is_shared() {
        report.warnings.push("both sides share one processor: times are those of switching".to_owned());
    }
    report.gather_groups();
    report.warn_of_noise();
    Ok(report)
}

/// Runs each of `cases` once, then all again, so that a disturbance meets all alike.
fn by_turns<T>(
    runs: usize,
    cases: &[T],
    progress: &ProgressBar,
    mut measure: impl FnMut(&T) -> Result<f64>,
) -> Result<Vec<Option<Sample>>> {
    let mut values = vec![Vec::new(); cases.len()];
    for _ in 0..runs {
        for (case, values) in cases.iter().zip(&mut values) {
            values.push(turn(|| measure(case))?);
            progress.inc(1);
        }
    }
    Ok(values.into_iter().map(Sample::new).collect())
}

/// Half the mean round trip of `outcome`, ns.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn one_way(outcome: &Outcome) -> f64 {
    outcome.seconds * 1e9 / outcome.messages as f64 / 2.0
}

/// What is measured now.
struct Run<'a> {
    plan: &'a Plan,
    session: &'a mut Session,
    report: Report,
    progress: ProgressBar,
}

impl Run<'_> {
    /// Shows the present case: beside the bar, or in a line of its own without a terminal.
    fn begin(&self, part: &'static str) {
        if self.progress.is_hidden() {
            eprintln!("  {}/{} {part}", self.progress.position(), self.progress.length().unwrap_or(0));
        }
        self.progress.set_message(part);
    }

    /// Adds a figure, whose runs took turns with those of its references.
    fn add(&mut self, figure: Figure) {
        self.report.figures.push(figure.by_turns());
    }

    fn writes(&mut self) -> Result<()> {
        let (mut window, plan) = (Window::new()?, self.plan);
        let time = Duration::from_millis(plan.millis / 4);
        let kinds = || Strategy::ALL.into_iter().map(Some).chain([None]);
        let cases: Vec<_> =
            plan.writes.iter().flat_map(|&size| kinds().map(move |kind| (size, kind))).collect();
        let samples = by_turns(plan.runs, &cases, &self.progress, |&(size, kind)| {
            Ok(match kind {
                Some(kind) => window.rate(kind, size, time),
                None => window.private_rate(size, time),
            })
        })?;
        let limit =
            |size| cases.iter().position(|&case| case == (size, None)).and_then(|at| samples[at].clone());
        for (&(size, kind), sample) in cases.iter().zip(&samples) {
            let Some(kind) = kind else { continue };
            let case = format!("{}, {}", bytes(size), kind.name());
            let mut figure =
                Figure::new("write into a segment", case, Unit::GigabitsPerSecond, sample.clone());
            if !kind.is_native() {
                (figure.sample, figure.missing) = (None, Some("this processor has no such copy".to_owned()));
            }
            self.add(figure.against("private memcpy", limit(size)));
        }
        Ok(())
    }

    fn latencies(&mut self) -> Result<()> {
        let (plan, millis) = (self.plan, self.plan.millis);
        if plan.messages.is_empty() {
            return Ok(());
        }
        let both = |&size| [Some((Over::Crosslane, size)), Some((Over::Bare, size))];
        let cases: Vec<_> = [None].into_iter().chain(plan.messages.iter().flat_map(both)).collect();
        let samples = by_turns(plan.runs, &cases, &self.progress, |&case| {
            let (near, _) = self.session.run(|key| match case {
                Some((over, size)) => Case::PingPong { over, size, millis, stamped: false, key },
                None => Case::Line { millis },
            })?;
            Ok(one_way(&near))
        })?;
        for (&size, pair) in plan.messages.iter().zip(samples[1..].chunks(2)) {
            for (name, factor, limit) in
                [("one way", 1.0, LINE), ("there and back", 2.0, "a line's round trip")]
            {
                let scaled = |sample: &Option<Sample>| sample.as_ref().map(|sample| sample.scaled(factor));
                let group = format!("message {name}");
                let mut figure = Figure::new(&group, bytes(size), Unit::Nanoseconds, scaled(&pair[0]))
                    .against(limit, scaled(&samples[0]))
                    .against(BARE, scaled(&pair[1]));
                if size == LATENCY_BAR_SIZE && factor == 1.0 {
                    figure = figure.bar(LINE, LATENCY_BAR, None);
                }
                self.add(figure);
            }
        }
        Ok(())
    }

    /// Percentiles of stamped messages. Each includes one look at the clock on the way, two there and back.
    fn percentiles(&mut self) -> Result<()> {
        let name = |at: f64| if at == 100.0 { "longest".to_owned() } else { format!("p{at}") };
        let (plan, millis) = (self.plan, self.plan.millis);
        for &size in &plan.messages {
            let mut seen = [(); 2].map(|()| vec![[Vec::new(), Vec::new()]; PERCENTILES.len()]);
            for _ in 0..plan.runs {
                for (over, seen) in [Over::Crosslane, Over::Bare].into_iter().zip(&mut seen) {
                    let case = |key| Case::PingPong { over, size, millis, stamped: true, key };
                    let (near, far) = turn(|| self.session.run(case))?;
                    self.progress.inc(1);
                    for ((way, trip), seen) in far.one_way_ns.iter().zip(&near.round_trip_ns).zip(seen) {
                        #[expect(clippy::cast_precision_loss, reason = "a figure")]
                        let (way, trip) = (*way as f64, *trip as f64);
                        seen[0].push(way);
                        seen[1].push(trip);
                    }
                }
            }
            let [ours, bare] = seen;
            for (way, group) in ["one way, with clock", "there and back, with clock"].into_iter().enumerate()
            {
                for ((&at, ours), bare) in PERCENTILES.iter().zip(&ours).zip(&bare) {
                    let case = format!("{}, {}", bytes(size), name(at));
                    let [ours, bare] = [ours, bare].map(|runs| Sample::new(runs[way].clone()));
                    let figure = Figure::new(group, case, Unit::Nanoseconds, ours);
                    self.add(if at > RARE { figure.beside(BARE, bare) } else { figure.against(BARE, bare) });
                }
            }
        }
        Ok(())
    }

    fn streams(&mut self, both: bool) -> Result<()> {
        let (plan, millis) = (self.plan, self.plan.millis);
        let overs = [Over::Crosslane, Over::Bare];
        let cases: Vec<_> = plan.streams.iter().flat_map(|&size| overs.map(|over| (over, size))).collect();
        #[expect(clippy::cast_precision_loss, reason = "a figure")]
        let samples = by_turns(plan.runs, &cases, &self.progress, |&(over, size)| {
            let (near, _) = self.session.run(|key| Case::Stream { over, size, millis, both, key })?;
            Ok(near.messages as f64 / near.seconds)
        })?;
        let ways = if both { "both ways" } else { "one way" };
        let mut rates = Vec::new();
        for (&size, pair) in plan.streams.iter().zip(samples.chunks(2)) {
            let figure = |what: &str, unit, [ours, bare]: [Option<Sample>; 2]| {
                Figure::new(&format!("{what} {ways}"), bytes(size), unit, ours).against(BARE, bare)
            };
            #[expect(clippy::cast_precision_loss, reason = "a size")]
            let gigabits = |at: usize| pair[at].as_ref().map(|sample| sample.scaled(size as f64 * 8e-9));
            let mut bandwidth = figure("stream", Unit::GigabitsPerSecond, [0, 1].map(gigabits));
            if size >= STREAM_BAR_FROM && !both {
                bandwidth = bandwidth.bar(BARE, STREAM_BAR, None);
            }
            self.add(bandwidth);
            rates.push(figure("messages", Unit::PerSecond, [pair[0].clone(), pair[1].clone()]).by_turns());
        }
        self.report.figures.extend(rates);
        Ok(())
    }
}

/// How far two hosts are from each other.
pub fn cables(count: usize) -> String {
    if count == 1 { "1 cable".to_owned() } else { format!("{count} cables") }
}

/// Measures `plan` against a copy of this process, which must understand `perf --answer`.
///
/// # Errors
/// The answering process does not start or falls silent.
pub fn run(plan: &Plan, cores: Cores) -> Result<Report> {
    measure(plan, cores, &mut Session::start(cores)?)
}

/// Sizes that were asked for, in place of the usual ones.
pub(crate) fn choose(usual: &mut Vec<usize>, asked: &[Size]) {
    if !asked.is_empty() {
        *usual = asked.iter().map(|size| size.0).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_written_with_a_suffix() {
        assert_eq!([8, 1000, 4096, 131_072, 8 << 20].map(bytes), ["8 B", "1000 B", "4 KB", "128 KB", "8 MB"]);
    }

    #[test]
    fn size_is_read_with_a_suffix() {
        let sizes = ["8", "64k", "128K", "8M"].map(|text| text.parse::<Size>().unwrap().0);
        assert_eq!(sizes, [8, 65_536, 131_072, 8 << 20]);
        for text in ["", "7", "9M", "K", "1G", "-1", "99999999999999999999M", "18014398509481984K"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn plan_is_narrowed_to_parts_and_sizes() {
        let mut plan = Plan::quick();
        plan.narrow(&[], &[]);
        assert_eq!(plan, Plan::quick());
        plan.narrow(&[Part::Streams], &[Size(64)]);
        assert_eq!((plan.writes.len(), plan.messages.len(), plan.streams), (0, 0, vec![64]));
    }

    #[test]
    fn plan_cases_run_by_turns() {
        let mut order = Vec::new();
        let samples = by_turns(2, &[1.0, 2.0], &ProgressBar::hidden(), |&case| {
            order.push(case);
            Ok(case)
        })
        .unwrap();
        // A turn of which some was stolen is taken again at once.
        order.dedup();
        assert_eq!(order, [1.0, 2.0, 1.0, 2.0]);
        assert_eq!(samples[1].as_ref().unwrap().median, 2.0);
    }
}
