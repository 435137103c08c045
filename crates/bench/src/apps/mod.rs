//! `crosslane bench apps`: programs of others (`catalogue`) on streams and on the kernel's TCP, by turns.

pub mod args;
mod catalogue;
mod servers;
mod sides;
mod spent;
mod table;
mod turns;

use crate::affinity::{confined, on};
use crate::figure::{Figure, Report};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::place;
use crate::versions;
use anyhow::{Context, Result, bail};
use catalogue::App;
use crosslane_apps::need::missing;
use crosslane_lab::Lab;
use indicatif::ProgressBar;

/// Least part of TCP's rate.
const BAR: f64 = 0.95;

/// The options.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How often each program runs on streams and on TCP.
    pub turns: usize,
    /// How long each run lasts, roughly, s.
    pub seconds: f64,
    /// Only these programs (by name); all if empty, or all that start soon if `brief`.
    pub only: Vec<String>,
    /// Whether those that take long to start are left out.
    pub brief: bool,
    /// Whether everything runs on two processors.
    pub two_processors: bool,
}

impl Plan {
    fn apps(&self) -> impl Iterator<Item = &'static App> {
        let wanted = |app: &&App| match self.only.is_empty() {
            true => !(self.brief && app.is_slow),
            false => self.only.iter().any(|name| name == app.name),
        };
        catalogue::APPS.iter().filter(wanted)
    }
}

/// The experiment: a step for each program.
#[derive(Debug)]
pub struct Apps {
    plan: Plan,
    lab: Shared<Lab>,
}

impl Apps {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, lab: Shared::default() }
    }
}

impl Experiment for Apps {
    fn title(&self) -> String {
        let Plan { turns, seconds, two_processors, .. } = self.plan;
        format!("crosslane bench apps, medians of {turns} turns of {seconds} s{}", on(two_processors))
    }

    fn steps(&self) -> Vec<String> {
        self.plan.apps().map(|app| app.name.to_owned()).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let plan = &self.plan;
        let app = plan.apps().nth(step).context("there is no such step")?;
        if let Some(need) = missing(app.needs) {
            bail!("{} is not installed ({})", need.what, need.source);
        }
        let _confined = confined(plan.two_processors)?;
        let up = || place::up(&place::pair("apps"));
        let runs = self.lab.with(up, |lab| turns::by_turns(app, lab, plan, progress))?;
        let figures = runs.figures(app);
        let notes = remark(app, &figures[0]).into_iter().collect();
        Ok(Taken { figures, notes })
    }

    fn conclude(&self, report: &mut Report) {
        let needs = self.plan.apps().flat_map(|app| app.needs);
        report.programs = versions::of(needs.filter_map(|need| need.find()));
    }
}

/// Why a program is below its bar, if that is known.
fn remark(app: &App, rate: &Figure) -> Option<String> {
    let why = app.limit.filter(|_| rate.meets_bar() == Some(false))?;
    Some(format!("{}: below {BAR} of TCP: {why}", app.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Sample, Unit};
    use crate::program::VETH;

    #[test]
    fn app_below_its_bar_is_reported_with_why() {
        let app = App { limit: Some("physics"), ..catalogue::APPS[0] };
        let rate = |ours: f64| {
            let sample = |value| Sample::new(vec![value]);
            Figure::new("a", "b", Unit::PerSecond, sample(ours))
                .against(VETH, sample(10.0))
                .bar(VETH, BAR, None)
        };
        assert!(remark(&app, &rate(9.0)).is_some_and(|text| text.contains("physics")));
        assert_eq!(remark(&app, &rate(9.6)), None);
        assert_eq!(remark(&App { limit: None, ..app }, &rate(1.0)), None);
    }

    #[test]
    fn app_names_are_distinct() {
        let plan = |only: &[&str]| Plan {
            turns: 1,
            seconds: 1.0,
            only: only.iter().map(|&name| name.to_owned()).collect(),
            brief: false,
            two_processors: true,
        };
        let mut names: Vec<&str> = plan(&[]).apps().map(|app| app.name).collect();
        assert_eq!(plan(&names[..2]).apps().count(), 2);
        let all = names.len();
        let brief = Plan { brief: true, ..plan(&[]) };
        assert!(brief.apps().count() < all && brief.apps().all(|app| !app.is_slow));
        assert_eq!(Plan { brief: true, ..plan(&["zookeeper"]) }.apps().count(), 1, "it is asked for");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
