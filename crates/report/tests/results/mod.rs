//! Results to draw: numbers of the size that measurements have.

use crosslane_results::figure::Figure;
use crosslane_results::report::Report;
use crosslane_results::sample::Sample;
use crosslane_results::unit::Unit;

/// Three runs around a value.
fn around(value: f64) -> Option<Sample> {
    Sample::new(vec![value * 0.99, value, value * 1.01])
}

fn figure(group: &str, case: &str, unit: Unit, value: f64) -> Figure {
    Figure::new(group, case, unit, around(value))
}

/// A result with a plot of each kind.
pub(crate) fn all() -> Report {
    let mut report = Report::new("A run of everything");
    report.warnings = vec!["stream one way, 8 B: noisy, quartiles 16 % apart".to_owned()];
    report.cables = vec![[1, 2], [2, 3], [1, 3]];
    report.programs.insert("iperf3".to_owned(), "3.12-1".to_owned());
    let figures = &mut report.figures;
    for (case, ours, bare) in
        [("8 B", 0.7, 1.4), ("4 KB", 120.0, 160.0), ("128 KB", 250.0, 260.0), ("1 MB", 256.0, 300.0)]
    {
        figures.push(
            figure("stream one way", case, Unit::GigabitsPerSecond, ours).against("bare ring", around(bare)),
        );
    }
    for (size, rate) in [("64 B", 40.0), ("64 KB", 90.0), ("8 MB", 70.0)] {
        for (kind, factor) in [("memcpy", 1.0), ("non-temporal stores", 1.2), ("rep movs", 0.9)] {
            let case = format!("{size}, {kind}");
            let figure = figure("write into a segment", &case, Unit::GigabitsPerSecond, rate * factor);
            figures.push(figure.against("private memcpy", around(rate * 1.1)));
        }
    }
    for (size, base) in [("8 B", 100.0), ("4 KB", 400.0)] {
        for (name, times) in [("p50", 1.0), ("p99", 3.0), ("p99.9", 5.0), ("longest", 9.0)] {
            let figure =
                figure("one way, with clock", &format!("{size}, {name}"), Unit::Nanoseconds, base * times);
            figures.push(figure.against("bare ring", around(base * times * 0.8)));
        }
    }
    for (case, rate) in [("x1", 7.0), ("x4", 28.0), ("x8", 55.0), ("x16", 109.0)] {
        figures.push(figure("bandwidth by lanes", case, Unit::GigabitsPerSecond, rate));
    }
    for (case, time) in [("1 cable", 0.5), ("2 cables", 0.9), ("3 cables", 1.4)] {
        figures.push(
            figure("transit: sockperf, one way", case, Unit::Microseconds, time)
                .against("veth TCP", around(30.0)),
        );
    }
    for (case, ours, tcp) in [
        ("send: buffer allot", 2757.0, 40517.0),
        ("send: copy in", 6380.0, 11213.0),
        ("receive: copy out", 2398.0, 9000.0),
    ] {
        figures.push(
            figure("1.4 KB, inside a host", case, Unit::Cycles, ours)
                .against("loopback TCP, traced", around(tcp)),
        );
    }
    let many =
        |value: f64| Sample::new((0..60).map(|run| value * (1.0 + f64::from(run % 7) / 50.0)).collect());
    figures.push(
        Figure::new("ping-pong", "mean", Unit::Microseconds, many(0.23)).against("veth TCP", many(60.0)),
    );
    figures.push(
        figure("iperf3", "one stream", Unit::GigabitsPerSecond, 352.0).against("veth TCP", around(22.0)),
    );
    figures.push(
        figure("ab", "a connection a request", Unit::PerSecond, 8000.0).against("veth TCP", around(10_000.0)),
    );
    report
}

/// A result with `text` wherever a file may have text.
#[allow(dead_code, reason = "not all tests need it")]
pub(crate) fn hostile(text: &str) -> Report {
    let mut report = all();
    for field in
        [&mut report.title, &mut report.crosslane, &mut report.machine.processor, &mut report.machine.kernel]
    {
        field.push_str(text);
    }
    report.command = vec![text.to_owned()];
    report.warnings = vec![text.to_owned()];
    report.programs.insert(text.to_owned(), text.to_owned());
    for figure in &mut report.figures {
        figure.group.push_str(text);
        if !figure.case.starts_with(|first: char| first.is_ascii_digit() || first == 'x') {
            figure.case.push_str(text);
        } else {
            let head = figure.case.split(", ").next().unwrap_or_default().to_owned();
            figure.case = format!("{head}, {text}");
        }
        figure.references.iter_mut().for_each(|reference| reference.name.push_str(text));
    }
    let mut missing = report.figures[0].clone();
    (missing.sample, missing.missing) = (None, Some(text.to_owned()));
    report.figures.push(missing);
    report
}
