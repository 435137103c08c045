//! `crosslane bench sdp`: the modes of a stream by size of message, as the SDP study measured SDP against Ethernet.
//!
//! Plain programs ([`flow`]) send blocks of a size between two hosts of a lab: by the mode that is chosen
//! automatically, by each forced mode ([`way`]), and by the kernel's TCP. The streams' counters ([`tally`]) show what
//! carried the bytes, so that a column of a mode has no figure where another mode did. Request and reply: [`exchange`].

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

use crate::calm::steady;
use crate::figure::{Figure, Report, Sample, Unit};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::program::{LOOPBACK, VETH};
use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use pair::Done;
use size::Length;
use std::time::Duration;
use tally::MODES;
use way::{AUTO, FORCED, Rig, Way};

/// A group of the report: bytes that arrive a second.
pub const THROUGHPUT: &str = "throughput";
/// The same of the automatic mode, held against the best forced one.
pub const OF_BEST: &str = "throughput beside the best mode";
/// Bytes that arrive per second of processor time of all participants.
pub const PER_PROCESSOR: &str = "per second of processor time";
/// Processor time that all participants use a second.
pub const PROCESSOR: &str = "processor time";
/// Copies that either end makes of each byte.
pub const COPIES: &str = "copies of a byte";
/// The prefix of groups of failed runs.
pub const FAILED: &str = "failed";
/// Shares of the bytes by each unforced mode.
const CHOSEN: &str = "chosen by itself";
/// A reference: the best of the modes that were forced and did carry the bytes.
pub const BEST: &str = "best forced mode";

/// Least part of the best forced mode that the automatic one must reach.
const PART: f64 = 0.9;
/// How much better than loopback TCP bytes per second of processor time must be: at every size, and from [`LARGE`] on.
const SMALL_BAR: f64 = 1.0;
const LARGE_BAR: f64 = 2.5;
const LARGE: usize = 64 << 10;
/// Least part of the bytes by a mode for a run to be that mode's.
const PURE: f64 = 0.95;

/// The options.
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
    /// 1 B to 8 MB, replies of 64 B to 8 KB; the main points only if `quick`.
    pub fn new(runs: usize, quick: bool) -> Self {
        let (sizes, replies) = if quick {
            (vec![4 << 10, 1 << 20], vec![64])
        } else {
            let sizes =
                [1, 8, 64, 256, 1434, 4 << 10, 16 << 10, 64 << 10, 140 << 10, 256 << 10, 1 << 20, 8 << 20];
            (sizes.to_vec(), vec![64, 256, 1 << 10, 4 << 10, 8 << 10])
        };
        let lengths = |sizes: Vec<usize>| sizes.into_iter().map(Length).collect();
        let millis = if quick { 100 } else { 300 };
        Self { sizes: lengths(sizes), replies: lengths(replies), runs, millis }
    }

    /// Turns of two that a bar holds against each other: a machine's bandwidth may be half of what it was a moment ago.
    fn turns(&self) -> usize {
        self.runs * 3
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// The experiment: a step for each size of messages, then one for each of replies.
#[derive(Debug)]
pub struct Sdp {
    plan: Plan,
    rig: Shared<Rig>,
}

impl Sdp {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, rig: Shared::default() }
    }
}

impl Experiment for Sdp {
    fn title(&self) -> String {
        let Plan { runs, millis, .. } = self.plan;
        format!(
            "crosslane bench sdp, modes of a stream by size of message, one stream one way, medians of {runs} runs of {millis} ms"
        )
    }

    fn steps(&self) -> Vec<String> {
        let replies = self.plan.replies.iter().map(|size| format!("reply of {size}"));
        self.plan.sizes.iter().map(Length::to_string).chain(replies).collect()
    }

    fn take(&mut self, step: usize, _: &ProgressBar) -> Result<Taken> {
        let plan = &self.plan;
        let measured = |rig: &mut Rig| {
            let figures = match plan.sizes.get(step) {
                Some(&size) if size.0 >= native_figures::LEAST => {
                    let native = native_figures::figures(rig, plan, size);
                    sizes_figures(rig, plan, size).into_iter().chain(native).collect()
                }
                Some(&size) => sizes_figures(rig, plan, size),
                None => exchange::figures(rig, plan, plan.replies[step - plan.sizes.len()]),
            };
            // Then the lab is dead.
            let why = figures.iter().find_map(|figure: &Figure| figure.missing.clone());
            let is_any = figures.iter().any(|figure| figure.sample.is_some());
            ensure!(is_any, "{}", why.unwrap_or_else(|| "nothing could be measured".to_owned()));
            Ok(figures)
        };
        Ok(self.rig.with(Rig::new, measured)?.into())
    }

    fn conclude(&self, report: &mut Report) {
        // Shares and copies are no rates, and these samples stand in other groups too.
        let silent = [OF_BEST, COPIES, CHOSEN];
        report.warnings.retain(|note| !silent.iter().any(|group| note.starts_with(group)));
    }
}

/// All ways by turns, each as often as the plan says.
fn sizes_figures(rig: &Rig, plan: &Plan, size: Length) -> Vec<Figure> {
    let what = format!("messages of {size}");
    let run = |way| rig.run(way, POUR, &[size.0], plan.time());
    let (runs, failed) = by_turns(Way::all(), plan.runs, &what, run);
    let duel = best_forced(&runs).map_or(vec![], |best| {
        Way::all().into_iter().filter(|way| [AUTO, best].contains(&way.name)).collect()
    });
    let (duel, more) = by_turns(duel, plan.turns(), &what, run);
    let of_best = of_best(size, &duel);
    figures(size, &runs).into_iter().chain([of_best]).chain(failed).chain(more).collect()
}

/// The roles of two programs that send one way, and of two that ask and answer.
const POUR: [&str; 2] = ["--receive", "--send"];
const ASK: [&str; 2] = ["--reply", "--ask"];

/// The forced mode that carried its bytes fastest.
fn best_forced(runs: &[Runs]) -> Option<&'static str> {
    let rates = FORCED.into_iter().filter_map(|name| Some((name, sample(runs, name, rate)?.median)));
    rates.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

/// Megabytes (10^6) in a second.
fn rate(done: &Done) -> Option<f64> {
    Some(done.rate() / 1e6)
}

/// The same in a second of processor time.
fn per_processor(done: &Done) -> Option<f64> {
    Some(done.per_processor() / 1e6)
}

/// The automatic mode beside the best forced one, from turns of these two alone.
fn of_best(size: Length, duel: &[Runs]) -> Figure {
    let sample = |auto: bool| {
        let (_, runs) = duel.iter().find(|(way, _)| (way.name == AUTO) == auto)?;
        Sample::new(runs.iter().filter_map(rate).collect())
    };
    Figure::new(OF_BEST, size.to_string(), Unit::MegabytesPerSecond, sample(true))
        .against(BEST, sample(false))
        .bar(BEST, PART, None)
        .by_turns()
}

/// The results of a way's runs.
type Runs = (Way, Vec<Done>);

/// Runs all, then all again. A failed run is left out of its sample and reported: the others go on.
fn by_turns(
    all: Vec<Way>,
    runs: usize,
    what: &str,
    mut run: impl FnMut(Way) -> Result<Done>,
) -> (Vec<Runs>, Vec<Figure>) {
    let mut done: Vec<Runs> = all.into_iter().map(|way| (way, Vec::new())).collect();
    let mut failed = Vec::new();
    for _ in 0..runs {
        for (way, samples) in &mut done {
            match steady(|| run(*way)) {
                Ok((sample, _)) => samples.push(sample),
                // It misses its bar.
                Err(why) => failed.push(Figure::failed(&format!("{FAILED}: {}, {what}", way.name), &why)),
            }
        }
    }
    (done, failed)
}

/// The results of one size.
fn figures(size: Length, runs: &[Runs]) -> Vec<Figure> {
    let names = [&[AUTO], &FORCED[..], &[LOOPBACK, VETH]].concat();
    let compared = |group, unit, value| beside(runs, &names, size, (group, unit), value);
    let bar = if size.0 >= LARGE { LARGE_BAR } else { SMALL_BAR };
    let copies: fn(&Done) -> Option<f64> = |run| Some(run.tally.as_ref()?.copies());
    let mut figures = vec![
        compared(THROUGHPUT, Unit::MegabytesPerSecond, rate).bar(LOOPBACK, 1.0, None),
        compared(PER_PROCESSOR, Unit::MegabytesPerProcessorSecond, per_processor).bar(LOOPBACK, bar, None),
        compared(PROCESSOR, Unit::PercentOfCore, |done| Some(100.0 * done.processor / done.seconds)),
        beside(runs, &names[..=FORCED.len()], size, (COPIES, Unit::Copies), copies),
    ];
    figures.extend(FORCED.into_iter().map(|name| alone(runs, name, size)));
    figures.extend(MODES.iter().map(|mode| shares(mode, size, of(runs, AUTO))));
    figures
}

/// The first way of `names`, with the others as references.
fn beside(
    runs: &[Runs],
    names: &[&str],
    size: Length,
    (group, unit): (&str, Unit),
    value: fn(&Done) -> Option<f64>,
) -> Figure {
    let figure = Figure::new(group, size.to_string(), unit, sample(runs, names[0], value));
    names[1..].iter().fold(figure, |figure, name| figure.against(name, sample(runs, name, value))).by_turns()
}

/// The results of the way of this name; `None` if other modes carried the bytes.
fn sample(runs: &[Runs], name: &str, value: fn(&Done) -> Option<f64>) -> Option<Sample> {
    let (way, done) = runs.iter().find(|(way, _)| way.name == name)?;
    if impure(*way, done).is_some() { None } else { Sample::new(done.iter().filter_map(value).collect()) }
}

fn of<'a>(runs: &'a [Runs], name: &str) -> &'a [Done] {
    runs.iter().find(|(way, _)| way.name == name).map_or(&[], |(_, runs)| runs)
}

/// The group of a forced mode's own figures.
pub fn forced_group(mode: &str) -> String {
    format!("forced: {mode}")
}

/// The group of what a mode carried without being forced.
pub fn share_group(mode: &str) -> String {
    format!("{CHOSEN}: {mode}")
}

/// A way by itself, with what carried the bytes where it did not.
fn alone(runs: &[Runs], name: &str, size: Length) -> Figure {
    let (group, sample) = (forced_group(name), sample(runs, name, rate));
    Figure::new(&group, size.to_string(), Unit::MegabytesPerSecond, sample).without(why_not(runs, name))
}

/// Why the runs of the way of this name are not its mode's, if other modes carried the bytes.
fn why_not(runs: &[Runs], name: &str) -> Option<String> {
    let (way, done) = runs.iter().find(|(way, _)| way.name == name)?;
    impure(*way, done)
}

/// What carried the bytes, if it was not the way's mode alone.
fn impure(way: Way, runs: &[Done]) -> Option<String> {
    let name = way.mode()?;
    let tallies = runs.iter().filter_map(|run| run.tally.as_ref());
    let worst = tallies.min_by(|a, b| a.share(name).total_cmp(&b.share(name)))?;
    if worst.share(name) >= PURE {
        return None;
    }
    let shares = MODES.iter().map(|mode| (*mode, worst.share(mode))).filter(|(_, share)| *share >= 0.005);
    let shares: Vec<String> = shares.map(|(mode, share)| format!("{mode} {:.0} %", share * 100.0)).collect();
    Some(format!("carried by {}", shares.join(", ")))
}

/// The share of the bytes that an unforced mode carried.
fn shares(mode: &str, size: Length, runs: &[Done]) -> Figure {
    let shares = runs.iter().filter_map(|run| Some(run.tally.as_ref()?.share(mode) * 100.0)).collect();
    Figure::new(&share_group(mode), size.to_string(), Unit::Percent, Sample::new(shares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
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
    fn forced_mode_carried_by_others_has_no_figure_and_says_so() {
        let figures = figures(Length(1 << 20), &runs());
        let forced = |mode: &str| figures.iter().find(|figure| figure.group == forced_group(mode)).unwrap();
        assert_eq!(forced("write-zcopy").missing.as_deref(), Some("carried by bcopy 100 %"));
        assert!(forced("write-zcopy").sample.is_none() && forced("read-zcopy").sample.is_some());
        let copies = figures.iter().find(|figure| figure.group == COPIES).unwrap();
        assert_eq!(copies.references.len(), 2, "{copies:?}");
    }

    #[test]
    fn forced_mode_counts_as_best_only_if_it_carried_its_bytes() {
        let runs = runs();
        assert_eq!(best_forced(&runs), Some("read-zcopy"));
        let duel: Vec<_> =
            runs.into_iter().filter(|(way, _)| [AUTO, "read-zcopy"].contains(&way.name)).collect();
        let best = of_best(Length(1 << 20), &duel);
        assert_eq!((best.bar_ratio(), best.meets_bar()), (Some(1.0), Some(true)));
        assert_eq!(of_best(Length(1), &[]).meets_bar(), None);
    }

    #[test]
    fn bar_of_processor_time_is_higher_for_large_messages() {
        let bar = |size| {
            let figures = figures(Length(size), &runs());
            let found = figures.into_iter().find(|figure| figure.group == PER_PROCESSOR).unwrap();
            (found.bar.clone().unwrap().bar, found.bar_ratio())
        };
        assert_eq!((bar(4096), bar(64 << 10)), ((1.0, Some(5.0)), (2.5, Some(5.0))));
    }

    #[test]
    fn run_failure_is_reported_and_other_runs_count() {
        let mut runs = 0;
        let (done, failed) = by_turns(Way::all()[..2].to_vec(), 2, "bytes", |way| {
            runs += 1;
            if way.name == "bcopy" && runs == 2 { bail!("of 3 only 2") } else { Ok(done(1.0, None)) }
        });
        assert_eq!((done[0].1.len(), done[1].1.len(), failed.len()), (2, 1, 1));
        let Figure { group, missing, .. } = &failed[0];
        assert_eq!((&**group, missing.as_deref()), ("failed: bcopy, bytes", Some("of 3 only 2")));
        assert_eq!(failed[0].meets_bar(), None);
    }

    #[test]
    fn chooser_shares_are_reported() {
        let runs = runs();
        assert_eq!(shares("read-zcopy", Length(1), &runs[0].1).sample.unwrap().median, 99.0);
        assert_eq!(
            impure(Way::all()[1], &[done(1.0, Some([90, 10, 0, 0]))]).unwrap(),
            "carried by bcopy 90 %, read-zcopy 10 %"
        );
    }
}
