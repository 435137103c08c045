//! The forms of a report: a table for people, JSON for programs, Markdown for documents.

use crate::figure::{Bar, Compared, Figure};
use crate::machine::Machine;
use crate::report::Report;
use crate::steal;
use crate::unit::Unit;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A table for a terminal: one block a group, one column a reference.
pub fn table(report: &Report) -> String {
    let groups = groups(report).map(|group| format!("\n{}", columns(&rows(group))));
    [heading(report)].into_iter().chain(groups).chain([notes(report)]).collect()
}

/// What was run and where, and the processors' steal meanwhile, in two lines.
pub fn heading(report: &Report) -> String {
    let Machine { processor, processors, kernel, load, .. } = &report.machine;
    let kept = kept(&report.machine);
    let stolen = report.steal();
    let mark = if stolen > steal::MOST { " (disturbed)" } else { "" };
    format!(
        "{}\n{processor}, {processors} processors, Linux {kernel}, load {load:.1}, steal {stolen:.1} %{mark}{kept}\n",
        report.title
    )
}

/// How processors were kept while it was measured.
fn kept(machine: &Machine) -> String {
    let awake = if machine.awake { ", kept awake" } else { "" };
    let distance = machine.distance_ns.map(|distance| format!(", {distance:.0} ns for a cache line"));
    let slowed = machine.slowed_percent.map(|part| format!(", {part:.0} % of turns on slowed processors"));
    format!("{awake}{}{}", distance.unwrap_or_default(), slowed.unwrap_or_default())
}

/// Rows of cells, the first one of names, as columns that line up.
pub fn columns(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    rows.iter().map(|row| line(row, &widths, "  ")).collect()
}

/// All figures in one table, one line for each metric of each program.
pub fn summary(report: &Report) -> String {
    let mut flat = report.clone();
    for figure in &mut flat.figures {
        figure.case = format!("{}, {}", figure.group, figure.case);
        if let Some(missing) = figure.missing.take() {
            flat.warnings.push(format!("{}: missing: {missing}", figure.group));
        }
        "program".clone_into(&mut figure.group);
    }
    table(&flat)
}

/// The same as Markdown tables.
pub fn markdown(report: &Report) -> String {
    let groups = groups(report).map(|group| format!("\n{}", markdown_columns(&rows(group))));
    [format!("## {}\n", report.title)].into_iter().chain(groups).chain([notes(report)]).collect()
}

/// As [`columns`], in Markdown.
pub fn markdown_columns(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let _ = writeln!(out, "| {} |", line(row, &widths, " | ").trim_end());
        if number == 0 {
            let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            let _ = writeln!(out, "| {} |", rule.join(" | "));
        }
    }
    out
}

/// Everything, every run of every figure too: what [`crate::read`] reads.
///
/// # Errors
/// None: a report has only what JSON can say.
pub fn json(report: &Report) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(report)?;
    let figures = value["figures"].as_array_mut().into_iter().flatten();
    for (json, figure) in figures.zip(&report.figures) {
        let judged = figure.references.iter().filter(|to| to.compared != Compared::Not);
        let ratios = judged.map(|to| (to.name.clone(), figure.ratio(to)));
        json["ratios"] = serde_json::to_value(ratios.collect::<BTreeMap<_, _>>())?;
        json["meets_bar"] = figure.meets_bar().into();
    }
    value["machine"]["steal_percent"] = report.steal().into();
    serde_json::to_string_pretty(&value)
}

/// Figures of one group stand in one table.
fn groups(report: &Report) -> impl Iterator<Item = &[Figure]> {
    report.figures.chunk_by(|one, other| one.group == other.group)
}

/// Heading and rows of one group.
fn rows(group: &[Figure]) -> Vec<Vec<String>> {
    let names = distinct(group.iter().flat_map(|figure| &figure.references).map(|it| &*it.name));
    let barred = group.iter().any(|figure| figure.bar.is_some());
    let mut head = vec![group[0].group.clone(), "unit".to_owned(), "crosslane".to_owned()];
    head.extend(names.iter().flat_map(|name| [(*name).to_owned(), "ratio".to_owned()]));
    head.extend(barred.then(|| "bar".to_owned()));
    let rows = group.iter().map(|figure| row(figure, &names, barred));
    [head].into_iter().chain(rows).collect()
}

/// Each once, in order.
pub fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::HashSet::new();
    all.filter(|&one| seen.insert(one)).collect()
}

fn row(figure: &Figure, names: &[&str], barred: bool) -> Vec<String> {
    let mut row = vec![figure.case.clone(), figure.unit.name().to_owned(), or_dash(figure.median(), number)];
    for name in names {
        let reference = figure.reference(name);
        let ratio = reference.and_then(|to| figure.ratio(to));
        row.push(reference.map_or(String::new(), |to| number(to.sample.median)));
        row.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
    }
    if barred {
        row.push(figure.bar.as_ref().map_or(String::new(), |bar| verdict(figure, bar)));
    }
    row
}

fn verdict(figure: &Figure, bar: &Bar) -> String {
    let (word, Bar { against, bar, goal }) = (figure.verdict(), bar);
    if figure.unit == Unit::PercentOfCore {
        return format!("{word} ({against})");
    }
    let goal = goal.map(|goal| format!(", goal {goal:.3}")).unwrap_or_default();
    format!("{word} (at least {bar:.3} of {against}{goal})")
}

/// A number as a cell; nothing as `-`.
pub fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// With two places behind the point, or `-`.
pub fn two(value: Option<f64>) -> String {
    or_dash(value, |value| format!("{value:.2}"))
}

/// With none, or `-`.
pub fn whole(value: Option<f64>) -> String {
    or_dash(value, |value| format!("{value:.0}"))
}

/// Three significant places, and no more than two behind the point.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    (0..rows[0].len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect()
}

/// The first and the last column of a table stand left, numbers stand right.
fn line(row: &[String], widths: &[usize], between: &str) -> String {
    let mut out = String::new();
    for (column, (cell, &width)) in row.iter().zip(widths).enumerate() {
        if column > 0 {
            out.push_str(between);
        }
        let left = column == 0 || cell.starts_with(char::is_alphabetic) && column + 1 == row.len();
        let _ = if left { write!(out, "{cell:<width$}") } else { write!(out, "{cell:>width$}") };
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Notes for the reader, a line each behind an empty one; nothing if there are none.
pub fn notes(report: &Report) -> String {
    let missing = report
        .figures
        .iter()
        .filter_map(|figure| Some(format!("{}: missing: {}", figure.group, figure.missing.as_ref()?)));
    let mut notes: Vec<String> = missing.chain(report.warnings.iter().cloned()).collect();
    notes.dedup();
    let empty = if notes.is_empty() { "" } else { "\n" };
    empty.to_owned() + &lines(&notes)
}

/// The report's own notes alone.
pub fn warnings(report: &Report) -> String {
    lines(&report.warnings)
}

fn lines(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn report() -> Report {
        let mut report = Report::new("A run");
        report.warnings.clear();
        let sample = |value| Sample::new(vec![value]);
        report.figures.push(
            Figure::new("iperf3", "one stream", Unit::GigabitsPerSecond, sample(80.0))
                .against("veth TCP", sample(19.0))
                .against("loopback TCP", sample(20.0))
                .bar("loopback TCP", 4.0, Some(8.0)),
        );
        let mut absent = Figure::new("nginx", "4 KB", Unit::PerSecond, None);
        absent.missing = Some("wrk is not installed".to_owned());
        report.figures.push(absent);
        report
    }

    #[test]
    fn table_has_each_reference_with_its_ratio() {
        let text = table(&report());
        assert!(text.contains("80.0      19.0   4.21          20.0   4.00  met"), "{text}");
        assert!(text.contains("note: nginx: missing: wrk is not installed"), "{text}");
    }

    #[test]
    fn summary_is_one_table_that_says_what_is_missing() {
        let text = summary(&report());
        assert_eq!(text.matches("crosslane").count(), 1, "{text}");
        assert!(text.contains("iperf3, one stream") && text.contains("note: nginx: missing: wrk"), "{text}");
    }

    #[test]
    fn markdown_has_a_rule_below_the_heading() {
        assert!(markdown(&report()).lines().any(|line| line.starts_with("| -----")));
    }

    #[test]
    fn json_has_ratios_and_verdicts() {
        let value: serde_json::Value = serde_json::from_str(&json(&report()).unwrap()).unwrap();
        assert_eq!(value["figures"][0]["ratios"]["loopback TCP"], 4.0);
        assert_eq!(value["figures"][0]["meets_bar"], true);
        assert_eq!(value["figures"][0]["unit"], "Gb/s");
        assert_eq!(value["figures"][1]["sample"], serde_json::Value::Null);
    }
}
