//! `crosslane bench quick`: everything that has a bar, in one run: direct access, unmodified programs ([`crate::program`]) at several places
//! ([`crate::place`]) by turns ([`crate::compare`]), what idles, ways over several cables; then the programs again on two processors.

pub mod args;
mod idle;

use crate::affinity::{Cores, Pin};
use crate::compare::{Setting, compare};
use crate::figure::{Figure, Report};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::perf::{self, Plan};
use crate::place::{self, InLab};
use crate::program::process::find;
use crate::program::{self, Effort, Program};
use crate::{transit, versions};
use anyhow::{Result, bail, ensure};
use crosslane_lab::Lab;
use indicatif::ProgressBar;

/// Parts of a run, as `--only` names them, beside programs and those of [`transit`].
const PARTS: [&str; 3] = ["perf", "idle", "ip"];
/// Processors of the pinned part.
const PINNED: Cores = Cores { near: 0, far: 1 };
/// What its names end in.
const REMARK: &str = ", on 2 processors";

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Runs of each case.
    pub runs: usize,
    /// Length of one run of a program.
    pub effort: Effort,
    /// Whether all is run again on two processors.
    pub pinned: bool,
    /// Run these only (by name); all if empty.
    pub only: Vec<String>,
    /// Whether the main points are enough: ways over two cables at most.
    pub brief: bool,
}

impl Quick {
    /// Checks that all requested parts exist.
    ///
    /// # Errors
    /// One does not; the error names all that do.
    pub fn check(&self) -> Result<()> {
        let (all, plain) = (program::all(), program::over_ip());
        let programs = all.iter().chain(&plain).map(|program| program.name);
        let mut names: Vec<&str> = PARTS.into_iter().chain(transit::names()).chain(programs).collect();
        names.dedup();
        match self.only.iter().find(|only| !names.contains(&only.as_str())) {
            Some(unknown) => {
                bail!("`{unknown}` is nothing that can be run; there are: {}", names.join(", "))
            }
            None => Ok(()),
        }
    }

    /// Whether the part of this name is wanted.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    fn steps(&self) -> Vec<Step> {
        let all: Vec<Program> =
            program::all().into_iter().filter(|program| self.wants(program.name)).collect();
        let wants_plain = |program: &Program| self.wants("ip") || self.wants(program.name);
        let plain = program::over_ip().into_iter().filter(wants_plain);
        let idle = |step| self.wants("idle").then_some(step);
        let mut steps: Vec<Step> = self.wants("perf").then_some(Step::Perf).into_iter().collect();
        steps.extend(all.iter().copied().map(Step::Program));
        steps.extend(idle(Step::Idle));
        steps.extend(plain.map(Step::Plain));
        steps.extend(idle(Step::IdleRing));
        steps.extend(transit::names().filter(|name| self.wants(name)).map(Step::Transit));
        if self.pinned {
            steps.extend(all.into_iter().map(Step::Pinned));
            steps.extend(idle(Step::PinnedIdle));
        }
        steps
    }

    fn setting(&self, bars: bool, remark: &str) -> Setting {
        Setting { runs: self.runs, effort: self.effort, bars, remark: remark.to_owned(), brief: self.brief }
    }
}

/// One of its steps.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Direct access.
    Perf,
    /// A program under the library.
    Program(Program),
    /// One that nothing accelerates.
    Plain(Program),
    /// Connections on which nothing moves.
    Idle,
    /// A ring in which nothing moves.
    IdleRing,
    /// A part of [`transit`].
    Transit(&'static str),
    /// As [`Self::Program`], on two processors.
    Pinned(Program),
    /// As [`Self::Idle`], on two processors.
    PinnedIdle,
}

impl Step {
    fn name(self) -> String {
        match self {
            Self::Perf => "perf".to_owned(),
            Self::Program(program) | Self::Plain(program) => shown(&program),
            Self::Idle => "idle connections".to_owned(),
            Self::IdleRing => "idle ring".to_owned(),
            Self::Transit(part) => part.to_owned(),
            Self::Pinned(program) => format!("{}{REMARK}", shown(&program)),
            Self::PinnedIdle => format!("idle connections{REMARK}"),
        }
    }
}

/// A program, and what tells it from others of the same name.
fn shown(program: &Program) -> String {
    let case = program.metrics.first().map_or("", |metric| metric.case);
    format!("{}, {case}", program.name)
}

/// The experiment.
#[derive(Debug)]
pub struct Suite {
    quick: Quick,
    steps: Vec<Step>,
    /// Two hosts.
    lab: Shared<Lab>,
    /// Two hosts, on two processors.
    pinned: Shared<Lab>,
}

impl Suite {
    /// Of this plan.
    pub fn new(quick: Quick) -> Self {
        let steps = quick.steps();
        Self { quick, steps, lab: Shared::default(), pinned: Shared::default() }
    }

    /// A program at all places.
    fn program(&mut self, program: &Program, progress: &ProgressBar) -> Result<Taken> {
        let setting = self.quick.setting(true, "");
        self.lab.with(up, |lab| at_all(program, &InLab::all(lab)?, &setting, progress))
    }

    /// The same of one that nothing accelerates.
    fn plain(&mut self, program: &Program, progress: &ProgressBar) -> Result<Taken> {
        let setting = self.quick.setting(true, "");
        self.lab.with(up, |lab| {
            if !lab.state().tun {
                let note =
                    format!("{}: no /dev/net/tun for this user, so no IP over the fabric", program.name);
                return Ok(Taken { notes: vec![note], ..Taken::default() });
            }
            at_all(program, &InLab::plain(lab)?, &setting, progress)
        })
    }

    /// The same on two processors.
    fn pinned(&mut self, program: &Program, progress: &ProgressBar) -> Result<Taken> {
        let setting = self.quick.setting(false, REMARK);
        confined(|| self.pinned.with(up, |lab| at_all(program, &InLab::all(lab)?, &setting, progress)))
    }
}

impl Experiment for Suite {
    fn title(&self) -> String {
        let Quick { runs, effort, .. } = self.quick;
        format!("crosslane bench quick, medians of {runs} runs of {} s", effort.seconds())
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(|step| step.name()).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let runs = self.quick.runs;
        match self.steps[step] {
            Step::Perf => direct(runs),
            Step::Program(program) => self.program(&program, progress),
            Step::Plain(program) => self.plain(&program, progress),
            Step::Idle => self.lab.with(up, |lab| idle::connections(lab, "", runs)),
            Step::IdleRing => idle::ring(runs),
            Step::Transit(part) => transit::measure(part, &self.quick.setting(true, ""), progress),
            Step::Pinned(program) => self.pinned(&program, progress),
            Step::PinnedIdle => confined(|| self.pinned.with(up, |lab| idle::connections(lab, REMARK, runs))),
        }
    }

    fn conclude(&self, report: &mut Report) {
        let needed = self.steps.iter().flat_map(|step| match step {
            Step::Program(program) | Step::Plain(program) => program.needs,
            _ => &[],
        });
        report.programs = versions::of(needed.filter_map(|needed| find(needed)));
    }
}

fn up() -> Result<Lab> {
    place::up(&place::pair("bench"))
}

/// Takes a step on two processors; where they may not be used a note says why it is left out.
fn confined(step: impl FnOnce() -> Result<Taken>) -> Result<Taken> {
    match Pin::both(PINNED) {
        Ok(_confined) => step(),
        Err(error) => {
            let note = format!("nothing was run on two processors: {error:#}");
            Ok(Taken { notes: vec![note], ..Taken::default() })
        }
    }
}

/// A program at all `places`, by turns. Fails if it could be run at none.
fn at_all(
    program: &Program,
    places: &[InLab<'_>],
    setting: &Setting,
    progress: &ProgressBar,
) -> Result<Taken> {
    let figures = compare(program, places, setting, progress);
    let is_any = |figure: &Figure| figure.sample.is_some() || !figure.references.is_empty();
    if !figures.iter().any(is_any) {
        let why = figures.first().and_then(|figure| figure.missing.clone());
        bail!("{}", why.unwrap_or_else(|| "nothing was measured".to_owned()));
    }
    Ok(figures.into())
}

/// Direct access from user space: what belongs into a summary. Its runs are short, so there are more of them.
fn direct(runs: usize) -> Result<Taken> {
    /// More tell no more.
    const MOST: usize = 45;
    let plan = Plan { runs: (10 * runs).min(MOST), ..Plan::quick() };
    let cores = Cores::pick()?;
    let cores = if cores.is_shared() { cores } else { Cores::pick_close()? };
    let is_main = |figure: &Figure| {
        figure.bar.is_some() || figure.group.starts_with("stream") || figure.group == "message one way"
    };
    let all = perf::run(&plan, cores)?.figures;
    let figures: Vec<Figure> = all.into_iter().filter(is_main).collect();
    ensure!(!figures.is_empty(), "nothing was measured");
    Ok(figures.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(only: &[&str], pinned: bool) -> Quick {
        let only = only.iter().map(|&name| name.to_owned()).collect();
        Quick { runs: 1, effort: Effort::Short, pinned, only, brief: false }
    }

    #[test]
    fn quick_reports_what_is_missing() {
        let check = |only: &[&str]| quick(only, false).check();
        assert!(check(&[]).is_ok());
        assert!(check(&["perf", "loss", "iperf3", "IP: ping"]).is_ok());
        let error = check(&["iperf3", "transits"]).unwrap_err().to_string();
        assert!(error.contains("`transits`") && error.contains("transit, safety"), "{error}");
    }

    #[test]
    fn quick_steps_have_different_names_and_are_those_that_are_wanted() {
        let names = |only: &[&str], pinned| Suite::new(quick(only, pinned)).steps();
        let mut all = names(&[], true);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(names(&["loss"], true), ["loss"]);
        let iperf3 = shown(&program::IPERF3);
        let pinned = format!("{iperf3}, on 2 processors");
        let idle = ["idle connections", "idle ring", "idle connections, on 2 processors"];
        assert_eq!(names(&["idle", "iperf3"], true), [&iperf3, idle[0], idle[1], &pinned, idle[2]]);
        assert_eq!(names(&["iperf3"], false), [iperf3]);
    }
}
