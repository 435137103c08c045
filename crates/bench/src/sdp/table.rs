//! The report as text tables: sizes down, ways across, the outcome of the bars, and the study's findings beside.

use super::exchange::{EXCHANGE_MESSAGES, EXCHANGE_PROCESSOR, EXCHANGES, TRANSACTION_MESSAGES, TRANSACTIONS};
use super::native::Manner;
use super::native_figures::{NATIVE, NATIVE_PROCESSOR};
use super::tally::MODES;
use super::way::{AUTO, FORCED};
use super::{COPIES, FAILED, OF_BEST, PER_PROCESSOR, PROCESSOR, THROUGHPUT, forced_group, share_group};
use crate::export::{columns, heading, or_dash, two, warnings};
use crate::figure::{Figure, Report};
use crate::program::{LOOPBACK, VETH};
use std::fmt::Write;

/// What the study found of SDP beside Gigabit Ethernet, by size of message; it gives its curves as pictures.
const STUDY: [(&str, &str); 12] = [
    ("1 B", "not given"),
    ("8 B", "not given"),
    ("64 B", "below 1"),
    ("256 B", "above 1"),
    ("1.4 KB", "above 1"),
    ("4 KB", "above 1, SDP's best size"),
    ("16 KB", "above 1"),
    ("64 KB", "over 3"),
    ("140 KB", "over 3"),
    ("256 KB", "over 3"),
    ("1 MB", "over 3"),
    ("8 MB", "not given"),
];

/// The reference of the automatic mode.
const OTHERS: [&str; 5] = [FORCED[0], FORCED[1], FORCED[2], LOOPBACK, VETH];

/// What may be compared.
const READING: &str = "\
The study's rates are of two servers with an InfiniBand adapter on PCI-X, against Gigabit Ethernet; it gives ratios and
curves, not numbers. Ours are of processors that copy in one machine, against that machine's loopback. What may be compared
is where SDP is ahead of TCP and where behind (theirs loses below 256 B, and in throughput per processor), not how far.
Rates are of one stream, one way; blocking sends from one buffer that stays in the caches, as netperf and iperf3 send;
the receiver reads into a buffer of the message's size, at least 64 KB. Processor time is both programs' (user and kernel)
and, for streams, both daemons'; what the kernel does for TCP outside of processes is not in it. A mode that was forced and
did not carry the bytes has no rate; below is what carried them.
";

/// Everything.
pub fn table(report: &Report) -> String {
    let mut out = heading(report);
    for (title, rows) in [
        ("MB/s (10^6)", throughput(report)),
        ("MB in a second of processor time, both ends added up", processor(report)),
        ("copies of each byte, both ends added up", copies(report)),
        ("programs written for streams: MB/s, and MB in a second of processor time", native(report)),
        ("questions of 64 B with an answer, one at a time, in a second", exchanges(report)),
    ] {
        if rows.len() > 1 {
            let _ = write!(out, "\n{title}\n{}", columns(&rows));
        }
    }
    let _ = write!(out, "\n{READING}\n");
    failures(report, &mut out);
    fallen_back(report, &mut out);
    bars(report, &mut out);
    out + &warnings(report)
}

fn throughput(report: &Report) -> Vec<Vec<String>> {
    let mut rows =
        vec![head(&["size", AUTO, "carried by"], &["of best", "of loopback", "study: SDP of Ethernet"])];
    for figure in of_group(report, THROUGHPUT) {
        let mut row = vec![figure.case.clone(), median(figure, None), chosen(report, &figure.case)];
        row.extend(OTHERS.map(|name| median(figure, Some(name))));
        row.push(report.find(OF_BEST, &figure.case).map_or(String::new(), verdict));
        row.push(verdict(figure));
        let study = STUDY.iter().find(|(size, _)| *size == figure.case);
        row.push(study.map_or("not given", |(_, found)| found).to_owned());
        rows.push(row);
    }
    rows
}

fn processor(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![head(&["size", AUTO], &["of loopback", "processors of auto", "of loopback TCP"])];
    for figure in of_group(report, PER_PROCESSOR) {
        let mut row = vec![figure.case.clone(), median(figure, None)];
        row.extend(OTHERS.map(|name| median(figure, Some(name))));
        row.push(verdict(figure));
        let used = report.find(PROCESSOR, &figure.case);
        let processors = |name| Some(value(used?, name)? / 100.0);
        row.extend([None, Some(LOOPBACK)].map(|name| two(processors(name))));
        rows.push(row);
    }
    rows
}

fn copies(report: &Report) -> Vec<Vec<String>> {
    let names = ["size", AUTO].into_iter().chain(FORCED).map(str::to_owned).collect();
    let figures = of_group(report, COPIES).map(|figure| {
        let all = [None].into_iter().chain(FORCED.map(Some));
        [figure.case.clone()].into_iter().chain(all.map(|name| two(value(figure, name)))).collect()
    });
    [names].into_iter().chain(figures).collect()
}

fn exchanges(report: &Report) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for figure in of_group(report, EXCHANGES) {
        let names: Vec<&str> = figure.references.iter().map(|reference| &*reference.name).collect();
        if rows.is_empty() {
            let words = ["answer", "bcopy"].into_iter().chain(names.iter().copied());
            let costs = ["CPU us: bcopy"].into_iter().chain(names.iter().copied());
            let counts = ["messages: bcopy", "native bcopy", "transaction"];
            rows.push(words.chain(costs).chain(counts).map(str::to_owned).collect());
        }
        let all = || [None].into_iter().chain(names.iter().map(|name| Some(*name)));
        let of = |group, name| value(report.find(group, &figure.case)?, name);
        let counted = |name| of(EXCHANGE_MESSAGES, name).filter(|messages| *messages > 0.0);
        let mut row = vec![figure.case.clone()];
        row.extend(all().map(|name| median(figure, name)));
        row.extend(all().map(|name| two(of(EXCHANGE_PROCESSOR, name))));
        row.extend([None, Some("native bcopy"), Some("transaction")].map(|name| two(counted(name))));
        rows.push(row);
    }
    rows
}

fn native(report: &Report) -> Vec<Vec<String>> {
    let names = Manner::POURING.map(Manner::name);
    let head = ["size"].into_iter().chain(names).chain(names).chain(["posted of copied"]);
    let head = head.map(str::to_owned).collect();
    let figures = of_group(report, NATIVE).map(|rate| {
        let mut row = vec![rate.case.clone()];
        let costs = report.find(NATIVE_PROCESSOR, &rate.case);
        for figure in [Some(rate), costs].into_iter().flatten() {
            let reference = |manner: Manner| (manner != Manner::Posted).then(|| manner.name());
            row.extend(Manner::POURING.map(|manner| median(figure, reference(manner))));
        }
        row.push(costs.map_or(String::new(), verdict));
        row
    });
    [head].into_iter().chain(figures).collect()
}

/// Which modes carried the bytes that no mode was forced for.
fn chosen(report: &Report, case: &str) -> String {
    let share = |mode: &str| report.find(&share_group(mode), case)?.median();
    let parts = MODES.iter().filter_map(|mode| Some((*mode, share(mode)?))).filter(|(_, part)| *part >= 0.5);
    let mut parts: Vec<(&str, f64)> = parts.collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = |(mode, part): &(&str, f64)| {
        if *part > 99.5 { (*mode).to_owned() } else { format!("{mode} {part:.0} %") }
    };
    parts.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// Runs that failed.
fn failures(report: &Report, out: &mut String) {
    for figure in report.figures.iter().filter(|figure| figure.group.starts_with(FAILED)) {
        let what = figure.group.trim_start_matches(FAILED);
        let _ = writeln!(out, "FAILED{what}: {}", figure.missing.as_deref().unwrap_or_default());
    }
}

/// What carried the bytes where a forced mode did not.
fn fallen_back(report: &Report, out: &mut String) {
    let forced = FORCED.map(|mode| (mode, forced_group(mode))).into_iter();
    let native = Manner::POURING.map(|manner| (manner.name(), forced_group(manner.name())));
    let asked = (TRANSACTIONS, TRANSACTIONS.to_owned());
    for (mode, group) in forced.chain(native).chain([asked]) {
        let missing = of_group(report, &group);
        let missing = missing.filter_map(|figure| Some((&figure.case, figure.missing.as_ref()?)));
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for (case, why) in missing {
            match by_reason.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, cases)) => cases.push(case),
                None => by_reason.push((why, vec![case])),
            }
        }
        for (why, cases) in by_reason {
            let _ = writeln!(out, "{mode}, {}: {why}", cases.join(", "));
        }
    }
}

fn bars(report: &Report, out: &mut String) {
    for (group, bar) in [
        (OF_BEST, "chosen by itself at least 0.9 of the best forced mode"),
        (THROUGHPUT, "throughput above loopback TCP's"),
        (PER_PROCESSOR, "bytes per processor time above loopback TCP's, 2.5 times from 64 KB"),
        (NATIVE_PROCESSOR, "bytes per processor time of posted buffers 1.5 times Bcopy's at 1 MB"),
        (TRANSACTIONS, "transactions faster than Bcopy"),
        (TRANSACTION_MESSAGES, "transactions with fewer messages than Bcopy"),
    ] {
        let cases = |met: bool| {
            let all = of_group(report, group).filter(|figure| figure.bar.is_some());
            let those = all.filter(|figure| (figure.meets_bar() == Some(true)) == met);
            those.map(|figure| &*figure.case).collect::<Vec<_>>()
        };
        let (met, missed) = (cases(true), cases(false));
        let verdict = match (met.len(), missed.is_empty()) {
            (0, true) => "not measured".to_owned(),
            (count, true) => format!("met at {count} sizes of {count}"),
            (count, false) => {
                format!("MISSED at {} (met at {count} of {})", missed.join(", "), count + missed.len())
            }
        };
        let _ = writeln!(out, "{bar}: {verdict}");
    }
}

fn of_group<'a>(report: &'a Report, group: &str) -> impl Iterator<Item = &'a Figure> + use<'a> {
    let group = group.to_owned();
    report.figures.iter().filter(move |figure| figure.group == group)
}

/// The median of the figure itself, or of one of its references.
fn value(figure: &Figure, reference: Option<&str>) -> Option<f64> {
    reference.map_or(figure.median(), |name| Some(figure.reference(name)?.sample.median))
}

fn median(figure: &Figure, reference: Option<&str>) -> String {
    let precise = |value: f64| if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    or_dash(value(figure, reference), precise)
}

/// The ratio for the figure's bar, marked if it is missed.
fn verdict(figure: &Figure) -> String {
    let mark = if figure.meets_bar() == Some(false) { " MISSED" } else { "" };
    let turns = figure.bar_ratios().map_or(String::new(), |ratios| {
        let least = ratios.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.runs.iter().copied().fold(0.0, f64::max);
        format!(" ({least:.2} to {most:.2})")
    });
    or_dash(figure.bar_ratio(), |ratio| format!("{ratio:.2}{turns}{mark}"))
}

/// Names of columns: those before the forced modes and the kernel's TCP, and those behind.
fn head(before: &[&str], behind: &[&str]) -> Vec<String> {
    [before, &OTHERS, behind].concat().into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::size::Length;
    use super::super::{figures, of_best, tests::runs};
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("sdp");
        report.warnings.clear();
        report.figures = [64, 1 << 20]
            .into_iter()
            .flat_map(|size| {
                let duel = runs().into_iter().filter(|(way, _)| [AUTO, "read-zcopy"].contains(&way.name));
                let duel: Vec<_> = duel.collect();
                figures(Length(size), &runs()).into_iter().chain([of_best(Length(size), &duel)])
            })
            .collect();
        report.gather_groups();
        report
    }

    #[test]
    fn table_has_ways_bars_and_the_studys_finding_per_size() {
        let text = table(&report());
        let row = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        let cells: Vec<&str> = row("1 MB").split_whitespace().collect();
        let wanted = "1 MB 5000 read-zcopy 99 %, bcopy 1 % 4000 5000 - 1000 1000 1.00 (1.00 to 1.00) 5.00 (5.00 to 5.00) over 3";
        assert_eq!(cells.join(" "), wanted, "{text}");
        assert!(row("64 B").ends_with("below 1"), "{text}");
        assert!(text.contains("write-zcopy, 64 B, 1 MB: carried by bcopy 100 %"), "{text}");
        assert!(text.contains("throughput above loopback TCP's: met at 2 sizes of 2"), "{text}");
    }

    #[test]
    fn table_names_the_sizes_of_a_missed_bar() {
        let mut report = report();
        let slow = report
            .figures
            .iter_mut()
            .find(|figure| figure.group == THROUGHPUT && figure.case == "64 B")
            .unwrap();
        slow.sample = slow.sample.as_ref().map(|sample| sample.scaled(0.1));
        let text = table(&report);
        assert!(text.contains("loopback TCP's: MISSED at 64 B (met at 1 of 2)"), "{text}");
        assert!(text.contains("0.50 (0.50 to 0.50) MISSED"), "{text}");
    }
}
