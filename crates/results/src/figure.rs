//! The result of a measurement: one struct for all, however it was measured and is shown.

use crate::sample::Sample;
use crate::unit::Unit;
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// A reference value, from the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Its name: "loopback TCP", "bare ring".
    pub name: String,
    /// Its value.
    pub sample: Sample,
    /// How the figure is compared with it.
    pub compared: Compared,
}

/// How a figure is compared with a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// Their runs took turns: the ratio is the median of the ratios of single turns, so that what disturbs both at a time
    /// does not count.
    ByTurns,
    /// The ratio is that of their medians.
    #[default]
    ByMedians,
    /// It only stands beside the figure: of extremes, for instance, which are of the moment, a ratio would mean nothing.
    Not,
}

impl Reference {
    /// Whether it is the machine's own limit or a program of others, so that a change of Crosslane leaves it as it is.
    /// Others are Crosslane in another arrangement: fewer cables, another mode.
    pub fn is_foreign(&self) -> bool {
        let Self { name, .. } = self;
        name.contains("TCP")
            || name.starts_with("ntb_")
            || name.starts_with("scratchpads")
            || ["bare ring", "private memcpy"].contains(&name.as_str())
            || name.ends_with("a line's round trip")
    }
}

/// How good a figure must be, as a ratio to one of its references. A ratio is above 1 where we are better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    /// Name of the reference.
    pub against: String,
    /// Least ratio.
    pub bar: f64,
    /// The ratio that we want, if it is more.
    pub goal: Option<f64>,
}

/// One thing measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The program or the part of `perf`.
    pub group: String,
    /// The case within it.
    pub case: String,
    /// Unit of all numbers of this figure.
    pub unit: Unit,
    /// What Crosslane reached.
    pub sample: Option<Sample>,
    /// Why there is no sample, in one line.
    pub missing: Option<String>,
    /// The references.
    pub references: Vec<Reference>,
    /// The bar.
    pub bar: Option<Bar>,
    /// The highest steal in one of its runs, percent, where each run was looked at.
    pub steal: Option<f64>,
}

impl Figure {
    /// A figure without references.
    pub fn new(group: &str, case: impl Into<String>, unit: Unit, sample: Option<Sample>) -> Self {
        let missing = sample.is_none().then(|| "nothing was measured".to_owned());
        let (group, case, references) = (group.to_owned(), case.into(), Vec::new());
        Self { group, case, unit, sample, missing, references, bar: None, steal: None }
    }

    /// A figure in place of all those of a part that failed: it misses its bar.
    pub fn failed(group: &str, why: &impl Display) -> Self {
        let figure = Self::new(group, "all", Unit::PerSecond, None).bar("any figure", 1.0, None);
        figure.without(Some(format!("{why:#}")))
    }

    /// The same figure with the reference `sample`, if there is one.
    pub fn against(self, name: &str, sample: Option<Sample>) -> Self {
        self.with(name, sample, Compared::ByMedians)
    }

    /// The same figure with `sample` beside it, if there is one, without a ratio.
    pub fn beside(self, name: &str, sample: Option<Sample>) -> Self {
        self.with(name, sample, Compared::Not)
    }

    fn with(mut self, name: &str, sample: Option<Sample>, compared: Compared) -> Self {
        self.references.extend(sample.map(|sample| Reference { name: name.to_owned(), sample, compared }));
        self
    }

    /// The same figure, which is missing for a reason if there is one.
    pub fn without(mut self, why: Option<String>) -> Self {
        self.missing = why.or(self.missing);
        self
    }

    /// The same figure with a bar.
    pub fn bar(mut self, against: &str, bar: f64, goal: Option<f64>) -> Self {
        self.bar = Some(Bar { against: against.to_owned(), bar, goal });
        self
    }

    /// The same figure, whose runs took turns with those of the references that it has by now.
    pub fn by_turns(mut self) -> Self {
        let compared = self.references.iter_mut().filter(|it| it.compared == Compared::ByMedians);
        compared.for_each(|reference| reference.compared = Compared::ByTurns);
        self
    }

    /// The ratios of single turns, if this and `reference` took turns and no run failed.
    pub fn ratios(&self, reference: &Reference) -> Option<Sample> {
        let (ours, theirs) = (&self.sample.as_ref()?.runs, &reference.sample.runs);
        if reference.compared != Compared::ByTurns || ours.len() != theirs.len() {
            return None;
        }
        Sample::new(ours.iter().zip(theirs).map(|(ours, theirs)| self.unit.ratio(*ours, *theirs)).collect())
    }

    /// How many times better than `reference` this is; below 1 where it is worse. `None` of one that only stands beside it.
    pub fn ratio(&self, reference: &Reference) -> Option<f64> {
        if reference.compared == Compared::Not {
            return None;
        }
        if let Some(ratios) = self.ratios(reference) {
            return Some(ratios.median);
        }
        let (ours, theirs) = (self.median()?, reference.sample.median);
        let ratio = self.unit.ratio(ours, theirs);
        if ours == theirs { Some(1.0) } else { ratio.is_finite().then_some(ratio) }
    }

    /// How well the runs tell this ratio: half the width of its interval of 95 %, as a part of it ([`Sample::known`]).
    pub fn ratio_known(&self, reference: &Reference) -> Option<f64> {
        if let Some(ratios) = self.ratios(reference) {
            return ratios.known();
        }
        let ours = self.sample.as_ref().filter(|_| reference.compared != Compared::Not)?.known()?;
        // A limit is one number, which has no scatter.
        let theirs = if reference.sample.runs.len() == 1 { 0.0 } else { reference.sample.known()? };
        Some(ours.hypot(theirs))
    }

    /// The median of its sample.
    pub fn median(&self) -> Option<f64> {
        Some(self.sample.as_ref()?.median)
    }

    /// The reference of this name.
    pub fn reference(&self, name: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.name == name)
    }

    /// The ratios of single turns for the bar.
    pub fn bar_ratios(&self) -> Option<Sample> {
        self.ratios(self.reference(&self.bar.as_ref()?.against)?)
    }

    /// The ratio for the bar.
    pub fn bar_ratio(&self) -> Option<f64> {
        self.ratio(self.reference(&self.bar.as_ref()?.against)?)
    }

    /// Whether the bar is met; `None` if there is none, or nothing to compare.
    pub fn meets_bar(&self) -> Option<bool> {
        Some(self.bar_ratio()? >= self.bar.as_ref()?.bar)
    }

    /// The outcome of the bar, as a message.
    pub fn verdict(&self) -> &'static str {
        match self.meets_bar() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(runs: &[f64]) -> Option<Sample> {
        Sample::new(runs.to_vec())
    }

    #[test]
    fn figure_ratio_above_one_is_better_in_any_unit() {
        let rate = Figure::new("a", "b", Unit::PerSecond, sample(&[30.0])).against("tcp", sample(&[10.0]));
        let time = Figure::new("a", "b", Unit::Microseconds, sample(&[2.0])).against("tcp", sample(&[50.0]));
        assert_eq!(rate.ratio(&rate.references[0]), Some(3.0));
        assert_eq!(time.ratio(&time.references[0]), Some(25.0));
        assert_eq!(time.clone().bar("tcp", 25.0, Some(50.0)).meets_bar(), Some(true));
        assert_eq!(time.bar("tcp", 26.0, None).meets_bar(), Some(false));
    }

    #[test]
    fn figure_turns_are_compared_one_by_one() {
        let sample = |runs: &[f64]| Sample::new(runs.to_vec());
        let figure = |runs: &[f64]| {
            let ours = Figure::new("a", "b", Unit::MegabytesPerSecond, sample(runs));
            ours.against("other", sample(&[10.0, 40.0, 40.0])).by_turns().bar("other", 0.9, None)
        };
        // Twice in the machine's slow state, and the other one once.
        let ours = figure(&[10.0, 20.0, 40.0]);
        assert_eq!((ours.bar_ratio(), ours.bar_ratios().unwrap().runs), (Some(1.0), vec![1.0, 0.5, 1.0]));
        assert_eq!(figure(&[10.0, 20.0]).bar_ratio(), Some(15.0 / 40.0), "a run failed");
    }

    #[test]
    fn figure_ratio_is_known_as_well_as_its_runs_tell() {
        let (ours, theirs) = ([90.0, 100.0, 110.0, 100.0], [9.0, 10.0, 11.0, 10.0]);
        let figure = |reference: &[f64]| {
            Figure::new("a", "b", Unit::PerSecond, sample(&ours)).against("other", sample(reference))
        };
        let known = |figure: &Figure| figure.ratio_known(&figure.references[0]);
        assert!(known(&figure(&theirs).by_turns()).unwrap() < 1e-9, "each turn has the same ratio");
        let apart = known(&figure(&theirs)).unwrap();
        let limit = known(&figure(&[10.0])).unwrap();
        assert!((apart / limit - std::f64::consts::SQRT_2).abs() < 1e-9, "{apart} {limit}");
        assert_eq!(known(&figure(&[10.0, 11.0])), None);
    }

    #[test]
    fn figure_has_no_ratio_to_what_stands_beside_it() {
        let longest = Figure::new("group", "case", Unit::Nanoseconds, sample(&[1.0, 2.0, 3.0]));
        let longest = longest.beside("bare ring", sample(&[2.0, 4.0, 6.0])).by_turns();
        let reference = &longest.references[0];
        assert_eq!(longest.ratio(reference), None);
        assert_eq!(longest.ratios(reference), None);
        assert_eq!(longest.ratio_known(reference), None);
    }

    #[test]
    fn figure_reference_is_foreign_if_no_change_of_ours_moves_it() {
        let is = |name: &str| {
            Reference {
                name: name.to_owned(),
                sample: sample(&[1.0]).unwrap(),
                compared: Compared::ByMedians,
            }
            .is_foreign()
        };
        let foreign = ["veth TCP", "loopback TCP", "loopback TCP, traced", "bare ring", "ntb_netdev"];
        assert!(foreign.into_iter().chain(["half a line's round trip", "private memcpy"]).all(is));
        assert!(!["1 cable", "best forced mode", "bcopy", "a pair alone", "at 1 MB"].into_iter().any(is));
    }
}
