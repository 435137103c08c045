//! `crosslane bench media`: study 5, copper against optical cables under the load of an application: a remote block device (unmodified nbdkit
//! and fio on sockets) on timed cables that differ in nothing but their medium, by turns. Does the medium matter to who uses it?

pub mod args;
mod block;
mod gpu;

use crate::calm::turn;
use crate::figure::{Figure, Report, Sample, Unit};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::place::{self, InLab};
use crate::program::VETH;
use crate::versions;
use anyhow::{Result, bail};
use block::{Device, NEEDS, PATTERNS, Pattern};
use crosslane_apps::need::missing;
use crosslane_lab::{CableKind, Lab, Posted};
use crosslane_pcie::{Cable, Limits};
use crosslane_results::compare::{Comparison, Settings};
use indicatif::ProgressBar;
use std::time::Duration;

/// The cables that are measured if none is named: the study's two, then each as long as it can be. The first is what others are held against.
const USUAL: [&str; 4] =
    ["gen1 x4, copper 1 m", "gen1 x4, fibre 10 m", "gen1 x4, copper 10 m", "gen1 x4, fibre 100 m"];
/// Those of a quick run.
const QUICK: usize = 2;
const LIMIT: &str = "limit of the cable";
/// The last step.
const GPU: &str = "GPU";

/// The options.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The cables; others are held against the first.
    pub cables: Vec<Cable>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each lasts.
    pub time: Duration,
}

impl Plan {
    /// The usual cables, or those of a quick run.
    fn cables(quick: bool) -> Vec<Cable> {
        let count = if quick { QUICK } else { USUAL.len() };
        USUAL[..count].iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// A cable with a block device at its far end.
#[derive(Debug)]
struct Medium {
    lab: Lab,
    device: Device,
}

/// All cables, and the kernel's TCP between the hosts of the first.
#[derive(Debug)]
struct Rig {
    media: Vec<Medium>,
    tcp: Device,
}

/// The experiment: a step for each pattern of access, and one for this host's GPU.
#[derive(Debug)]
pub struct Media {
    plan: Plan,
    rig: Shared<Rig>,
}

impl Media {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, rig: Shared::default() }
    }
}

impl Rig {
    fn new(cables: &[Cable]) -> Result<Self> {
        let (mut media, mut tcp) = (Vec::new(), None);
        for cable in cables {
            let link = CableKind::Posted(Posted { link: Some(*cable), ..Posted::default() });
            let lab = place::up(&crosslane_lab::Options { cable_kind: link, ..place::pair("media") })?;
            let [sockets, kernel] = InLab::between(&lab, "h1", "h2")?;
            if tcp.is_none() {
                tcp = Some(Device::serve(&kernel)?);
            }
            let device = Device::serve(&sockets)?;
            media.push(Medium { lab, device });
        }
        let Some(tcp) = tcp else { bail!("there is no cable") };
        Ok(Self { media, tcp })
    }

    /// All figures of a pattern.
    fn figures(&self, plan: &Plan, pattern: &Pattern, progress: &ProgressBar) -> Result<Vec<Figure>> {
        let (mut by_medium, mut by_tcp) = (vec![Vec::new(); self.media.len()], Vec::new());
        for run in 1..=plan.runs {
            for (number, Medium { lab, device }) in self.media.iter().enumerate() {
                let [sockets, kernel] = InLab::between(lab, "h1", "h2")?;
                progress.set_message(format!(
                    "{} over {}, run {run} of {}",
                    pattern.name, plan.cables[number], plan.runs
                ));
                by_medium[number].push(turn(|| device.rate(&sockets, pattern, plan.time))?);
                if number == 0 {
                    by_tcp.push(turn(|| self.tcp.rate(&kernel, pattern, plan.time))?);
                }
            }
        }
        let tcp = Sample::new(by_tcp);
        let samples: Vec<Option<Sample>> = by_medium.into_iter().map(Sample::new).collect();
        let figure = |(number, cable): (usize, &Cable)| {
            let limit = Sample::new(vec![Limits(cable).payload(false) / 1e6]);
            let sample = samples[number].clone();
            let figure = Figure::new(pattern.name, cable.to_string(), Unit::MegabytesPerSecond, sample);
            let figure = figure.against(LIMIT, limit).against(VETH, tcp.clone());
            match number {
                0 => figure,
                _ => figure.against(&plan.cables[0].to_string(), samples[0].clone()),
            }
            .by_turns()
        };
        Ok(plan.cables.iter().enumerate().map(figure).collect())
    }
}

impl Experiment for Media {
    fn title(&self) -> String {
        let Plan { cables, runs, time } = &self.plan;
        let names: Vec<String> = cables.iter().map(Cable::to_string).collect();
        let seconds = time.as_secs_f64();
        format!("crosslane bench media, {}; medians of {runs} runs of {seconds} s", names.join("; "))
    }

    fn steps(&self) -> Vec<String> {
        PATTERNS.iter().map(|pattern| pattern.name.to_owned()).chain([GPU.to_owned()]).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let plan = &self.plan;
        let Some(pattern) = PATTERNS.get(step) else { return gpu::measure(plan.runs, plan.time / 10) };
        if let Some(need) = missing(NEEDS) {
            bail!("{} is not installed ({})", need.what, need.source);
        }
        let up = || Rig::new(&plan.cables);
        Ok(self.rig.with(up, |rig| rig.figures(plan, pattern, progress))?.into())
    }

    fn conclude(&self, report: &mut Report) {
        report.programs = versions::of(NEEDS.iter().filter_map(|need| need.find()));
        if let Some((first, others)) = self.plan.cables.split_first() {
            let notes: Vec<String> = others.iter().flat_map(|other| contrast(report, first, other)).collect();
            report.warnings.extend(notes);
        }
        report.warnings.push(
            "study 5, on PEX8733 adapters, PCIe 3.0 x16, 1 m of copper and 10 m of fibre: no winner under IOzone; a GPU had 2 % more by copper"
                .to_owned(),
        );
    }
}

/// What the two media differ by, a sentence for each pattern.
fn contrast(report: &Report, first: &Cable, other: &Cable) -> Vec<String> {
    let of = |cable: &Cable| {
        let case = cable.to_string();
        let there = report.figures.iter().filter(|figure| figure.case == case);
        let figures = there
            .map(|figure| Figure::new("pattern", figure.group.clone(), figure.unit, figure.sample.clone()));
        Report { figures: figures.collect(), warnings: Vec::new(), ..report.clone() }
    };
    let comparison = Comparison::new(&of(first), &of(other), Settings::default());
    let says = |metric: &crosslane_results::compare::Metric| {
        format!("{}, from {first} to {other}: {}", metric.case, metric.says)
    };
    comparison.metrics.iter().map(says).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_cables_differ_in_their_medium_only() {
        let all = Plan::cables(false);
        assert_eq!((all.len(), Plan::cables(true).len()), (USUAL.len(), QUICK), "all can be read");
        for cable in &all {
            assert_eq!(Cable { medium: all[0].medium, length: all[0].length, ..*cable }, all[0]);
        }
    }

    #[test]
    fn media_without_a_difference_are_said_to_have_none() {
        let cables = Plan::cables(true);
        let figures = |second: f64| {
            let values =
                |scale: f64| Sample::new((0..15).map(|run| scale * (100.0 + f64::from(run))).collect());
            let figure = |cable: &Cable, sample| {
                Figure::new("read", cable.to_string(), Unit::MegabytesPerSecond, sample)
            };
            let mut report = Report::new("media");
            report.figures = vec![figure(&cables[0], values(1.0)), figure(&cables[1], values(second))];
            contrast(&report, &cables[0], &cables[1])
        };
        assert!(figures(1.0)[0].contains("no difference"), "{:?}", figures(1.0));
        assert!(!figures(2.0)[0].contains("no difference"), "{:?}", figures(2.0));
    }
}
