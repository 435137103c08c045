//! All figures of one run.

use crate::figure::Figure;
use crate::machine::Machine;
use crate::sample::Sample;
use crate::steal::{self, Steal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// Version of the form of a report in a file. Another one means other fields, or another meaning of one.
pub const VERSION: u64 = 1;

/// All figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Version of this form: [`VERSION`].
    pub version: u64,
    /// What was run.
    pub title: String,
    /// Version of the crosslane that measured.
    #[serde(default)]
    pub crosslane: String,
    /// The command with its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// When the run began, seconds since 1970 (UTC); 0 if the clock is before that.
    #[serde(default)]
    pub started: u64,
    /// Versions of the programs of others that were run, by package, as far as they are known.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Where.
    pub machine: Machine,
    /// The network that was measured, as pairs of hosts (from 1) that a cable joins; none where there was no such thing.
    #[serde(default)]
    pub cables: Vec<[u16; 2]>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Notes for the reader: noise, missing programs.
    pub warnings: Vec<String>,
    /// What the hypervisor had stolen when the run began; `None` when it has ended.
    #[serde(skip)]
    pub began: Option<Steal>,
}

impl Report {
    /// An empty report of this machine.
    pub fn new(title: impl Into<String>) -> Self {
        let (machine, figures) = (Machine::here(), Vec::new());
        let mut warnings = Vec::new();
        #[expect(clippy::cast_precision_loss, reason = "a number of processors")]
        if machine.load > machine.processors as f64 / 2.0 {
            warnings.push(format!("the machine was busy (load {:.1}) when the run began", machine.load));
        }
        Self {
            version: VERSION,
            title: title.into(),
            crosslane: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            started: UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs()),
            programs: BTreeMap::new(),
            machine,
            cables: Vec::new(),
            figures,
            warnings,
            began: Some(Steal::now()),
        }
    }

    /// What the hypervisor gave to others during the run, until now if it has not ended, percent.
    pub fn steal(&self) -> f64 {
        self.began.map_or(self.machine.steal_percent, Steal::since)
    }

    /// The same report of a run that ends now: its steal is kept, and told if it is much.
    pub fn ended(mut self) -> Self {
        self.machine.steal_percent = self.steal();
        if self.began.take().is_some() && self.machine.steal_percent > steal::MOST {
            let percent = self.machine.steal_percent;
            self.warnings
                .push(format!("the run was disturbed: {percent:.0} % of the processors' time stolen"));
        }
        self
    }

    /// Puts the figures of each group together, groups in the order in which they first appear.
    pub fn gather_groups(&mut self) {
        let mut names: Vec<String> = self.figures.iter().map(|figure| figure.group.clone()).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        self.figures.sort_by_key(|figure| names.iter().position(|name| *name == figure.group));
    }

    /// Adds a warning for each figure whose runs lie far apart, or were disturbed, and one of ratios that runs do not tell well.
    pub fn warn_of_noise(&mut self) {
        for figure in &self.figures {
            let Figure { group, case, steal, sample, .. } = figure;
            if let Some(percent) = steal.filter(|percent| *percent > steal::MOST) {
                self.warnings.push(format!("{group}, {case}: disturbed, {percent:.0} % stolen in a run"));
            }
            if let Some(spread) = sample.as_ref().map(|it| it.spread).filter(|it| *it > Sample::NOISY) {
                let percent = spread * 100.0;
                self.warnings.push(format!("{group}, {case}: noisy, quartiles {percent:.0} % apart"));
            }
        }
        self.warn_of_unknown_ratios();
    }

    /// Adds a note of how many of the ratios are known by the scatter of their runs, if not all are.
    fn warn_of_unknown_ratios(&mut self) {
        let is_known = |figure: &Figure, reference| {
            figure.ratio_known(reference).is_some_and(|known| known <= Sample::NOISY)
        };
        // What was measured once, or computed, tells nothing of that.
        let is_repeated =
            |figure: &Figure| figure.sample.as_ref().is_some_and(|sample| sample.runs.len() > 1);
        let pairs =
            self.figures.iter().flat_map(|figure| figure.references.iter().map(move |of| (figure, of)));
        let known: Vec<bool> = pairs
            .filter(|(figure, reference)| is_repeated(figure) && figure.ratio(reference).is_some())
            .map(|(figure, reference)| is_known(figure, reference))
            .collect();
        let (all, told) = (known.len(), known.iter().filter(|known| **known).count());
        if told < all {
            self.warnings.push(format!(
                "{told} of {all} ratios are known within {:.0} % by the scatter of their runs (95 %): more runs (--runs) tell more",
                100.0 * Sample::NOISY
            ));
        }
    }

    /// The figure of a group and a case.
    pub fn find(&self, group: &str, case: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.group == group && figure.case == case)
    }

    /// Figures whose bar is not met, or could not be judged though they have one.
    pub fn failed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.bar.is_some() && figure.meets_bar() != Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Unit;

    #[test]
    fn report_figure_missing_misses_its_bar() {
        let mut report = Report::new("test");
        report.figures.push(Figure::new("a", "b", Unit::PerSecond, None).bar("tcp", 1.0, None));
        report.figures.push(Figure::failed("transit", &"no lab"));
        assert_eq!(report.failed().count(), 2);
    }

    #[test]
    fn report_says_how_many_ratios_its_runs_tell() {
        let sample = |runs: &[f64]| crate::sample::Sample::new(runs.to_vec());
        let figure = |runs: &[f64]| {
            Figure::new("a", "b", Unit::PerSecond, sample(runs)).against("tcp", sample(&[10.0; 3])).by_turns()
        };
        let notes = |second: &[f64]| {
            let mut report = Report::new("test");
            report.figures = vec![figure(&[20.0, 20.1, 20.0]), figure(second)];
            report.warnings.clear();
            report.warn_of_unknown_ratios();
            report.warnings
        };
        assert!(notes(&[10.0, 20.0, 40.0])[0].starts_with("1 of 2 ratios are known within 15 %"));
        assert!(notes(&[20.0, 20.0, 20.0]).is_empty());
    }

    #[test]
    fn report_keeps_its_environment() {
        let report = Report::new("test").ended();
        assert!(!report.command.is_empty() && !report.crosslane.is_empty() && report.started > 1_700_000_000);
        assert!(report.machine.processors > 0 && !report.machine.kernel.is_empty());
        assert_eq!(report.steal(), report.machine.steal_percent);
    }
}
