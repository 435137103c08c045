//! Which figures of two results belong together, and which of their values are compared.

use super::contrast::Contrast;
use super::ranks::Known;
use crate::figure::{Compared, Figure, Reference};
use crate::report::Report;
use crate::unit::Unit;
use std::collections::HashMap;

/// What a figure is found by: group, case, unit, and how many of the same stand before it.
type Key<'a> = (&'a str, &'a str, Unit, usize);

/// Figures of both results, then those of A alone and those of B alone, each in their order.
#[derive(Debug)]
pub(super) struct Paired<'a> {
    pub(super) both: Vec<[&'a Figure; 2]>,
    pub(super) only: [Vec<&'a Figure>; 2],
}

/// Pairs the figures of `a` and `b`.
pub(super) fn paired<'a>(a: &'a Report, b: &'a Report) -> Paired<'a> {
    let mut others: HashMap<Key<'a>, &Figure> = keyed(b).collect();
    let (mut both, mut only_a) = (Vec::new(), Vec::new());
    for (key, figure) in keyed(a) {
        match others.remove(&key) {
            Some(other) => both.push([figure, other]),
            None => only_a.push(figure),
        }
    }
    let only_b = keyed(b).filter(|(key, _)| others.contains_key(key)).map(|(_, figure)| figure).collect();
    Paired { both, only: [only_a, only_b] }
}

fn keyed(report: &Report) -> impl Iterator<Item = (Key<'_>, &Figure)> {
    let mut seen: HashMap<_, usize> = HashMap::new();
    report.figures.iter().map(move |figure| {
        let (group, case, unit) = (figure.group.as_str(), figure.case.as_str(), figure.unit);
        let before = seen.entry((group, case, unit)).or_default();
        *before += 1;
        ((group, case, unit, *before), figure)
    })
}

/// Why two samples cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// One was not measured.
    Missing,
    /// A value is 0 or less: it has no ratio to others.
    NotPositive,
    /// One has a single run: nothing is known of how it scatters.
    SingleRun,
}

/// The contrast of two figures that belong together, and the name of the reference to which the ratios of both are compared.
pub(super) fn contrast(
    pair: [&Figure; 2],
    values: bool,
    known: &mut Known,
) -> (Option<String>, Result<Contrast, Unfit>) {
    let common = if values { None } else { common(pair) };
    let name = common.map(|[reference, _]| reference.name.clone());
    let logs = [0, 1].map(|side| logs(pair[side], common.map(|both| both[side])));
    (name, of_logs(logs, known))
}

fn of_logs(logs: [Result<Vec<f64>, Unfit>; 2], known: &mut Known) -> Result<Contrast, Unfit> {
    let [a, b] = logs;
    Contrast::new(&a?, &b?, known).ok_or(Unfit::SingleRun)
}

/// The first reference of both that a change of Crosslane leaves as it is, and that was measured as often as the figure: run by run,
/// so that what disturbs a run is in both.
fn common([a, b]: [&Figure; 2]) -> Option<[&Reference; 2]> {
    let fits = |figure: &Figure, reference: &Reference| {
        let runs = figure.sample.as_ref().map(|sample| sample.runs.len());
        runs == Some(reference.sample.runs.len()) && reference.sample.runs.iter().all(|run| *run > 0.0)
    };
    let mut fitting = a.references.iter().filter(|reference| {
        reference.is_foreign() && reference.compared != Compared::Not && fits(a, reference)
    });
    fitting.find_map(|one| {
        let other = b.reference(&one.name).filter(|other| fits(b, other))?;
        Some([one, other])
    })
}

/// Logarithms of a figure's runs, or of their ratios to those of `reference`.
fn logs(figure: &Figure, reference: Option<&Reference>) -> Result<Vec<f64>, Unfit> {
    let runs = &figure.sample.as_ref().ok_or(Unfit::Missing)?.runs;
    if runs.iter().any(|run| *run <= 0.0) {
        return Err(Unfit::NotPositive);
    }
    let theirs = reference.map(|reference| &reference.sample.runs);
    let base = |at: usize| theirs.map_or(0.0, |runs| runs[at].ln());
    Ok(runs.iter().enumerate().map(|(at, run)| run.ln() - base(at)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn sample(runs: &[f64]) -> Option<Sample> {
        Sample::new(runs.to_vec())
    }

    fn of(pair: [&Figure; 2], values: bool) -> (Option<String>, Result<Contrast, Unfit>) {
        contrast(pair, values, &mut Known::default())
    }

    fn figure(case: &str, runs: &[f64]) -> Figure {
        Figure::new("g", case, Unit::PerSecond, sample(runs))
    }

    #[test]
    fn pair_is_of_one_group_case_and_unit_and_the_same_place_among_equals() {
        let report = |figures: &[(&str, f64)]| {
            let mut report = Report::new("x");
            report.figures = figures.iter().map(|(case, value)| figure(case, &[*value])).collect();
            report
        };
        let (a, b) =
            (report(&[("x", 1.0), ("y", 2.0), ("x", 3.0)]), report(&[("z", 9.0), ("x", 4.0), ("y", 5.0)]));
        let Paired { both, only } = paired(&a, &b);
        let values: Vec<_> = both.iter().map(|pair| pair.map(|figure| figure.median().unwrap())).collect();
        assert_eq!(values, [[1.0, 4.0], [2.0, 5.0]]);
        assert_eq!(
            only.map(|only| only.iter().map(|figure| figure.median().unwrap()).collect::<Vec<_>>()),
            [vec![3.0], vec![9.0]]
        );
    }

    #[test]
    fn pair_is_compared_by_ratios_of_runs_to_what_does_not_change() {
        // The machine was twice as fast in B.
        let a = figure("x", &[10.0, 20.0, 10.0])
            .against("1 cable", sample(&[1.0; 3]))
            .against("veth TCP", sample(&[1.0, 2.0, 1.0]));
        let b = figure("x", &[20.0, 20.0, 20.0])
            .against("veth TCP", sample(&[2.0; 3]))
            .against("1 cable", sample(&[1.0; 3]));
        let (name, found) = of([&a, &b], false);
        assert_eq!((name.as_deref(), found.unwrap().difference()), (Some("veth TCP"), 0.0));
        let (name, found) = of([&a, &b], true);
        assert!(name.is_none() && found.unwrap().difference() > 0.4);
    }

    #[test]
    fn pair_uses_no_reference_of_another_number_of_runs() {
        let by = |runs: &[f64], theirs: &[f64]| figure("x", runs).against("veth TCP", sample(theirs));
        assert_eq!(of([&by(&[1.0, 2.0], &[1.0]), &by(&[1.0, 2.0], &[1.0])], false).0, None);
        assert_eq!(of([&by(&[1.0, 2.0], &[1.0, 0.0]), &by(&[1.0, 2.0], &[1.0, 1.0])], false).0, None);
    }

    #[test]
    fn pair_that_cannot_be_compared_says_why() {
        let unfit = |a: &Figure, b: &Figure| of([a, b], false).1.unwrap_err();
        let good = figure("x", &[1.0, 2.0]);
        assert_eq!(unfit(&good, &Figure::new("g", "x", Unit::PerSecond, None)), Unfit::Missing);
        assert_eq!(unfit(&figure("x", &[0.0, 1.0]), &good), Unfit::NotPositive);
        assert_eq!(unfit(&good, &figure("x", &[1.0])), Unfit::SingleRun);
    }
}
