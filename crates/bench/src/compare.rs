//! The same program at several places, by turns, so that disturbances of the machine meet all.

use crate::calm::steady;
use crate::figure::{Figure, Sample};
use crate::place::Place;
use crate::program::process::{Server, find};
use crate::program::{CROSSLANE, Effort, Metric, Program};
use anyhow::Result;
use indicatif::ProgressBar;

/// How programs are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Runs at each place.
    pub runs: usize,
    /// Length of one run.
    pub effort: Effort,
    /// Whether figures get their bars.
    pub bars: bool,
    /// Suffix of the program's name: what is special about this setting.
    pub remark: String,
    /// Whether the main points are enough.
    pub brief: bool,
}

/// Runs `program` at all `places`; the first one is ours, the others are references. A failure becomes a figure that
/// says why it is missing.
pub fn compare(
    program: &Program,
    places: &[impl Place],
    setting: &Setting,
    progress: &ProgressBar,
) -> Vec<Figure> {
    if let Some(why) = absence(program.needs) {
        return figures(program, setting, &[(CROSSLANE, Err(why))]);
    }
    let outcomes = by_turns(program, places, setting, progress);
    let outcomes: Vec<_> = places.iter().map(|place| place.name()).zip(outcomes).collect();
    figures(program, setting, &outcomes)
}

/// The needed program that is not installed, as a message.
pub(crate) fn absence(needs: &[&str]) -> Option<String> {
    let absent = needs.iter().find(|needed| find(needed).is_none())?;
    Some(format!("{absent} is not installed"))
}

/// Runs `program` at all `places` by turns; returns the results at each.
pub fn by_turns(
    program: &Program,
    places: &[impl Place],
    setting: &Setting,
    progress: &ProgressBar,
) -> Vec<Outcome> {
    let mut trials: Vec<Trial<'_>> = places.iter().map(|place| Trial::begin(program, place)).collect();
    for run in 1..=setting.runs {
        for trial in &mut trials {
            let (place, Setting { runs, remark, .. }) = (trial.place.name(), setting);
            progress.set_message(format!("{}{remark} over {place}, run {run} of {runs}", program.name));
            trial.run(program, setting.effort);
        }
    }
    trials.into_iter().map(Trial::end).collect()
}

/// The results of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// Runs of each metric.
    pub columns: Vec<Vec<f64>>,
    /// The highest steal of a run that counts, percent.
    pub steal: f64,
}

/// Runs of each metric, or why there is none.
pub type Outcome = Result<Runs, String>;

/// One program at one place.
struct Trial<'a> {
    place: &'a dyn Place,
    server: Option<Server>,
    port: u16,
    carried: Option<(u64, u64)>,
    outcome: Outcome,
}

impl<'a> Trial<'a> {
    fn begin(program: &Program, place: &'a dyn Place) -> Self {
        let carried = place.carried();
        let started = place.port().and_then(|port| Ok(((program.serve)(place, port)?, port)));
        match started {
            Ok((server, port)) => {
                let runs = Runs { columns: vec![Vec::new(); program.metrics.len()], steal: 0.0 };
                Self { place, server: Some(server), port, carried, outcome: Ok(runs) }
            }
            Err(error) => Self { place, server: None, port: 0, carried, outcome: Err(format!("{error:#}")) },
        }
    }

    fn run(&mut self, program: &Program, effort: Effort) {
        let Ok(runs) = &mut self.outcome else { return };
        let measured = steady(|| (program.measure)(self.place, self.port, effort));
        match measured {
            Ok((values, _)) if values.iter().any(|&value| value <= 0.0) => {
                self.outcome = Err("the program ran, but nothing got through".to_owned());
            }
            Ok((values, steal)) => {
                runs.steal = runs.steal.max(steal);
                for (column, value) in runs.columns.iter_mut().zip(values) {
                    column.push(value);
                }
            }
            Err(error) => self.outcome = Err(format!("{error:#}")),
        }
    }

    /// Ends the server; what ran past Crosslane at its own place does not count.
    fn end(mut self) -> Outcome {
        drop(self.server.take());
        if let (Some(before), Some(after), Ok(_)) = (self.carried, self.place.carried(), &self.outcome)
            && (after.0 <= before.0 || after.1 <= before.1)
        {
            return Err("no stream carried it: it ran over the kernel's TCP".to_owned());
        }
        self.outcome
    }
}

fn figures(program: &Program, setting: &Setting, outcomes: &[(&str, Outcome)]) -> Vec<Figure> {
    let Some(((_, ours), references)) = outcomes.split_first() else { return Vec::new() };
    let group = format!("{}{}", program.name, setting.remark);
    let steal =
        outcomes.iter().filter_map(|(_, outcome)| Some(outcome.as_ref().ok()?.steal)).reduce(f64::max);
    let sample = |outcome: &Outcome, index: usize| {
        outcome.as_ref().ok().and_then(|runs| Sample::new(runs.columns.get(index)?.clone()))
    };
    let one = |(index, metric): (usize, &Metric)| {
        let mut figure = Figure::new(&group, metric.case, metric.unit, sample(ours, index));
        (figure.missing, figure.steal) = (ours.as_ref().err().cloned(), steal);
        for (name, outcome) in references {
            figure = figure.against(name, sample(outcome, index));
        }
        let Some((least, goal)) = metric.bar.filter(|_| setting.bars) else { return figure.by_turns() };
        let mut against = metric.against.to_owned();
        if let Some(other) = metric.other {
            against = format!("{}, {}", metric.against, program.metrics[other].case);
            let same = references.iter().find(|(name, _)| *name == metric.against);
            figure = figure.against(&against, same.and_then(|(_, outcome)| sample(outcome, other)));
        }
        figure.by_turns().bar(&against, least, goal)
    };
    program.metrics.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Here;
    use crate::program::all;

    #[test]
    fn compare_runs_every_installed_program_over_loopback() {
        let here = [Here::new().unwrap(), Here::new().unwrap()];
        let setting =
            Setting { runs: 1, effort: Effort::Short, bars: true, remark: String::new(), brief: false };
        for program in all() {
            for figure in compare(&program, &here, &setting, &ProgressBar::hidden()) {
                println!("{} {}: {:?} {:?}", figure.group, figure.case, figure.sample, figure.missing);
                let installed = program.needs.iter().all(|needed| find(needed).is_some());
                assert_eq!(figure.sample.is_some(), installed, "{}: {:?}", figure.group, figure.missing);
            }
        }
    }

    #[test]
    fn compare_idle_connections_cost_little_over_loopback() {
        if find("python3").is_none() {
            return println!("skipped: python3 is not installed");
        }
        let percent =
            crate::program::idle(&Here::new().unwrap(), 100, std::time::Duration::from_millis(300), &[])
                .unwrap();
        assert!((0.0..400.0).contains(&percent), "{percent} % of a core");
    }

    #[test]
    fn compare_names_what_is_not_installed() {
        let why = absence(&["sh", "crosslane-no-such-program"]);
        assert_eq!(why.as_deref(), Some("crosslane-no-such-program is not installed"));
        assert_eq!(absence(&["sh"]), None);
    }
}
