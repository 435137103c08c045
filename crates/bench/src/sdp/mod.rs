//! `crosslane bench sdp`: the modes of a stream by size of message, as the SDP study measured SDP against Ethernet.
//!
//! Plain programs ([`flow`]) send blocks of a size between two hosts of a lab: by the mode that is chosen by itself, by
//! each mode forced by hand ([`way`]), and by the kernel's TCP. What carried the bytes is told by the streams' counters
//! ([`tally`]), so that a column of a mode has no figure where another one did it. Request and reply: [`exchange`].

pub mod args;
pub mod exchange;
pub mod flow;
pub mod native;
pub mod native_figures;
pub mod pair;
pub mod size;
pub mod table;
pub mod tally;
pub mod way;

use crate::figure::{Figure, Report, Sample, Unit};
use crate::program::{LOOPBACK, VETH};
use crate::steal::steady;
use anyhow::{Context, Error, Result};
use pair::{Done, Pair};
use size::Length;
use std::time::Duration;
use tally::MODES;
use way::{AUTO, FORCED, Rig, Way};

/// A group of the report: what arrives in a second.
pub const THROUGHPUT: &str = "throughput";
/// The same of the mode chosen by itself, held against the best one forced.
pub const OF_BEST: &str = "throughput beside the best mode";
/// What arrives in a second of processor time of all who take part.
pub const PER_PROCESSOR: &str = "per second of processor time";
/// Processor time that all who take part use in a second.
pub const PROCESSOR: &str = "processor time";
/// Copies that either end makes of each byte.
pub const COPIES: &str = "copies of a byte";
/// What the groups of runs that failed begin with.
pub const FAILED: &str = "failed";
/// Parts of the bytes by each mode that nobody forced.
const CHOSEN: &str = "chosen by itself";
/// A reference: the best of the modes that were forced and did carry the bytes.
pub const BEST: &str = "best forced mode";

/// Least part of the best forced mode that the one chosen by itself must reach.
const PART: f64 = 0.9;
/// How much better than loopback TCP bytes per second of processor time must be: at every size, and from [`LARGE`] on.
const SMALL_BAR: f64 = 1.0;
const LARGE_BAR: f64 = 2.5;
const LARGE: usize = 64 << 10;
/// Least part of the bytes by a mode for a run to be that mode's.
const PURE: f64 = 0.95;

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes of messages, bytes.
    pub sizes: Vec<Length>,
    /// Sizes of replies, bytes.
    pub replies: Vec<Length>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each is measured, ms.
    pub millis: u64,
}

impl Plan {
    /// The sizes: 1 B to 8 MB, replies of 64 B to 8 KB.
    pub fn new(runs: usize) -> Self {
        let sizes =
            [1, 8, 64, 256, 1434, 4 << 10, 16 << 10, 64 << 10, 140 << 10, 256 << 10, 1 << 20, 8 << 20];
        let replies = [64, 256, 1 << 10, 4 << 10, 8 << 10];
        Self { sizes: sizes.map(Length).into(), replies: replies.map(Length).into(), runs, millis: 300 }
    }

    /// Turns of two that a bar holds against each other: a machine's bandwidth may be half of what it was a moment ago.
    fn turns(&self) -> usize {
        self.runs * 3
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// Measures `plan`.
///
/// # Errors
/// The lab does not come up.
pub fn measure(plan: &Plan) -> Result<Report> {
    let rig = Rig::new()?;
    let title =
        format!("Modes of a stream by size of message, one stream one way, medians of {} runs", plan.runs);
    let mut report = Report::new(title);
    for &size in &plan.sizes {
        eprintln!("  {size}");
        report.figures.extend(sizes_figures(&rig, plan, size));
        if size.0 >= native_figures::LEAST {
            report.figures.extend(native_figures::figures(&rig, plan, size));
        }
    }
    for &size in &plan.replies {
        eprintln!("  reply of {size}");
        report.figures.extend(exchange::figures(&rig, plan, size));
    }
    report.gather_groups();
    report.warn_of_noise();
    // Parts and copies are no rates, and these samples stand in other groups too.
    report.warnings.retain(|note| ![OF_BEST, COPIES, CHOSEN].iter().any(|group| note.starts_with(group)));
    rig.lab.down().context("the lab does not go down")?;
    Ok(report)
}

/// All ways by turns, each as often as the plan says.
fn sizes_figures(rig: &Rig, plan: &Plan, size: Length) -> Vec<Figure> {
    let (runs, failed) = by_turns(Way::all(), plan.runs, |way| run(rig, way, size, plan.time()));
    let duel = best_forced(&runs).map_or(vec![], |best| {
        Way::all().into_iter().filter(|way| [AUTO, best].contains(&way.name)).collect()
    });
    let (duel, more) = by_turns(duel, plan.turns(), |way| run(rig, way, size, plan.time()));
    let failed = failed.into_iter().chain(more);
    let failed = failed.map(|(way, why)| failure(&format!("{}, messages of {size}", way.name), &why));
    let of_best = of_best(size, &duel);
    figures(size, &runs).into_iter().chain([of_best]).chain(failed).collect()
}

/// The forced mode that carried its bytes fastest.
fn best_forced(runs: &[(Way, Vec<Done>)]) -> Option<&'static str> {
    let forced = runs.iter().filter(|(way, runs)| way.is_forced() && impure(way.name, runs).is_none());
    let rates = forced.filter_map(|(way, runs)| Some((way.name, rates(runs)?.median)));
    rates.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

fn rates(runs: &[Done]) -> Option<Sample> {
    Sample::new(runs.iter().map(|done| done.rate() / 1e6).collect())
}

/// The mode chosen by itself beside the best one forced, from turns of these two alone.
fn of_best(size: Length, duel: &[(Way, Vec<Done>)]) -> Figure {
    let of = |auto: bool| duel.iter().find(|(way, _)| (way.name == AUTO) == auto).map(|(_, runs)| &runs[..]);
    let sample = |auto: bool| rates(of(auto)?);
    Figure::new(OF_BEST, size.to_string(), Unit::MegabytesPerSecond, sample(true))
        .against(BEST, sample(false))
        .bar(BEST, PART, None)
        .by_turns()
}

/// What each did in each run, and which of them failed, and why.
type Turns<T> = (Vec<(T, Vec<Done>)>, Vec<(T, Error)>);

/// Runs all, then all again. One that fails is left out of its sample and told: the others go on.
fn by_turns<T: Copy>(all: Vec<T>, runs: usize, mut run: impl FnMut(T) -> Result<Done>) -> Turns<T> {
    let mut done: Vec<(T, Vec<Done>)> = all.into_iter().map(|one| (one, Vec::new())).collect();
    let mut failed = Vec::new();
    for _ in 0..runs {
        for (one, samples) in &mut done {
            match steady(|| run(*one)) {
                Ok((sample, _)) => samples.push(sample),
                Err(why) => failed.push((*one, why)),
            }
        }
    }
    (done, failed)
}

/// The figure of a run that failed: it misses its bar.
fn failure(what: &str, why: &Error) -> Figure {
    Figure::failed(&format!("{FAILED}: {what}"), why)
}

/// One way, once.
fn run(rig: &Rig, way: Way, size: Length, time: Duration) -> Result<Done> {
    let (mut listener, at) = rig.listener(way)?;
    listener.args(["--receive", &at.to_string(), &size.0.to_string()]);
    let pair = Pair::start(listener, |to| {
        let mut connector = rig.connector(way)?;
        connector.args(["--send", &to.to_string(), &size.0.to_string()]);
        Ok(connector)
    })?;
    pair.measure(time, way.is_ours().then_some(&rig.lab))
}

/// What came of one size.
fn figures(size: Length, runs: &[(Way, Vec<Done>)]) -> Vec<Figure> {
    let of = |name: &str| runs.iter().find(|(way, _)| way.name == name).map_or(&[][..], |(_, runs)| runs);
    let sample = |name: &str, value: fn(&Done) -> f64| {
        let runs = of(name);
        if impure(name, runs).is_some() { None } else { Sample::new(runs.iter().map(value).collect()) }
    };
    let compared = |group: &str, unit, value: fn(&Done) -> f64| {
        let figure = Figure::new(group, size.to_string(), unit, sample(AUTO, value));
        let references = FORCED.into_iter().chain([LOOPBACK, VETH]);
        references.fold(figure, |figure, name| figure.against(name, sample(name, value)))
    };
    let rate: fn(&Done) -> f64 = |done| done.rate() / 1e6;
    let bar = if size.0 >= LARGE { LARGE_BAR } else { SMALL_BAR };
    let mut figures = vec![
        compared(THROUGHPUT, Unit::MegabytesPerSecond, rate).bar(LOOPBACK, 1.0, None),
        compared(PER_PROCESSOR, Unit::MegabytesPerProcessorSecond, |done| done.per_processor() / 1e6)
            .bar(LOOPBACK, bar, None),
        compared(PROCESSOR, Unit::PercentOfCore, |done| 100.0 * done.processor / done.seconds),
        copies(size, runs),
    ];
    figures.extend(FORCED.into_iter().map(|name| forced_figure(name, size, of(name), rate)));
    figures.extend(MODES.iter().map(|mode| shares(mode, size, of(AUTO))));
    figures
}

/// The group of a forced mode's own figures.
pub fn forced_group(mode: &str) -> String {
    format!("forced: {mode}")
}

/// The group of what a mode carried without being forced.
pub fn share_group(mode: &str) -> String {
    format!("{CHOSEN}: {mode}")
}

/// A forced mode by itself, with what carried the bytes where it did not.
fn forced_figure(name: &str, size: Length, runs: &[Done], rate: fn(&Done) -> f64) -> Figure {
    let missing = impure(name, runs);
    let sample = if missing.is_some() { None } else { Sample::new(runs.iter().map(rate).collect()) };
    let figure = Figure::new(&forced_group(name), size.to_string(), Unit::MegabytesPerSecond, sample);
    Figure { missing: missing.or(figure.missing.clone()), ..figure }
}

/// Why runs that a way is forced on are not that mode's: others carried the bytes.
fn impure(name: &str, runs: &[Done]) -> Option<String> {
    if FORCED.contains(&name) { carried_by_others(name, runs) } else { None }
}

/// What carried the bytes, if it was not `name` alone.
fn carried_by_others(name: &str, runs: &[Done]) -> Option<String> {
    let tallies = runs.iter().filter_map(|run| run.tally.as_ref());
    let worst = tallies.min_by(|a, b| a.share(name).total_cmp(&b.share(name)))?;
    if worst.share(name) >= PURE {
        return None;
    }
    let shares = MODES.iter().map(|mode| (*mode, worst.share(mode))).filter(|(_, share)| *share >= 0.005);
    let shares: Vec<String> = shares.map(|(mode, share)| format!("{mode} {:.0} %", share * 100.0)).collect();
    Some(format!("carried by {}", shares.join(", ")))
}

/// How much of the bytes a mode carried that nobody forced.
fn shares(mode: &str, size: Length, runs: &[Done]) -> Figure {
    let shares = runs.iter().filter_map(|run| Some(run.tally.as_ref()?.share(mode) * 100.0)).collect();
    Figure::new(&share_group(mode), size.to_string(), Unit::Percent, Sample::new(shares))
}

/// How often each byte was copied, by the mode chosen by itself, and by the forced ones.
fn copies(size: Length, runs: &[(Way, Vec<Done>)]) -> Figure {
    let sample = |name: &str| {
        let (_, runs) = runs.iter().find(|(way, _)| way.name == name)?;
        impure(name, runs).is_none().then_some(())?;
        Sample::new(runs.iter().filter_map(|run| Some(run.tally.as_ref()?.copies())).collect())
    };
    let figure = Figure::new(COPIES, size.to_string(), Unit::Copies, sample(AUTO));
    FORCED.into_iter().fold(figure, |figure, name| figure.against(name, sample(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally::Tally;

    pub(super) fn done(rate: f64, by_mode: Option<[u64; 4]>) -> Done {
        let tally = by_mode.map(|by_mode| Tally { by_mode, copied_in: by_mode[0], ..Tally::default() });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let count = (rate * 1e6) as u64;
        Done { count, seconds: 1.0, processor: 2.0, tally }
    }

    /// Auto and Read Zcopy go by Read Zcopy at 5000, Bcopy by Bcopy at 4000, Write Zcopy falls back; TCP makes 1000.
    pub(super) fn runs() -> Vec<(Way, Vec<Done>)> {
        let one = |way: Way| match way.name {
            AUTO | "read-zcopy" => done(5000.0, Some([1, 99, 0, 0])),
            LOOPBACK | VETH => done(1000.0, None),
            _ => done(4000.0, Some([100, 0, 0, 0])),
        };
        Way::all().into_iter().map(|way| (way, vec![one(way)])).collect()
    }

    #[test]
    fn a_forced_mode_that_others_carried_has_no_figure_and_says_so() {
        let figures = figures(Length(1 << 20), &runs());
        let forced = |mode: &str| figures.iter().find(|figure| figure.group == forced_group(mode)).unwrap();
        assert_eq!(forced("write-zcopy").missing.as_deref(), Some("carried by bcopy 100 %"));
        assert!(forced("write-zcopy").sample.is_none() && forced("read-zcopy").sample.is_some());
        let copies = figures.iter().find(|figure| figure.group == COPIES).unwrap();
        assert_eq!(copies.references.len(), 2, "{copies:?}");
    }

    #[test]
    fn the_best_forced_mode_is_one_that_carried_its_bytes() {
        let runs = runs();
        assert_eq!(best_forced(&runs), Some("read-zcopy"));
        let duel: Vec<_> =
            runs.into_iter().filter(|(way, _)| [AUTO, "read-zcopy"].contains(&way.name)).collect();
        let best = of_best(Length(1 << 20), &duel);
        assert_eq!((best.bar_ratio(), best.meets_bar()), (Some(1.0), Some(true)));
        assert_eq!(of_best(Length(1), &[]).meets_bar(), None);
    }

    #[test]
    fn the_bar_of_processor_time_is_higher_for_large_messages() {
        let bar = |size| {
            let figures = figures(Length(size), &runs());
            let found = figures.into_iter().find(|figure| figure.group == PER_PROCESSOR).unwrap();
            (found.bar.clone().unwrap().bar, found.bar_ratio())
        };
        assert_eq!((bar(4096), bar(64 << 10)), ((1.0, Some(5.0)), (2.5, Some(5.0))));
    }

    #[test]
    fn a_run_that_fails_is_told_and_the_others_count() {
        let mut runs = 0;
        let (done, failed) = by_turns(vec!["a", "b"], 2, |name| {
            runs += 1;
            if name == "b" && runs == 2 { Err(Error::msg("of 3 only 2")) } else { Ok(done(1.0, None)) }
        });
        assert_eq!((done[0].1.len(), done[1].1.len(), failed.len()), (2, 1, 1));
        let figure = failure(failed[0].0, &failed[0].1);
        assert_eq!((figure.meets_bar(), figure.missing.as_deref()), (None, Some("of 3 only 2")));
    }

    #[test]
    fn what_was_chosen_is_told_in_parts() {
        let runs = runs();
        assert_eq!(shares("read-zcopy", Length(1), &runs[0].1).sample.unwrap().median, 99.0);
        assert_eq!(
            impure("bcopy", &[done(1.0, Some([90, 10, 0, 0]))]).unwrap(),
            "carried by bcopy 90 %, read-zcopy 10 %"
        );
    }
}
