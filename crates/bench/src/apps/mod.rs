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
use crate::place;
use crate::program::VETH;
use crate::progress::{USUAL, line, print, progress};
use anyhow::{Result, anyhow};
use catalogue::App;
use crosslane_apps::need::missing;
use crosslane_lab::Lab;

/// Least part of TCP's rate.
const BAR: f64 = 0.95;

/// The options.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How often each program runs on streams and on TCP.
    pub turns: usize,
    /// How long each run lasts, roughly, s.
    pub seconds: f64,
    /// Only these programs (by name); all if empty.
    pub only: Vec<String>,
    /// Whether everything runs on two processors.
    pub two_processors: bool,
}

impl Plan {
    fn apps(&self) -> impl Iterator<Item = &'static App> {
        let wanted = |app: &&App| self.only.is_empty() || self.only.iter().any(|name| name == app.name);
        catalogue::APPS.iter().filter(wanted)
    }
}

/// Measures the requested programs. A failure is a figure that says why it is missing.
///
/// # Errors
/// The lab does not come up.
pub fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::new(format!(
        "crosslane bench apps, medians of {} turns of {} s{}",
        plan.turns,
        plan.seconds,
        on(plan.two_processors)
    ));
    let confined = confined(plan.two_processors)?;
    let lab = place::up(&place::pair("apps"))?;
    let progress = progress((plan.apps().count() * plan.turns * 2) as u64, USUAL);
    for app in plan.apps() {
        let figures = run(app, &lab, plan, &progress);
        figures.iter().for_each(|figure| print(&progress, &line(figure)));
        report.warnings.extend(remark(app, &figures[0]));
        report.figures.extend(figures);
    }
    progress.finish_and_clear();
    place::down(lab)?;
    drop(confined);
    report.warn_of_noise();
    Ok(report)
}

/// Rate and processor time of one program.
fn run(app: &App, lab: &Lab, plan: &Plan, progress: &indicatif::ProgressBar) -> Vec<Figure> {
    let outcome = match missing(app.needs) {
        Some(need) => {
            progress.inc(plan.turns as u64 * 2);
            Err(anyhow!("{} is not installed ({})", need.what, need.source))
        }
        None => turns::by_turns(app, lab, plan, progress),
    };
    outcome.map_or_else(
        |why| {
            let figure = Figure::new(app.name, app.title, app.unit, None).bar(VETH, BAR, None);
            vec![figure.without(Some(format!("{why:#}")))]
        },
        |runs| runs.figures(app),
    )
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
            two_processors: true,
        };
        let mut names: Vec<&str> = plan(&[]).apps().map(|app| app.name).collect();
        assert_eq!(plan(&names[..2]).apps().count(), 2);
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
