//! The table of `bench kernel`: what the kernel's own client reached and what Crosslane did, a line each.

use crate::export::{columns, heading, markdown_columns, notes, number, or_dash, two};
use crate::figure::{Figure, Report, Sample};

/// Medians, how far quartiles are apart, ratios, and the bars.
pub(super) fn table(report: &Report) -> String {
    format!("{}\n{}{}{}", heading(report), columns(&rows(report)), verdicts(report), notes(report))
}

/// The same in Markdown.
pub(super) fn markdown(report: &Report) -> String {
    format!(
        "## {}\n{}\n{}{}",
        heading(report),
        markdown_columns(&rows(report)),
        verdicts(report),
        notes(report)
    )
}

fn rows(report: &Report) -> Vec<Vec<String>> {
    let head = ["what", "unit", "stock", "+-%", "crosslane", "+-%", "ratio", "least", "most", "beside"];
    let rows = report.figures.iter().map(row);
    [head.map(str::to_owned).to_vec()].into_iter().chain(rows).collect()
}

fn row(figure: &Figure) -> Vec<String> {
    let stock = figure.references.first();
    let ratios = stock.and_then(|stock| figure.ratios(stock));
    let of = |pick: fn(f64, f64) -> f64| ratios.as_ref()?.runs.iter().copied().reduce(pick);
    let mut row = vec![format!("{}, {}", figure.group, figure.case), figure.unit.name().to_owned()];
    row.extend(median_and_spread(stock.map(|stock| &stock.sample)));
    row.extend(median_and_spread(figure.sample.as_ref()));
    row.push(two(stock.and_then(|stock| figure.ratio(stock))));
    row.extend([f64::min, f64::max].map(|pick| two(of(pick))));
    row.push(stock.map(|stock| stock.name.clone()).unwrap_or_default());
    row
}

/// The median, and half of the distance between the quartiles in percent of it.
fn median_and_spread(sample: Option<&Sample>) -> [String; 2] {
    [
        or_dash(sample.map(|it| it.median), number),
        or_dash(sample.map(|it| it.spread * 50.0), |percent| format!("{percent:.0}")),
    ]
}

/// A line for each bar.
fn verdicts(report: &Report) -> String {
    let lines = report.figures.iter().filter_map(|figure| {
        let bar = figure.bar.as_ref()?;
        let ratio = or_dash(figure.bar_ratio(), |ratio| format!("{ratio:.2}"));
        let (group, case, verdict) = (&figure.group, &figure.case, figure.verdict());
        Some(format!(
            "bar: {group}, {case}: {ratio} times {}, at least {:.0}: {verdict}\n",
            bar.against, bar.bar
        ))
    });
    [String::from("\n")].into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Unit;

    #[test]
    fn table_has_both_their_ratio_and_the_bar() {
        let mut report = Report::new("A run");
        report.warnings.clear();
        let sample = |runs: [f64; 3]| Sample::new(runs.to_vec());
        let rate = Figure::new("iperf3", "sockets", Unit::MegabytesPerSecond, sample([30.0, 36.0, 40.0]));
        report.figures.push(rate.against("ntb_netdev", sample([10.0, 9.0, 10.0])).by_turns().bar(
            "ntb_netdev",
            3.0,
            None,
        ));
        let time = Figure::new("sockperf", "sockets", Unit::Microseconds, None);
        report.figures.push(time.against("ntb_netdev", sample([50.0; 3])).bar("ntb_netdev", 3.0, None));
        let text = table(&report);
        let words: Vec<&str> =
            text.lines().find(|it| it.starts_with("iperf3")).unwrap().split_whitespace().collect();
        let wanted = ["10.0", "2", "36.0", "7", "4.00", "3.00", "4.00", "ntb_netdev"];
        assert_eq!(words[3..], wanted, "{text}");
        assert!(text.contains("iperf3, sockets: 4.00 times ntb_netdev, at least 3: met"), "{text}");
        assert!(text.contains("sockperf, sockets: - times ntb_netdev, at least 3: not measured"), "{text}");
        assert!(markdown(&report).contains("| iperf3, sockets"), "{}", markdown(&report));
    }
}
