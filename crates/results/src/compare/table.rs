//! A comparison as a table for people.

use super::{Comparison, Metric, Verdict};
use crate::export::{columns, number, or_dash};
use std::fmt::Write;

/// The comparison for a terminal: a line for each metric, what only one has, notes, and a summary as the last line.
pub fn table(comparison: &Comparison) -> String {
    let Comparison { titles: [a, b], metrics, only, notes, .. } = comparison;
    let mut out = format!("A: {a}\nB: {b}\n");
    if !metrics.is_empty() {
        let head = ["metric", "unit", "A", "B", "as ratios to", "from A to B"].map(str::to_owned);
        let rows: Vec<Vec<String>> = [head.to_vec()].into_iter().chain(metrics.iter().map(row)).collect();
        let _ = write!(out, "\n{}", columns(&rows));
    }
    out.push('\n');
    for (name, only) in ["A", "B"].into_iter().zip(only) {
        let _ = only.iter().try_for_each(|metric| writeln!(out, "only in {name}: {metric}"));
    }
    let _ = notes.iter().try_for_each(|note| writeln!(out, "note: {note}"));
    let _ = writeln!(out, "{}", summary(comparison));
    out
}

fn row(metric: &Metric) -> Vec<String> {
    let [a, b] = metric.medians.map(|median| or_dash(median, number));
    let name = format!("{}, {}", metric.group, metric.case);
    let against = metric.against.clone().unwrap_or_else(|| "-".to_owned());
    vec![name, metric.unit.name().to_owned(), a, b, against, metric.says.clone()]
}

/// How many metrics there are of each verdict, and how sure that is.
pub fn summary(comparison: &Comparison) -> String {
    let all = comparison.metrics.len();
    if all == 0 {
        return "no metric is in both".to_owned();
    }
    let counts = [
        (Verdict::Worse, "worse"),
        (Verdict::Better, "better"),
        (Verdict::Same, "no difference"),
        (Verdict::TooFew, "too few runs to tell"),
        (Verdict::Unfit, "not compared"),
    ];
    let counts = counts.map(|(verdict, words)| (comparison.count(verdict), words));
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let metrics = if all == 1 { "1 metric".to_owned() } else { format!("{all} metrics, judged together") };
    format!("{metrics}: {} ({} % confidence)", counts.join(", "), comparison.confidence)
}
