//! Evaluates the turns of one program, and prints its histogram.

use super::STEAL;
use crate::export::{columns, heading, markdown_columns, notes, or_dash, two};
use crate::figure::{Figure, Report, Sample, Unit};
use crosslane_results::steal;

/// One second of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// Mean of a round trip, us.
    pub mean: f64,
    /// Steal meanwhile, percent.
    pub steal: f64,
}

/// The same on streams and, right behind, on the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub streams: Run,
    pub tcp: Run,
}

/// Upper ends of the histogram's rows, us; what is above the last one has a row too.
const ENDS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];

/// Percent of the turns in which TCP was not faster than the stream.
pub(super) fn not_slower(turns: &[Turn]) -> Option<f64> {
    percent(turns.iter().map(|turn| turn.streams.mean <= turn.tcp.mean))
}

/// Percent of the quiet seconds of streams whose mean was at most `most` us.
pub(super) fn at_most(turns: &[Turn], most: f64) -> Option<f64> {
    let quiet = turns.iter().filter(|turn| turn.streams.steal <= steal::MOST);
    percent(quiet.map(|turn| turn.streams.mean <= most))
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn percent(good: impl Iterator<Item = bool>) -> Option<f64> {
    let good: Vec<bool> = good.collect();
    let count = good.iter().filter(|&&good| good).count();
    (!good.is_empty()).then(|| 100.0 * count as f64 / good.len() as f64)
}

/// Histograms, and the bars.
pub(super) fn table(report: &Report) -> String {
    let mut out = format!("{}\n", heading(report));
    each(report, |title, rows| out.push_str(&format!("\n{title}\n{}", columns(&rows))));
    out + &notes(report)
}

/// The same in Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let mut out = format!("## {}\n", heading(report));
    each(report, |title, rows| out.push_str(&format!("\n{title}\n\n{}", markdown_columns(&rows))));
    out + &notes(report)
}

/// A title and the rows of a table, for each program and once more for the bars.
fn each(report: &Report, mut show: impl FnMut(String, Vec<Vec<String>>)) {
    for figure in report.figures.iter().filter(|figure| figure.unit == Unit::Microseconds) {
        let steal = report.find(&figure.group, STEAL);
        if let Some(rows) = steal.and_then(|steal| histogram(figure, steal)) {
            show(format!("{}: {}, mean of one second", figure.group, figure.case), rows);
        }
    }
    let bars: Vec<&Figure> = report.figures.iter().filter(|figure| figure.bar.is_some()).collect();
    if !bars.is_empty() {
        show("Bars".to_owned(), verdicts(&bars));
    }
}

fn histogram(means: &Figure, steal: &Figure) -> Option<Vec<Vec<String>>> {
    let (ours, theirs) = (means.sample.as_ref()?, &means.references.first()?.sample);
    let (stolen, stolen_tcp) = (steal.sample.as_ref()?, &steal.references.first()?.sample);
    let runs = [split(ours, stolen, false), split(ours, stolen, true)];
    let tcp = [split(theirs, stolen_tcp, false), split(theirs, stolen_tcp, true)];
    let all = [&runs[0], &runs[1], &tcp[0], &tcp[1]];
    let mut rows = vec![["us", "streams", "stolen", "TCP", "stolen"].map(str::to_owned).to_vec()];
    let ends = ENDS.into_iter().chain([f64::INFINITY]);
    let mut low = 0.0;
    for high in ends {
        let count = |runs: &Vec<f64>| runs.iter().filter(|&&run| run > low && run <= high).count();
        let counts = all.map(count);
        if counts.iter().any(|&count| count > 0) {
            let name = if high.is_finite() { format!("{low} to {high}") } else { format!("above {low}") };
            rows.push([name].into_iter().chain(counts.map(|count| count.to_string())).collect());
        }
        low = high;
    }
    let mut add = |name: &str, of: fn(&Sample) -> f64| {
        let cells = all.map(|runs| two(Sample::new(runs.clone()).as_ref().map(of)));
        rows.push([name.to_owned()].into_iter().chain(cells).collect());
    };
    add("median", |sample| sample.median);
    add("most", most);
    let [ours, theirs] = [stolen, stolen_tcp].map(|sample| format!("{:.1}", most(sample)));
    rows.push(vec!["most steal, %".to_owned(), ours, String::new(), theirs, String::new()]);
    Some(rows)
}

fn most(sample: &Sample) -> f64 {
    sample.runs.iter().copied().fold(0.0, f64::max)
}

/// Times of the runs of which more than [`steal::MOST`] was stolen, or of the others.
fn split(means: &Sample, stolen: &Sample, more: bool) -> Vec<f64> {
    let both = means.runs.iter().zip(&stolen.runs);
    both.filter(|&(_, &steal)| (steal > steal::MOST) == more).map(|(&mean, _)| mean).collect()
}

fn verdicts(bars: &[&Figure]) -> Vec<Vec<String>> {
    let mut rows = vec![["program", "what", "%", "at least", ""].map(str::to_owned).to_vec()];
    for figure in bars {
        let value = or_dash(figure.median(), |median| format!("{median:.1}"));
        let least = figure.bar.as_ref().map_or(0.0, |bar| 100.0 * bar.bar).to_string();
        let verdict = figure.verdict().to_owned();
        rows.push(vec![figure.group.clone(), figure.case.clone(), value, least, verdict]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(streams: f64, steal: f64) -> Turn {
        Turn { streams: Run { mean: streams, steal }, tcp: Run { mean: 50.0, steal: 0.0 } }
    }

    #[test]
    fn stolen_time_is_excluded_from_the_five_microseconds_but_not_from_tcp() {
        let turns = [turn(1.0, 0.0), turn(60.0, 20.0)];
        assert_eq!(at_most(&turns, 5.0), Some(100.0));
        assert_eq!(not_slower(&turns), Some(50.0));
        assert_eq!(at_most(&turns[1..], 5.0), None);
    }

    #[test]
    fn histogram_has_each_run_in_one_row() {
        let figure = |ours: Vec<f64>, tcp: Vec<f64>| {
            Figure::new("x", "y", Unit::Microseconds, Sample::new(ours)).against("TCP", Sample::new(tcp))
        };
        let means = figure(vec![0.4, 1.0, 700.0], vec![50.0; 3]);
        let rows = histogram(&means, &figure(vec![0.0, 9.0, 0.0], vec![0.0; 3])).unwrap();
        let text = columns(&rows);
        assert!(text.contains("0.5 to 1") && text.contains("above 500"), "{text}");
        let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap()[1..].join(" ");
        assert_eq!(row("0 to 0.5"), "1 0 0 0");
        assert_eq!(row("0.5 to 1"), "0 1 0 0");
        assert_eq!(row("20 to 50"), "0 0 3 0");
        assert_eq!(row("above 500"), "1 0 0 0");
    }
}
