//! `crosslane bench direct-vs-tcp`: study 1 on timed cables. Stores by a program that has the window, unmodified programs on sockets and on IP, and
//! the kernel's TCP without any cable, each beside what the cable can give at most: does bandwidth grow with lanes?

pub mod args;
mod several;
mod stores;
mod traffic;

use crate::calm::turn;
use crate::figure::{Figure, Report, Sample, Unit};
use crate::frame::{Experiment, Taken};
use anyhow::Result;
use crosslane_pcie::{Cable, Limits};
use indicatif::ProgressBar;
use several::SEVERAL;
use std::time::Duration;

/// The cables that are measured if none is named: lanes at one rate, then rates at four lanes.
const USUAL: [&str; 9] =
    ["gen1 x1", "gen1 x2", "gen1 x4", "gen1 x8", "gen1 x16", "gen2 x4", "gen3 x4", "gen3 x8", "gen4 x4"];
/// Those of a quick run.
const QUICK: [&str; 3] = ["gen1 x1", "gen1 x4", "gen3 x4"];

/// Bytes of a store.
const STORE: usize = 64 << 10;
/// Lines whose times are measured, in each run.
const LINES: usize = 1000;

const LIMIT: &str = "limit of the cable";
const STUDY: &str = "study 1, its hardware";
/// Least part of the limit.
const STORES_BAR: f64 = 0.95;
const SOCKETS_BAR: f64 = 0.9;
/// A cable whose bytes are late to a larger part than this is faster than this machine, and has no bar.
const LATE: f64 = 0.05;

/// Study 1's shares of the raw rate by `ntb_perf`, percent: generation, lanes, share. Of generation 3 it gives 64 to 69 for both widths.
const SHARES: [(u8, u8, f64); 4] = [(3, 4, 66.5), (3, 8, 66.5), (4, 4, 70.0), (4, 8, 63.0)];

/// The options.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The cables.
    pub cables: Vec<Cable>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each lasts, in whole seconds.
    pub seconds: u32,
    /// Whether programs are measured, too, or stores alone.
    pub programs: bool,
    /// Whether programs that send single messages run over the narrowest cable only: their times are those of this machine's sleeping threads,
    /// mostly, and sockperf takes two seconds beside each run.
    pub brief: bool,
}

impl Plan {
    /// The usual cables, or those of a quick run.
    fn cables(quick: bool) -> Vec<Cable> {
        let texts = if quick { &QUICK[..] } else { &USUAL[..] };
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// The experiment: a step for each cable's stores, one for programs, and those over several cables.
#[derive(Debug)]
pub struct DirectVsTcp {
    plan: Plan,
}

impl DirectVsTcp {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan }
    }

    /// The cable that several hosts are joined by: with the least rate, since this machine is to pace several at once.
    fn narrowest(&self) -> Option<Cable> {
        let rate = |cable: &&Cable| Limits(cable).raw();
        self.plan.cables.iter().filter(|_| self.plan.programs).min_by_key(rate).copied()
    }

    fn stores(&self, cable: Cable) -> Result<Vec<Figure>> {
        let (mut rig, time) = (stores::Rig::new(cable)?, Duration::from_secs(self.plan.seconds.into()));
        let (mut rates, mut times) = (Vec::new(), Vec::new());
        rig.rate(STORE, time / 4)?;
        for _ in 0..self.plan.runs {
            rates.push(turn(|| rig.rate(STORE, time))?);
        }
        let late = rig.pacing().map_or(0.0, |pacing| pacing.late());
        for _ in 0..self.plan.runs {
            let mut run = turn(|| rig.times(LINES))?;
            run.sort_by(f64::total_cmp);
            times.push(run[LINES / 2]);
        }
        Ok(stores_figures(&cable, rates, times, late))
    }
}

impl Experiment for DirectVsTcp {
    fn title(&self) -> String {
        let Plan { cables, runs, seconds, programs, .. } = &self.plan;
        let count = cables.len();
        let what = if *programs { "bench direct-vs-tcp" } else { "perf" };
        format!("crosslane {what}, {count} timed cables, medians of {runs} runs of {seconds} s")
    }

    fn steps(&self) -> Vec<String> {
        let both = |cable: &Cable| {
            let programs = self.plan.programs.then(|| format!("programs over {cable}"));
            [Some(format!("stores over {cable}")), programs].into_iter().flatten()
        };
        let cables = self.plan.cables.iter().flat_map(both);
        let several = self.narrowest().into_iter().flat_map(|cable| SEVERAL.map(|it| it.step(&cable)));
        cables.chain(several).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let each = if self.plan.programs { 2 } else { 1 };
        if let (Some(more), Some(cable)) = (step.checked_sub(each * self.plan.cables.len()), self.narrowest())
        {
            return Ok(SEVERAL[more].measure(cable, &self.plan, progress)?.into());
        }
        let cable = self.plan.cables[step / each];
        if step.is_multiple_of(each) {
            return Ok(self.stores(cable)?.into());
        }
        let messages = !self.plan.brief || self.narrowest() == Some(cable);
        Ok(traffic::measure(cable, messages, &self.plan, progress)?.figures(&cable).into())
    }

    fn conclude(&self, report: &mut Report) {
        let may_have_bar =
            [STORES, SOCKETS, several::IN_A_ROW, several::BOTH_WAYS, several::SIDE_BY_SIDE, several::STRIPED];
        let fast = report.figures.iter().filter(|figure| {
            may_have_bar.contains(&figure.group.as_str()) && figure.bar.is_none() && figure.sample.is_some()
        });
        let fast: Vec<String> = fast.map(|figure| format!("{}, {}", figure.group, figure.case)).collect();
        if !fast.is_empty() {
            let names = fast.join("; ");
            report.warnings.push(format!("faster than this machine, no bar: {names}"));
        }
        report.warnings.push(
            "study 1, on two Xeon w5-3423 and PCIe boards: TCP over NTB never above 2 GB/s, whatever the lanes; direct 63 to 70 % of the raw rate"
                .to_owned(),
        );
    }
}

const STORES: &str = "direct: stores";
const SHARE: &str = "direct: share of the raw rate";
const LINE: &str = "direct: 64 B, one way";
const SOCKETS: &str = "sockets: iperf3, 128 KB";
const IP: &str = "TCP over IP (xl0): iperf3, 128 KB";
const ECHO: &str = "sockets: sockperf, 14 B, one way";
const ASK: &str = "sockets: netperf TCP_RR, 1 B";
const PING: &str = "IP over the fabric: ping, there and back";

/// The figure with a bar of its limit. If a larger part than [`LATE`] of its bytes landed late, it is not held against a bar that it misses: no byte
/// lands early, so what meets it does so whatever was late.
fn held(figure: Figure, late: f64, least: f64) -> Figure {
    let barred = figure.clone().bar(LIMIT, least, None);
    if late > LATE && barred.meets_bar() != Some(true) { figure } else { barred }
}

/// MB (10^6) a second that a writer can have at most.
fn limit(cable: &Cable) -> Option<Sample> {
    Sample::new(vec![Limits(cable).payload(false) / 1e6])
}

/// us that a write of one line takes at least.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn least(cable: &Cable) -> Option<Sample> {
    Sample::new(vec![Limits(cable).latency(64) as f64 / 1e6])
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn stores_figures(cable: &Cable, rates: Vec<f64>, times: Vec<f64>, late: f64) -> Vec<Figure> {
    let (case, raw) = (cable.to_string(), Limits(cable).raw() as f64 / 1e6);
    let rates = Sample::new(rates);
    let rate =
        Figure::new(STORES, &case, Unit::MegabytesPerSecond, rates.clone()).against(LIMIT, limit(cable));
    let rate = held(rate, late, STORES_BAR);
    let of_study = SHARES
        .iter()
        .find(|(generation, lanes, _)| (*generation, *lanes) == (cable.generation.number(), cable.lanes));
    let study = of_study.and_then(|(.., share)| Sample::new(vec![*share]));
    let share = rates.map(|rates| rates.scaled(100.0 / raw));
    vec![
        rate,
        Figure::new(SHARE, &case, Unit::Percent, share).against(STUDY, study),
        Figure::new(LINE, &case, Unit::Microseconds, Sample::new(times)).against(LIMIT, least(cable)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_steps_are_two_for_each_cable_and_all_different() {
        for (quick, count) in [(false, USUAL.len()), (true, QUICK.len())] {
            let plan =
                Plan { cables: Plan::cables(quick), runs: 3, seconds: 1, programs: true, brief: quick };
            assert_eq!(plan.cables.len(), count, "all can be read");
            let mut steps = DirectVsTcp::new(plan.clone()).steps();
            assert_eq!(steps.len(), 2 * plan.cables.len() + SEVERAL.len());
            let stores = Plan { programs: false, ..plan.clone() };
            assert_eq!(DirectVsTcp::new(stores).steps().len(), plan.cables.len());
            steps.sort();
            steps.dedup();
            assert_eq!(steps.len(), 2 * plan.cables.len() + SEVERAL.len());
        }
    }

    #[test]
    fn direct_bar_counts_where_this_machine_keeps_up() {
        let cable: Cable = "gen4 x4".parse().unwrap();
        let limit = Limits(&cable).payload(false) / 1e6;
        let figures = |late| stores_figures(&cable, vec![0.9 * limit], vec![9.0], late);
        assert_eq!(figures(0.0)[0].meets_bar(), Some(false));
        assert_eq!(figures(0.5)[0].meets_bar(), None);
        let share = &figures(0.0)[1];
        let percent = 90.0 * limit * 1e6 / Limits(&cable).raw() as f64;
        assert!((share.median().unwrap() - percent).abs() < 1e-9);
        assert_eq!(share.reference(STUDY).unwrap().sample.median, 70.0);
    }
}
