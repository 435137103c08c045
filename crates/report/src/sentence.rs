//! What a plot shows, in plain sentences.

use crate::case::Axis;
use crate::plot::Series;
use crosslane_results::export::{number, or_dash};
use crosslane_results::unit::Unit;

/// A value as people read it.
pub(crate) fn value(value: Option<f64>) -> String {
    or_dash(value, number)
}

/// Of a network.
pub(crate) fn hosts(hosts: u16, cables: usize) -> String {
    format!("{hosts} hosts, joined by {cables} {}.", if cables == 1 { "cable" } else { "cables" })
}

/// Of values over an axis: our best, and how it stands to each reference there.
pub(crate) fn lines(unit: Unit, axis: Axis, series: &[Series]) -> String {
    let ours = series.iter().filter(|one| !one.reference && !one.points.is_empty());
    let best = ours.flat_map(|one| one.points.iter().map(move |point| (one, point)));
    let better = |a: f64, b: f64| if unit.more_is_better() { a.total_cmp(&b) } else { b.total_cmp(&a) };
    let Some((one, &(at, best))) = best.max_by(|a, b| better(a.1.1, b.1.1)) else {
        return "Nothing of ours was measured.".to_owned();
    };
    let extreme = if unit.more_is_better() { "highest" } else { "lowest" };
    let at_name = match axis {
        Axis::Size => format!("at {}", axis.name(at)),
        Axis::Cables => format!("at {} on the way", counted(at, "cable")),
        Axis::Lanes => format!("at {}", counted(at, "lane")),
    };
    let mut says =
        format!("The {extreme} value of {} is {} {}, {at_name}", one.name, number(best), unit.name());
    let theirs = series.iter().filter(|one| one.reference);
    let beside: Vec<String> = theirs
        .filter_map(|reference| {
            let (_, theirs) = reference.points.iter().find(|point| point.0 == at)?;
            Some(format!("{} there: {} ({})", reference.name, number(*theirs), ratio(unit, best, *theirs)?))
        })
        .collect();
    if !beside.is_empty() {
        says.push_str("; ");
        says.push_str(&beside.join("; "));
    }
    says + "."
}

fn counted(at: f64, thing: &str) -> String {
    format!("{at:.0} {thing}{}", if at == 1.0 { "" } else { "s" })
}

/// How ours stands to theirs.
fn ratio(unit: Unit, ours: f64, theirs: f64) -> Option<String> {
    let ratio = if unit.more_is_better() { ours / theirs } else { theirs / ours };
    let ratio = Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    Some(format!("Crosslane is {} times as {}", number(ratio), good(unit)))
}

fn good(unit: Unit) -> &'static str {
    if unit.is_of_speed() { "fast" } else { "good" }
}

/// Of percentiles: the median and the last one of each of our lines.
pub(crate) fn percentiles(unit: Unit, marks: &[(f64, String)], series: &[Series]) -> String {
    let last = marks.last().map_or("", |(_, name)| name);
    let says = |one: &Series| {
        let (first, end) = (one.points.first()?.1, one.points.last()?.1);
        let begin = &marks.first()?.1;
        Some(format!(
            "{}: {} {unit} at {begin}, {} {unit} at {last}.",
            one.name,
            number(first),
            number(end),
            unit = unit.name()
        ))
    };
    let all: Vec<String> = series.iter().filter(|one| !one.reference).filter_map(says).collect();
    all.join(" ")
}

/// Of all runs of a figure.
pub(crate) fn distribution(unit: Unit, runs: usize, series: &[Series]) -> String {
    let says = |one: &Series| {
        let at = |part: f64| value(one.points.iter().find(|point| point.0 == part).map(|point| point.1));
        let (low, high, least, most) = (at(25.0), at(75.0), at(0.0), at(100.0));
        format!(
            "Half of the runs of {} lie between {low} and {high} {}, all between {least} and {most}.",
            one.name,
            unit.name()
        )
    };
    let all: Vec<String> = series.iter().map(says).collect();
    format!("{runs} runs. {}", all.join(" "))
}

/// Of functions: the largest parts.
pub(crate) fn functions(unit: Unit, rows: &[(String, Vec<Option<f64>>)]) -> String {
    let mut ours: Vec<(&str, f64)> =
        rows.iter().filter_map(|(name, values)| Some((&**name, (*values.first()?)?))).collect();
    ours.sort_by(|a, b| b.1.total_cmp(&a.1));
    let largest: Vec<String> = ours
        .iter()
        .take(3)
        .map(|(name, value)| format!("{name} ({} {})", number(*value), unit.name()))
        .collect();
    format!("The largest of ours: {}. Less is better.", largest.join(", "))
}

/// Of ratios: where we are better, and where not.
pub(crate) fn ratios(rows: &[(String, Vec<Option<f64>>)], series: &[String]) -> String {
    let mut says = Vec::new();
    for (column, name) in series.iter().enumerate() {
        let of: Vec<(&str, f64)> =
            rows.iter().filter_map(|(row, values)| Some((&**row, values[column]?))).collect();
        let better = of.iter().filter(|(_, ratio)| *ratio > 1.0).count();
        let worst = of.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((row, ratio)) = worst {
            let most = of.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
            says.push(format!(
                "Better than {name} in {better} of {}, by up to {} times; the least is {row} ({ratio:.2} times).",
                of.len(),
                number(most)
            ));
        }
    }
    if says.is_empty() { "Values without a reference.".to_owned() } else { says.join(" ") }
}
