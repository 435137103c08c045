//! The charts of a result: which figures stand in one plot, and as what.

use crate::case::{self, Axis, Place};
use crate::plot::{Bars, Chart, Hosts, Lines, Plot, Series};
use crate::sentence;
use crosslane_results::export::distinct;
use crosslane_results::figure::Figure;
use crosslane_results::report::Report;
use crosslane_results::unit::Unit;

/// Most series and rows of a chart: more cannot be told apart or read. The table has the rest.
const SERIES: usize = 8;
const ROWS: usize = 48;
/// Fewest runs whose distribution is drawn.
const MANY: usize = 30;
/// The name of our own series, where the figures give none.
const OURS: &str = "crosslane";

/// All charts of `report`.
pub fn charts(report: &Report) -> Vec<Chart> {
    let mut rest = Vec::new();
    let mut charts: Vec<Chart> = hosts(report).into_iter().collect();
    for group in distinct(report.figures.iter().map(|figure| &*figure.group)) {
        let figures: Vec<&Figure> =
            report.figures.iter().filter(|figure| figure.group == group && figure.sample.is_some()).collect();
        for unit in Unit::ALL {
            let figures: Vec<&Figure> =
                figures.iter().copied().filter(|figure| figure.unit == unit).collect();
            match of_group(group, unit, &figures) {
                Some(chart) => charts.push(chart),
                None => rest.extend(figures),
            }
        }
    }
    charts.extend(rest.iter().filter_map(|figure| distribution(figure)));
    charts.extend(ratios(&rest));
    charts
}

/// The network, where the run had one of its own.
fn hosts(report: &Report) -> Option<Chart> {
    let cables: Vec<(u16, u16)> = report.cables.iter().map(|[one, other]| (*one, *other)).collect();
    let hosts = cables.iter().flat_map(|(one, other)| [*one, *other]).max()?;
    // What a file says is not to be trusted: no network of ours has more.
    if hosts > 64
        || cables.len() > 256
        || cables.iter().any(|(one, other)| one == other || *one == 0 || *other == 0)
    {
        return None;
    }
    let head = vec!["cable".to_owned(), "between".to_owned(), "and".to_owned()];
    let row = |(number, (one, other)): (usize, &(u16, u16))| {
        vec![(number + 1).to_string(), format!("h{one}"), format!("h{other}")]
    };
    let table = [head].into_iter().chain(cables.iter().enumerate().map(row)).collect();
    let says = sentence::hosts(hosts, cables.len());
    Some(Chart {
        title: "The network".to_owned(),
        says,
        plot: Some(Plot::Hosts(Hosts { hosts, cables })),
        table,
    })
}

/// The chart of figures of one group and unit, if they make one.
fn of_group(group: &str, unit: Unit, figures: &[&Figure]) -> Option<Chart> {
    let places: Vec<(Place, &Figure)> =
        figures.iter().filter_map(|figure| Some((case::place(&figure.case)?, *figure))).collect();
    if places.len() >= 3 && places.len() == figures.len() {
        let same = places.iter().all(|(place, _)| place.axis == places[0].0.axis);
        let percentiles = places.iter().all(|(place, _)| case::is_percentile(&place.rest));
        return match (same, percentiles) {
            (true, true) => Some(percentile_lines(group, unit, &places)),
            (true, false) => Some(lines(group, unit, &places)),
            _ => None,
        };
    }
    let is_of_functions = [Unit::Cycles, Unit::ThousandClocks].contains(&unit) && figures.len() >= 3;
    is_of_functions.then(|| bars(group, unit, figures))
}

/// Values by size, cables or lanes, ours by the rest of the case, references dashed.
fn lines(group: &str, unit: Unit, places: &[(Place, &Figure)]) -> Chart {
    let axis = places[0].0.axis;
    let rests = distinct(places.iter().map(|(place, _)| &*place.rest));
    let mut series: Vec<Series> = rests
        .iter()
        .map(|rest| {
            let of = places.iter().filter(|(place, _)| place.rest == *rest);
            let points = of.filter_map(|(place, figure)| Some((place.at, figure.median()?)));
            let name = if rest.is_empty() { OURS } else { rest };
            Series { name: name.to_owned(), reference: false, points: points.collect() }
        })
        .collect();
    series.extend(references(places));
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        one.points.dedup_by(|a, b| a.0 == b.0);
    }
    let mut marks: Vec<f64> = series.iter().flat_map(|one| one.points.iter().map(|point| point.0)).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let marks: Vec<(f64, String)> = marks.into_iter().map(|at| (at, axis.name(at))).collect();
    let table = table(axis.label(), unit, &marks, &series);
    let says = sentence::lines(unit, axis, &series);
    series.truncate(SERIES);
    let plot = Lines {
        below: axis.label().to_owned(),
        beside: unit.name().to_owned(),
        marks,
        logarithmic: axis == Axis::Size,
        logarithmic_values: is_wide(&series),
        series,
    };
    Chart { title: group.to_owned(), says, plot: Some(Plot::Lines(plot)), table }
}

/// Each reference's values: one for all ways of ours.
fn references(places: &[(Place, &Figure)]) -> Vec<Series> {
    let names = distinct(places.iter().flat_map(|(_, figure)| &figure.references).map(|it| &*it.name));
    let series = |name: &&str| {
        let points = places
            .iter()
            .filter_map(|(place, figure)| Some((place.at, figure.reference(name)?.sample.median)))
            .collect();
        Series { name: (*name).to_owned(), reference: true, points }
    };
    names.iter().map(series).collect()
}

/// Times by percentile: a line for each size, ours and the reference's.
fn percentile_lines(group: &str, unit: Unit, places: &[(Place, &Figure)]) -> Chart {
    let axis = places[0].0.axis;
    let ranks = distinct(places.iter().map(|(place, _)| &*place.rest));
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let marks: Vec<(f64, String)> =
        ranks.iter().enumerate().map(|(rank, name)| (rank as f64, (*name).to_owned())).collect();
    let at = |place: &Place| marks.iter().find(|(_, name)| *name == place.rest).map_or(0.0, |(at, _)| *at);
    let mut sizes: Vec<f64> = places.iter().map(|(place, _)| place.at).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let mut series = Vec::new();
    for size in sizes {
        let of: Vec<_> = places.iter().filter(|(place, _)| place.at == size).collect();
        let name = axis.name(size);
        let points = of.iter().filter_map(|(place, figure)| Some((at(place), figure.median()?))).collect();
        series.push(Series { name: name.clone(), reference: false, points });
        let reference = of.iter().find_map(|(_, figure)| figure.references.first());
        if let Some(reference) = reference {
            let value = |figure: &Figure| Some(figure.reference(&reference.name)?.sample.median);
            let points = of.iter().filter_map(|(place, figure)| Some((at(place), value(figure)?))).collect();
            series.push(Series { name: format!("{name}, {}", reference.name), reference: true, points });
        }
    }
    let table = table("percentile", unit, &marks, &series);
    let says = sentence::percentiles(unit, &marks, &series);
    series.truncate(SERIES);
    let plot = Lines {
        below: "percentile of messages".to_owned(),
        beside: unit.name().to_owned(),
        marks,
        logarithmic: false,
        logarithmic_values: is_wide(&series),
        series,
    };
    Chart { title: group.to_owned(), says, plot: Some(Plot::Lines(plot)), table }
}

/// Whether small values could not be told apart beside large ones.
fn is_wide(series: &[Series]) -> bool {
    let values = || series.iter().flat_map(|one| one.points.iter().map(|point| point.1));
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    least > 0.0 && most / least > 30.0
}

/// Cycles of functions as bars.
fn bars(group: &str, unit: Unit, figures: &[&Figure]) -> Chart {
    let names = distinct(figures.iter().flat_map(|figure| &figure.references).map(|it| &*it.name));
    let series: Vec<String> =
        [OURS].iter().chain(&names).take(SERIES).map(|name| (*name).to_owned()).collect();
    let row = |figure: &&Figure| {
        let theirs = series[1..].iter().map(|name| Some(figure.reference(name)?.sample.median));
        (figure.case.clone(), [figure.median()].into_iter().chain(theirs).collect())
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = figures.iter().map(row).collect();
    let bars = Bars { unit: unit.name().to_owned(), series, rows, line: None, logarithmic: false };
    let (says, table) = (sentence::functions(unit, &bars.rows), bars_table("part", &bars));
    let rows = bars.rows.iter().take(ROWS).cloned().collect();
    Chart { title: group.to_owned(), says, plot: Some(Plot::Bars(Bars { rows, ..bars })), table }
}

/// How the runs of a figure with many of them are distributed.
fn distribution(figure: &Figure) -> Option<Chart> {
    let sample = figure.sample.as_ref().filter(|sample| sample.runs.len() >= MANY)?;
    let samples = [(OURS, false, sample)].into_iter();
    let theirs = figure.references.iter().map(|it| (&*it.name, true, &it.sample));
    let samples: Vec<_> = samples.chain(theirs.filter(|(_, _, sample)| sample.runs.len() >= MANY)).collect();
    let parts: [f64; 9] = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0];
    let series: Vec<Series> = samples
        .into_iter()
        .map(|(name, reference, sample)| {
            let points = parts.iter().map(|part| (*part, sample.at(part / 100.0))).collect();
            Series { name: name.to_owned(), reference, points }
        })
        .collect();
    let marks: Vec<(f64, String)> = parts.iter().map(|part| (*part, format!("{part:.0}"))).collect();
    let table = table("percent of runs", figure.unit, &marks, &series);
    let says = sentence::distribution(figure.unit, sample.runs.len(), &series);
    let shown = [0.0, 25.0, 50.0, 75.0, 100.0];
    let lines = Lines {
        below: "percent of runs at or below".to_owned(),
        beside: figure.unit.name().to_owned(),
        marks: marks.into_iter().filter(|(at, _)| shown.contains(at)).collect(),
        logarithmic: false,
        logarithmic_values: is_wide(&series),
        series,
    };
    let title = format!("{}, {}: all runs", figure.group, figure.case);
    Some(Chart { title, says, plot: Some(Plot::Lines(lines)), table })
}

/// All that stands on no axis: how many times better than each reference, and a table of the values.
fn ratios(figures: &[&Figure]) -> Option<Chart> {
    if figures.is_empty() {
        return None;
    }
    let foreign = figures.iter().flat_map(|figure| &figure.references).filter(|it| it.is_foreign());
    let series: Vec<String> =
        distinct(foreign.map(|it| &*it.name)).into_iter().take(SERIES).map(str::to_owned).collect();
    let row = |figure: &&Figure| {
        let ratios: Vec<Option<f64>> = series
            .iter()
            .map(|name| {
                figure.ratio(figure.reference(name)?).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            })
            .collect();
        let some = ratios.iter().any(Option::is_some);
        some.then(|| (format!("{}, {}", figure.group, figure.case), ratios))
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = figures.iter().filter_map(row).take(ROWS).collect();
    let says = sentence::ratios(&rows, &series);
    let line = Some((1.0, "equal".to_owned()));
    let bars = Bars { unit: "times better".to_owned(), series, rows, line, logarithmic: true };
    let plot = (!bars.rows.is_empty()).then_some(Plot::Bars(bars));
    Some(Chart { title: "Crosslane beside others".to_owned(), says, plot, table: values(figures) })
}

/// Values of figures with those of their references.
fn values(figures: &[&Figure]) -> Vec<Vec<String>> {
    let names = distinct(figures.iter().flat_map(|figure| &figure.references).map(|it| &*it.name));
    let mut head: Vec<String> = ["metric", "unit", OURS].map(str::to_owned).to_vec();
    head.extend(names.iter().map(|name| (*name).to_owned()));
    let row = |figure: &&Figure| {
        let mut row = vec![format!("{}, {}", figure.group, figure.case), figure.unit.name().to_owned()];
        row.push(sentence::value(figure.median()));
        row.extend(
            names.iter().map(|name| sentence::value(figure.reference(name).map(|it| it.sample.median))),
        );
        row
    };
    [head].into_iter().chain(figures.iter().map(row)).collect()
}

/// A row for each mark, a column for each series.
fn table(what: &str, unit: Unit, marks: &[(f64, String)], series: &[Series]) -> Vec<Vec<String>> {
    let named = |one: &Series| format!("{}, {}", one.name, unit.name());
    let head = [what.to_owned()].into_iter().chain(series.iter().map(named)).collect();
    let row = |(at, name): &(f64, String)| {
        let value = |one: &Series| one.points.iter().find(|point| point.0 == *at).map(|point| point.1);
        [name.clone()].into_iter().chain(series.iter().map(|one| sentence::value(value(one)))).collect()
    };
    [head].into_iter().chain(marks.iter().map(row)).collect()
}

fn bars_table(what: &str, bars: &Bars) -> Vec<Vec<String>> {
    let named = |name: &String| format!("{name}, {}", bars.unit);
    let head = [what.to_owned()].into_iter().chain(bars.series.iter().map(named)).collect();
    let row = |(name, values): &(String, Vec<Option<f64>>)| {
        [name.clone()].into_iter().chain(values.iter().map(|it| sentence::value(*it))).collect()
    };
    [head].into_iter().chain(bars.rows.iter().map(row)).collect()
}
