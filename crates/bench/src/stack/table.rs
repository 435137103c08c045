//! The report as the study's tables: functions down, one block a size, with the study's own figures at the right.

use super::STUDY;
use super::part::whole;
use crate::export::{distinct, heading, two, warnings, whole as whole_number};
use crate::figure::{Bar, Figure, Report};
use std::fmt::Write;

/// What may be compared with what.
const COMPARE: &str = "\
Columns of cycles are of this machine and of one run: they may be compared with each other, function by function where
both have one. Ours are counted, and hold the counter's own cycles and the time in which another program had the
processor; since a processor does several things at a time, the end of a short copy counts as the function after it. The
kernel's are sampled, so that parts of less than a hundredth are rough, or traced, and then hold the tracer's own cycles.
Lines are medians each for itself: they need not add up. The study's column is in thousands of clocks of other processors
(1.8 GHz, 32 bits), of another kernel (2.4.7) and of a real cable, each host for itself: its shares of a total may be
compared with ours, its numbers may not. TCP's checksums, which the study's copies make on the way, are left out on
loopback and veth.";

/// Width of a column of numbers and shares, at least.
const WIDTH: usize = 12;

/// The report for a terminal.
pub fn table(report: &Report) -> String {
    let mut out = heading(report);
    for size in distinct(report.figures.iter().map(|figure| parts(figure).0)) {
        out.push('\n');
        let columns = columns(report, size);
        line(&mut out, &format!("{size}, cycles a message"), columns.iter().map(Column::head));
        for case in distinct(report.figures.iter().map(|figure| &*figure.case)) {
            let cells = columns.iter().map(|column| cell(column.of(case), share(column, case)));
            line(
                &mut out,
                case,
                cells.zip(&columns).map(|(cell, column)| format!("{cell:>0$}", column.head().len())),
            );
        }
    }
    bars(&mut out, report);
    let _ = writeln!(out, "\n{COMPARE}");
    out + &warnings(report)
}

/// One line for each figure that has a bar.
fn bars(out: &mut String, report: &Report) {
    out.push('\n');
    for figure in &report.figures {
        let Some(bar) = &figure.bar else { continue };
        let (Figure { group, case, .. }, Bar { against, bar, .. }) = (figure, bar);
        let (ratio, verdict) = (two(figure.bar_ratio()), figure.verdict());
        let _ =
            writeln!(out, "{group}, {case}: {ratio} times better than {against}, {verdict} (at least {bar})");
    }
}

/// A column of a block: a variant, the study, or what variants are held against.
struct Column<'a> {
    name: &'a str,
    figures: Vec<&'a Figure>,
    /// The column is this reference of the figures.
    reference: bool,
}

impl Column<'_> {
    /// The study's unit is not ours.
    fn head(&self) -> String {
        if self.name == STUDY { format!("{STUDY}, 10^3") } else { self.name.to_owned() }
    }

    fn of(&self, case: &str) -> Option<f64> {
        let figure = self.figures.iter().find(|figure| figure.case == case)?;
        if self.reference { Some(figure.reference(self.name)?.sample.median) } else { figure.median() }
    }
}

/// Those of one size: variants, what they are held against, the study.
fn columns<'a>(report: &'a Report, size: &str) -> Vec<Column<'a>> {
    let of_size = || report.figures.iter().filter(|figure| parts(figure).0 == size);
    let group = |name: &str| of_size().filter(|figure| parts(figure).1 == name).collect::<Vec<_>>();
    let (study, variants): (Vec<&str>, Vec<&str>) =
        distinct(of_size().map(|figure| parts(figure).1)).into_iter().partition(|name| *name == STUDY);
    let first = variants.first().map(|name| group(name)).unwrap_or_default();
    let names = first.iter().flat_map(|figure| &figure.references).map(|reference| &*reference.name);
    let references: Vec<&str> = distinct(names);
    let own = |name| Column { name, figures: group(name), reference: false };
    let held = references.into_iter().map(|name| Column { name, figures: first.clone(), reference: true });
    variants.iter().map(|name| own(name)).chain(held).chain(study.into_iter().map(own)).collect()
}

/// Size and variant of a figure, as its group has them.
fn parts(figure: &Figure) -> (&str, &str) {
    figure.group.split_once(", ").unwrap_or((&figure.group, ""))
}

/// What part of its side's TCP, or of our call, a function is, in percent.
fn share(column: &Column<'_>, case: &str) -> Option<f64> {
    Some(column.of(case)? / column.of(whole(case)?)? * 100.0).filter(|share| share.is_finite())
}

fn cell(value: Option<f64>, share: Option<f64>) -> String {
    let share = share.map_or(String::new(), |share| format!("{share:.0} %"));
    format!("{} {share:>5}", whole_number(value))
}

fn line(out: &mut String, label: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(out, "{label:<38}");
    for cell in cells {
        let _ = write!(out, "  {cell:>WIDTH$}");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Sample, Unit};

    #[test]
    fn table_has_the_studys_and_the_kernels_figures_beside_ours() {
        let mut report = Report::new("stack");
        report.warnings.clear();
        let sample = |value: f64| Sample::new(vec![value]);
        let figure = |variant: &str, case: &str, value| {
            Figure::new(&format!("14 KB, {variant}"), case, Unit::Cycles, value)
                .against("loopback TCP", sample(999.0))
        };
        report.figures.extend([
            figure("direct", "send: copy in", sample(100.0)).bar("loopback TCP", 20.0, None),
            figure("direct", "send: IP", None),
            figure("offload", "send: copy in", sample(7.0)),
        ]);
        let all = "send: TCP, or our call, in all";
        report.figures.push(figure("direct", all, sample(500.0)));
        for (case, clocks) in [("send: copy in", 46.0), (all, 166.0)] {
            report.figures.push(Figure::new("14 KB, study", case, Unit::ThousandClocks, sample(clocks)));
        }
        let text = table(&report);
        let row = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(row("14 KB"), "14 KB, cycles a message|direct|offload|loopback TCP|study, 10^3", "{text}");
        assert_eq!(row("send: copy in"), "send: copy in|100|20 %|7|999 100 %|46|28 %", "{text}");
        assert_eq!(row("send: IP"), "send: IP|-|-|999|-", "{text}");
        assert!(
            text.contains("copy in: 9.99 times better than loopback TCP, MISSED (at least 20)"),
            "{text}"
        );
    }
}
