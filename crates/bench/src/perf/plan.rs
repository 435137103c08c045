//! Which cases `perf` measures, and what becomes of the runs.

use super::cases::{Case, Outcome, Over, PERCENTILES};
use super::session::Session;
use super::windows::Window;
use crate::affinity::Cores;
use crate::figure::{Figure, Report, Sample, Unit, bytes};
use crate::progress::progress;
use crate::steal::steady;
use anyhow::{Context, Result, bail};
use crosslane_shm::copy::Strategy;
use indicatif::ProgressBar;
use std::str::FromStr;
use std::time::Duration;

/// A part of what is measured.
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

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes of writes into a window, bytes.
    pub writes: Vec<usize>,
    /// Sizes of messages there and back, bytes.
    pub messages: Vec<usize>,
    /// Sizes of messages of a stream, bytes.
    pub streams: Vec<usize>,
    /// Repetitions of each case: many short ones rather than few long ones, so that what disturbs the machine for a
    /// moment meets all cases alike and does not reach the medians.
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

    /// Shows how far a run is, on standard error if that is a terminal.
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
/// Message whose one-way time is held against the cache line's.
const LATENCY_BAR_SIZE: usize = 8;
const LATENCY_BAR: f64 = 1.0 / 3.0;

/// Measures everything that `plan` names, on `session`.
pub fn measure(plan: &Plan, cores: Cores, session: &mut Session) -> Result<Report> {
    let mut report =
        Report::new(format!("crosslane perf, processors {cores}, medians of {} runs", plan.runs));
    let progress = plan.progress();
    begin(&progress, "writes into a segment");
    writes(plan, &progress, &mut report)?;
    begin(&progress, "messages");
    latencies(plan, session, &progress, &mut report)?;
    percentiles(plan, session, &progress, &mut report)?;
    for both in [false, true] {
        begin(&progress, if both { "streams both ways" } else { "streams one way" });
        streams(plan, both, session, &progress, &mut report)?;
    }
    progress.finish_and_clear();
    if cores.is_shared() {
        report.warnings.push("both sides share one processor: times are those of switching".to_owned());
    }
    report.gather_groups();
    report.warn_of_noise();
    Ok(report)
}

/// Says what is measured now: beside the bar, or in a line of its own where there is no terminal for one.
fn begin(progress: &ProgressBar, part: &'static str) {
    if progress.is_hidden() {
        eprintln!("  {}/{} {part}", progress.position(), progress.length().unwrap_or(0));
    }
    progress.set_message(part);
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
            values.push(steady(|| measure(case))?.0);
            progress.inc(1);
        }
    }
    Ok(values.into_iter().map(Sample::new).collect())
}

fn writes(plan: &Plan, progress: &ProgressBar, report: &mut Report) -> Result<()> {
    let mut window = Window::new()?;
    let time = Duration::from_millis(plan.millis / 4);
    let kinds = || Strategy::ALL.into_iter().map(Some).chain([None]);
    let cases: Vec<_> = plan.writes.iter().flat_map(|&size| kinds().map(move |kind| (size, kind))).collect();
    let samples = by_turns(plan.runs, &cases, progress, |&(size, kind)| {
        Ok(match kind {
            Some(kind) => window.rate(kind, size, time),
            None => window.private_rate(size, time),
        })
    })?;
    let limit = |size| cases.iter().position(|&case| case == (size, None)).and_then(|at| samples[at].clone());
    for (&(size, kind), sample) in cases.iter().zip(&samples) {
        let Some(kind) = kind else { continue };
        let case = format!("{}, {}", bytes(size), kind.name());
        let mut figure = Figure::new("write into a segment", case, Unit::GigabitsPerSecond, sample.clone());
        if !kind.is_native() {
            (figure.sample, figure.missing) = (None, Some("this processor has no such copy".to_owned()));
        }
        report.figures.push(figure.against("private memcpy", limit(size)));
    }
    Ok(())
}

/// Half the mean round trip of `outcome`, ns.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn one_way(outcome: &Outcome) -> f64 {
    outcome.seconds * 1e9 / outcome.messages as f64 / 2.0
}

fn latencies(plan: &Plan, session: &mut Session, progress: &ProgressBar, report: &mut Report) -> Result<()> {
    if plan.messages.is_empty() {
        return Ok(());
    }
    let millis = plan.millis;
    let mut cases = vec![None];
    for &size in &plan.messages {
        cases.extend([Some((Over::Crosslane, size)), Some((Over::Bare, size))]);
    }
    let mut samples = by_turns(plan.runs, &cases, progress, |&case| {
        let (near, _) = session.run(|key| match case {
            Some((over, size)) => Case::PingPong { over, size, millis, stamped: false, key },
            None => Case::Line { millis },
        })?;
        Ok(one_way(&near))
    })?
    .into_iter();
    let line = samples.next().flatten();
    for &size in &plan.messages {
        let (ours, bare) = (samples.next().flatten(), samples.next().flatten());
        for (name, factor) in [("one way", 1.0), ("there and back", 2.0)] {
            let scaled = |sample: &Option<Sample>| sample.as_ref().map(|sample| sample.scaled(factor));
            let limit = if factor > 1.0 { "a line's round trip" } else { LINE };
            let mut figure =
                Figure::new(&format!("message {name}"), bytes(size), Unit::Nanoseconds, scaled(&ours))
                    .against(limit, scaled(&line))
                    .against(BARE, scaled(&bare));
            if size == LATENCY_BAR_SIZE && factor == 1.0 {
                figure = figure.bar(LINE, LATENCY_BAR, None);
            }
            report.figures.push(figure);
        }
    }
    Ok(())
}

/// Percentiles of stamped messages. Each includes one look at the clock on the way, two there and back.
fn percentiles(
    plan: &Plan,
    session: &mut Session,
    progress: &ProgressBar,
    report: &mut Report,
) -> Result<()> {
    let name = |at: f64| if at == 100.0 { "longest".to_owned() } else { format!("p{at}") };
    for &size in &plan.messages {
        let mut seen = [(); 2].map(|()| vec![[Vec::new(), Vec::new()]; PERCENTILES.len()]);
        for _ in 0..plan.runs {
            for (over, seen) in [Over::Crosslane, Over::Bare].into_iter().zip(&mut seen) {
                let millis = plan.millis;
                let (near, far) =
                    session.run(|key| Case::PingPong { over, size, millis, stamped: true, key })?;
                progress.inc(1);
                for ((way, trip), seen) in far.one_way_ns.iter().zip(&near.round_trip_ns).zip(seen) {
                    #[expect(clippy::cast_precision_loss, reason = "a figure")]
                    let (way, trip) = (*way as f64, *trip as f64);
                    seen[0].push(way);
                    seen[1].push(trip);
                }
            }
        }
        let [ours, bare] = seen;
        for (way, group) in ["one way, with clock", "there and back, with clock"].into_iter().enumerate() {
            for ((&at, ours), bare) in PERCENTILES.iter().zip(&ours).zip(&bare) {
                let case = format!("{}, {}", bytes(size), name(at));
                report.figures.push(
                    Figure::new(group, case, Unit::Nanoseconds, Sample::new(ours[way].clone()))
                        .against(BARE, Sample::new(bare[way].clone())),
                );
            }
        }
    }
    Ok(())
}

fn streams(
    plan: &Plan,
    both: bool,
    session: &mut Session,
    progress: &ProgressBar,
    report: &mut Report,
) -> Result<()> {
    let millis = plan.millis;
    let overs = [Over::Crosslane, Over::Bare];
    let cases: Vec<_> = plan.streams.iter().flat_map(|&size| overs.map(|over| (over, size))).collect();
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let mut samples = by_turns(plan.runs, &cases, progress, |&(over, size)| {
        let (near, _) = session.run(|key| Case::Stream { over, size, millis, both, key })?;
        Ok(near.messages as f64 / near.seconds)
    })?
    .into_iter();
    let ways = if both { "both ways" } else { "one way" };
    let mut rates = Vec::new();
    for &size in &plan.streams {
        let (ours, bare) = (samples.next().flatten(), samples.next().flatten());
        #[expect(clippy::cast_precision_loss, reason = "a size")]
        let gigabits = |sample: &Option<Sample>| sample.as_ref().map(|s| s.scaled(size as f64 * 8e-9));
        let group = format!("stream {ways}");
        let mut figure = Figure::new(&group, bytes(size), Unit::GigabitsPerSecond, gigabits(&ours))
            .against(BARE, gigabits(&bare));
        if size >= STREAM_BAR_FROM && !both {
            figure = figure.bar(BARE, STREAM_BAR, None);
        }
        report.figures.push(figure);
        rates.push(
            Figure::new(&format!("messages {ways}"), bytes(size), Unit::PerSecond, ours).against(BARE, bare),
        );
    }
    report.figures.extend(rates);
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_people_do() {
        assert_eq!([8, 1000, 4096, 131_072, 8 << 20].map(bytes), ["8 B", "1000 B", "4 KB", "128 KB", "8 MB"]);
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes = ["8", "64k", "128K", "8M"].map(|text| text.parse::<Size>().unwrap().0);
        assert_eq!(sizes, [8, 65_536, 131_072, 8 << 20]);
        for text in ["", "7", "9M", "K", "1G", "-1", "99999999999999999999M", "18014398509481984K"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_plan_is_narrowed_to_parts_and_sizes() {
        let mut plan = Plan::quick();
        plan.narrow(&[], &[]);
        assert_eq!(plan, Plan::quick());
        plan.narrow(&[Part::Streams], &[Size(64)]);
        assert_eq!((plan.writes.len(), plan.messages.len(), plan.streams), (0, 0, vec![64]));
    }

    #[test]
    fn cases_run_by_turns() {
        let mut order = Vec::new();
        let samples = by_turns(2, &[1.0, 2.0], &ProgressBar::hidden(), |&case| {
            order.push(case);
            Ok(case)
        })
        .unwrap();
        assert_eq!(order, [1.0, 2.0, 1.0, 2.0]);
        assert_eq!(samples[1].as_ref().unwrap().median, 2.0);
    }
}
