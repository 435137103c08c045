//! The table of `bench apps`: one line for each program.

use crate::export::{columns, heading, markdown_columns, notes, number, or_dash, two};
use crate::figure::{Figure, Report};
use crate::program::VETH;
use crosslane_results::steal;

/// Rates, processor time, steal, and the bar.
pub(super) fn table(report: &Report) -> String {
    format!("{}\n{}{}", heading(report), columns(&rows(report)), notes(report))
}

/// The same in Markdown.
pub(super) fn markdown(report: &Report) -> String {
    format!("## {}\n{}{}", heading(report), markdown_columns(&rows(report)), notes(report))
}

fn rows(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![
        [
            "program", "unit", "streams", "TCP", "ratio", "least", "most", "us each", "TCP", "ratio",
            "steal %", "bar",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let lines = report.figures.iter().filter(|figure| figure.bar.is_some());
    rows.extend(lines.map(|rate| row(rate, spent(report, rate))));
    rows
}

/// The processor time that belongs to a rate.
fn spent<'a>(report: &'a Report, rate: &Figure) -> Option<&'a Figure> {
    report.figures.iter().find(|figure| figure.group == rate.group && figure.bar.is_none())
}

fn row(rate: &Figure, spent: Option<&Figure>) -> Vec<String> {
    let mut row = vec![rate.case.clone(), rate.unit.name().to_owned()];
    row.extend(numbers(Some(rate)));
    let ratios = rate.reference(VETH).and_then(|tcp| rate.ratios(tcp));
    let of = |pick: fn(f64, f64) -> f64| ratios.as_ref()?.runs.iter().copied().reduce(pick);
    row.extend([f64::min, f64::max].map(|pick| two(of(pick))));
    row.extend(numbers(spent));
    row.push(or_dash(rate.steal, |percent| {
        format!("{percent:.1}{}", if percent > steal::MOST { " (disturbed)" } else { "" })
    }));
    row.push(rate.verdict().to_owned());
    row
}

/// Ours, TCP's, and the ratio.
fn numbers(figure: Option<&Figure>) -> [String; 3] {
    let tcp = figure.and_then(|figure| figure.reference(VETH));
    let ratio = figure.zip(tcp).and_then(|(figure, tcp)| figure.ratio(tcp));
    let ours = figure.and_then(Figure::median);
    [ours, tcp.map(|tcp| tcp.sample.median), ratio].map(|value| or_dash(value, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Sample, Unit};

    #[test]
    fn table_has_one_line_per_program() {
        let figure = |case: &str, unit, ours: &[f64]| {
            let figure = Figure::new("grpc", case, unit, Sample::new(ours.to_vec()));
            let figure = figure.against(VETH, Sample::new(vec![100.0, 100.0, 100.0]));
            Figure { steal: Some(7.25), ..figure.by_turns() }
        };
        let mut report = Report::new("A run");
        report.warnings.clear();
        report.figures.push(figure("unary", Unit::PerSecond, &[90.0, 200.0, 300.0]).bar(VETH, 0.95, None));
        report.figures.push(figure("processor time", Unit::Microseconds, &[50.0, 50.0, 50.0]));
        let mut absent = Figure::new("nbd", "fio", Unit::PerSecond, None).bar(VETH, 0.95, None);
        absent.missing = Some("fio is not installed".to_owned());
        report.figures.push(absent);
        let text = table(&report);
        let line = text.lines().find(|line| line.starts_with("unary")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let wanted = [
            "unary",
            "1/s",
            "200",
            "100",
            "2.00",
            "0.90",
            "3.00",
            "50.0",
            "100",
            "2.00",
            "7.2",
            "(disturbed)",
            "met",
        ];
        assert_eq!(words, wanted, "{text}");
        assert!(markdown(&report).contains("\n| unary "), "{}", markdown(&report));
        assert!(text.contains("not measured") && text.contains("fio is not installed"), "{text}");
    }
}
