//! How far medians of ratios move from one result of a command to the next: `crosslane compare` of three results and more.

use super::surroundings;
use crate::export::{columns, number};
use crate::figure::{Figure, Reference};
use crate::report::Report;
use crate::sample::Sample;
use serde::Serialize;
use std::fmt::Write;

/// Results of one command, side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Movement {
    /// Their titles.
    pub titles: Vec<String>,
    /// What counts as moved, percent.
    pub limit: f64,
    /// Every ratio that all of them have, those that move most first.
    pub ratios: Vec<Moved>,
    /// The same of the median of all ratios of an experiment to one reference.
    pub overall: Vec<Overall>,
    /// Ratios that only some have.
    pub only: Vec<String>,
    /// In what the surroundings of the results differ from the first one's, and which were disturbed.
    pub notes: Vec<String>,
}

/// A ratio of a figure to a reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// The figure's group.
    pub group: String,
    /// The figure's case.
    pub case: String,
    /// The reference.
    pub against: String,
    /// The median of each result.
    pub medians: Vec<f64>,
    /// The largest distance of one of them from the median of all, percent of that.
    pub moves: f64,
    /// How well the runs of each result tell its median, percent ([`crate::sample::Sample::known`]).
    pub known: Vec<Option<f64>>,
    /// Whether so far a way is no more than the scatter of the runs: the intervals of the farthest and of the middle one meet. Too few runs
    /// tell nothing of that.
    pub scatters: bool,
}

/// All ratios of an experiment to a reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The experiment, by which the groups of `bench all` begin; the group in other results.
    pub experiment: String,
    /// The reference.
    pub against: String,
    /// How many ratios they are.
    pub ratios: usize,
    /// The median of all ratios of each result.
    pub medians: Vec<f64>,
    /// The largest distance of one of them from the median of all, percent of that.
    pub moves: f64,
}

impl Movement {
    /// Of these results; `limit`: what counts as moved, percent.
    pub fn new(reports: &[Report], limit: f64) -> Self {
        let titles = reports.iter().map(|report| report.title.clone()).collect();
        let mut names: Vec<Name<'_>> = Vec::new();
        for name in reports.iter().flat_map(names_of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let (mut ratios, mut only) = (Vec::new(), Vec::new());
        for name in names {
            let found: Vec<(f64, Option<f64>)> =
                reports.iter().filter_map(|report| name.ratio(report)).collect();
            match name.moved(&found).filter(|_| found.len() == reports.len()) {
                Some(moved) => ratios.push(moved),
                None => only.push(format!("{}, {}, to {}", name.group, name.case, name.against)),
            }
        }
        let overall = Overall::all(&ratios);
        ratios.sort_by(|a, b| b.moves.total_cmp(&a.moves));
        let called: Vec<String> = (1..=reports.len()).map(|number| format!("result {number}")).collect();
        let named: Vec<_> = called.iter().map(String::as_str).zip(reports).collect();
        let notes = surroundings::notes(&named);
        Self { titles, limit, ratios, overall, only, notes }
    }

    /// How many move by less than the limit.
    pub fn steady(&self) -> usize {
        self.ratios.iter().filter(|ratio| ratio.moves < self.limit).count()
    }

    /// How many move by the limit and more, and by no more than their runs scatter.
    pub fn scattered(&self) -> usize {
        self.ratios.iter().filter(|ratio| ratio.moves >= self.limit && ratio.scatters).count()
    }

    /// For a terminal: those that move by the limit and more, and a summary as the last line.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let head = ["ratio", "to", "medians", "moves by", "known to"].map(str::to_owned).to_vec();
        let moved = self.ratios.iter().filter(|ratio| ratio.moves >= self.limit);
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(moved.map(Moved::row)).collect();
        if rows.len() > 1 {
            let _ = writeln!(out, "{}", columns(&rows));
        }
        let head = ["median of all ratios of", "to", "medians", "moves by"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> =
            std::iter::once(head).chain(self.overall.iter().map(Overall::row)).collect();
        if rows.len() > 1 {
            let _ = writeln!(out, "{}", columns(&rows));
        }
        let _ = self.only.iter().try_for_each(|ratio| writeln!(out, "not in all: {ratio}"));
        let _ = self.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"));
        let (steady, all, results) = (self.steady(), self.ratios.len(), self.titles.len());
        let _ = writeln!(
            out,
            "{steady} of {all} ratios moved by less than {} % in {results} results, {} more by no more than their runs scatter",
            self.limit,
            self.scattered()
        );
        out
    }
}

impl Overall {
    /// Of these ratios, in their order.
    fn all(ratios: &[Moved]) -> Vec<Self> {
        let mut all: Vec<(&str, &str, Vec<&Moved>)> = Vec::new();
        for ratio in ratios {
            let experiment = ratio.group.split(": ").next().unwrap_or_default();
            let is_its = |of: &&mut (&str, &str, Vec<&Moved>)| of.0 == experiment && of.1 == ratio.against;
            match all.iter_mut().find(is_its) {
                Some((.., its)) => its.push(ratio),
                None => all.push((experiment, &ratio.against, vec![ratio])),
            }
        }
        all.into_iter().filter_map(|(experiment, against, its)| Self::of(experiment, against, &its)).collect()
    }

    fn of(experiment: &str, against: &str, ratios: &[&Moved]) -> Option<Self> {
        let results = ratios.iter().map(|ratio| ratio.medians.len()).min()?;
        let middle = |result: usize| Sample::new(ratios.iter().map(|ratio| ratio.medians[result]).collect());
        let medians = (0..results).map(|result| Some(middle(result)?.median)).collect::<Option<Vec<_>>>()?;
        let (experiment, against) = (experiment.to_owned(), against.to_owned());
        let moves = moves(&medians)?;
        Some(Self { experiment, against, ratios: ratios.len(), medians, moves })
    }

    fn row(&self) -> Vec<String> {
        let name = format!("{} ({})", self.experiment, self.ratios);
        vec![name, self.against.clone(), numbers(&self.medians), format!("{:.0} %", self.moves)]
    }
}

/// The largest distance from the median of all, percent of that; `None` if that is not above 0.
fn moves(medians: &[f64]) -> Option<f64> {
    let middle = Sample::new(medians.to_vec())?.median;
    let farthest = medians.iter().map(|median| (median - middle).abs()).fold(0.0, f64::max);
    (middle > 0.0).then_some(100.0 * farthest / middle)
}

fn numbers(medians: &[f64]) -> String {
    medians.iter().map(|median| number(*median)).collect::<Vec<_>>().join(", ")
}

impl Moved {
    fn row(&self) -> Vec<String> {
        let name = format!("{}, {}", self.group, self.case);
        let worst = self.known.iter().copied().try_fold(0.0, |most, known| Some(f64::max(most, known?)));
        let known = worst.map_or("-".to_owned(), |percent| format!("{percent:.0} %"));
        vec![name, self.against.clone(), numbers(&self.medians), format!("{:.0} %", self.moves), known]
    }
}

/// What tells a ratio from others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name<'a> {
    group: &'a str,
    case: &'a str,
    against: &'a str,
}

fn names_of(report: &Report) -> impl Iterator<Item = Name<'_>> {
    let of = |figure: &Figure, reference: &Reference| figure.ratio(reference).is_some();
    report.figures.iter().flat_map(move |figure| {
        let references = figure.references.iter().filter(move |reference| of(figure, reference));
        references.map(|it| Name { group: &figure.group, case: &figure.case, against: &it.name })
    })
}

impl Name<'_> {
    /// The ratio in a result, and how well its runs tell it, percent.
    fn ratio(&self, report: &Report) -> Option<(f64, Option<f64>)> {
        let is_it = |figure: &&Figure| figure.group == self.group && figure.case == self.case;
        let figure = report.figures.iter().find(is_it)?;
        let reference = figure.reference(self.against)?;
        Some((figure.ratio(reference)?, figure.ratio_known(reference).map(|known| 100.0 * known)))
    }

    /// Of the ratio in each result; `None` if there is no median above 0.
    fn moved(&self, found: &[(f64, Option<f64>)]) -> Option<Moved> {
        let (medians, known): (Vec<f64>, Vec<_>) = found.iter().copied().unzip();
        let middle = Sample::new(medians.clone())?.median;
        let distance = |of: &(f64, Option<f64>)| (of.0 - middle).abs();
        let (near, far) = (
            found.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?,
            found.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)))?,
        );
        let half = |(ratio, known): (f64, Option<f64>)| Some(ratio * known? / 100.0);
        let scatters =
            half(*near).zip(half(*far)).is_some_and(|(near, farthest)| distance(far) <= near + farthest);
        let [group, case, against] = [self.group, self.case, self.against].map(str::to_owned);
        let moves = moves(&medians)?;
        Some(Moved { group, case, against, medians, moves, known, scatters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Unit;

    /// A result in which one case is so many times as good as its reference, another one twice as good, and a third is missing if `less`.
    fn report(times: f64, less: bool) -> Report {
        let figure = |case: &str, value| {
            let figure = Figure::new("stream", case, Unit::GigabitsPerSecond, Sample::new(vec![value; 3]));
            figure.against("veth TCP", Sample::new(vec![10.0; 3]))
        };
        let mut report = Report::new("bench");
        report.figures = vec![figure("64 KB", 10.0 * times), figure("1 MB", 20.0)];
        if !less {
            report.figures.push(figure("8 B", 1.0));
        }
        report
    }

    #[test]
    fn movement_is_the_largest_distance_from_the_median_of_all() {
        let reports = [2.0, 2.2, 1.9, 2.5, 2.0].map(|times| report(times, false));
        let movement = Movement::new(&reports, 15.0);
        let first = &movement.ratios[0];
        assert_eq!((first.case.as_str(), first.moves.round()), ("64 KB", 25.0));
        assert_eq!((movement.ratios.len(), movement.steady()), (3, 2));
        assert!(movement.only.is_empty());
        let overall = &movement.overall[0];
        assert_eq!((overall.experiment.as_str(), overall.ratios, overall.moves.round()), ("stream", 3, 5.0));
        assert_eq!(overall.medians, [2.0, 2.0, 1.9, 2.0, 2.0]);
        let table = movement.table();
        assert!(table.contains("25 %") && !table.contains("1 MB"), "{table}");
        let summary =
            "2 of 3 ratios moved by less than 15 % in 5 results, 0 more by no more than their runs scatter\n";
        assert!(table.ends_with(summary), "{table}");
    }

    #[test]
    fn movement_no_farther_than_runs_scatter_is_told_apart() {
        let of = |runs: [f64; 4]| {
            let figure = Figure::new("stream", "8 B", Unit::GigabitsPerSecond, Sample::new(runs.to_vec()));
            let mut report = Report::new("bench");
            report.figures = vec![figure.against("veth TCP", Sample::new(vec![10.0; 4])).by_turns()];
            report
        };
        let middle = [10.0, 40.0, 80.0, 160.0];
        let far = |runs| Movement::new(&[of(middle), of(middle), of(runs)], 15.0);
        assert_eq!(
            (far([20.0, 80.0, 120.0, 200.0]).steady(), far([20.0, 80.0, 120.0, 200.0]).scattered()),
            (0, 1)
        );
        assert_eq!(far([999.0, 1000.0, 1000.0, 1001.0]).scattered(), 0);
    }

    #[test]
    fn movement_of_what_some_results_lack_is_not_told() {
        let reports = [report(2.0, false), report(2.0, true), report(2.0, false)];
        let mut far = report(2.0, false);
        far.machine.kernel = "of another release".to_owned();
        let elsewhere = Movement::new(&[reports[0].clone(), far, reports[2].clone()], 15.0);
        assert!(elsewhere.table().contains("result 2 has of another release"), "{}", elsewhere.table());
        let movement = Movement::new(&reports, 15.0);
        assert_eq!((movement.ratios.len(), movement.steady()), (2, 2));
        assert_eq!(movement.only, ["stream, 8 B, to veth TCP"]);
        let nothing = Movement::new(&[Report::new("a"), Report::new("b"), Report::new("c")], 15.0);
        assert!(nothing.ratios.is_empty() && nothing.only.is_empty());
    }
}
