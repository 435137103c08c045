//! The page of results: what it has for everybody, and that nothing of a file becomes part of it but as text.

mod results;

use crosslane_report::chart::charts;
use crosslane_report::draw::svg;
use crosslane_report::page::{Section, page};
use crosslane_report::plot::Plot;
use crosslane_results::figure::Figure;
use crosslane_results::report::Report;
use crosslane_results::sample::Sample;
use crosslane_results::unit::Unit;

fn of(reports: &[Report]) -> String {
    let sections: Vec<Section<'_>> = reports.iter().map(Section::new).collect();
    page(&sections).unwrap()
}

#[test]
fn page_has_a_plot_of_each_kind_with_its_words_and_table() {
    let report = results::all();
    let charts = charts(&report);
    let titles: Vec<&str> = charts.iter().map(|chart| &*chart.title).collect();
    let expected = [
        "The network",
        "stream one way",
        "write into a segment",
        "one way, with clock",
        "bandwidth by lanes",
        "transit: sockperf, one way",
        "1.4 KB, inside a host",
        "ping-pong, mean: all runs",
        "Crosslane beside others",
    ];
    assert_eq!(titles, expected);
    let page = of(&[report]);
    assert_eq!(page.matches("role=\"img\"").count(), expected.len());
    assert_eq!(page.matches("<desc").count(), expected.len());
    assert_eq!(page.matches("<table").count(), expected.len());
    assert!(charts.iter().all(|chart| chart.says.len() > 20 && chart.table.len() > 1));
}

#[test]
fn page_sentences_say_what_is_drawn() {
    let charts = charts(&results::all());
    let says = |title: &str| charts.iter().find(|chart| chart.title == title).unwrap().says.clone();
    assert_eq!(
        says("stream one way"),
        "The highest value of crosslane is 256 Gb/s, at 1 MB; bare ring there: 300 (Crosslane is 0.85 times as fast)."
    );
    assert!(says("one way, with clock").starts_with("8 B: 100 ns at p50, 900 ns at longest."));
    assert!(says("1.4 KB, inside a host").contains("send: copy in (6380 cycles), send: buffer allot"));
    assert!(says("Crosslane beside others").contains("Better than veth TCP in 2 of 3, by up to 261 times; the least is ab, a connection a request (0.80 times)"));
}

#[test]
fn page_limits_are_lines_and_dashed() {
    let charts = charts(&results::all());
    let Some(Plot::Lines(lines)) = &charts[1].plot else { panic!("no lines") };
    let names: Vec<_> = lines.series.iter().map(|one| (&*one.name, one.reference)).collect();
    assert_eq!(names, [("crosslane", false), ("bare ring", true)]);
}

#[test]
fn page_asks_for_nothing_from_anywhere() {
    let page = of(&[results::all()]);
    let without = page.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !without.contains("http:")
            && !without.contains("https:")
            && !without.contains("url(")
            && !without.contains("@import")
    );
    assert!(!without.contains("<script") && page.contains("default-src 'none'"));
}

#[test]
fn page_hostile_texts_stay_texts() {
    for hostile in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "</style></svg></title>",
        "]]>&#0;",
        "\u{0}\u{1b}\u{7f}\u{202e}",
        "'--><!--",
    ] {
        let report = results::hostile(hostile);
        let page = of(&[report.clone(), report.clone()]);
        let honest = of(&[results::hostile("x"), results::hostile("x")]);
        for tag in ["<script", "<img", "</style", "</svg", "</title", "<!--", "]]>"] {
            assert_eq!(page.matches(tag).count(), honest.matches(tag).count(), "{hostile:?}: {tag}");
        }
        assert!(!page.contains('\u{0}') && !page.contains('\u{1b}'), "{hostile:?}");
        for (number, chart) in charts(&report).iter().enumerate() {
            let alone = svg(chart, &format!("p{number}"), true).unwrap();
            let alone = alone.expect("a plot");
            let document = roxmltree::Document::parse(&alone)
                .unwrap_or_else(|error| panic!("{hostile:?}: {error}: {alone}"));
            assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
        }
    }
}

#[test]
fn page_is_made_of_any_numbers() {
    let values = [0.0, -1.0, f64::MAX, f64::MIN_POSITIVE, 1e-300, 1.0];
    for (one, other) in values.iter().flat_map(|one| values.map(|other| (*one, other))) {
        for unit in [Unit::GigabitsPerSecond, Unit::Cycles, Unit::PerSecond] {
            for cases in [
                ["1 B", "2 B", "9999999 MB"],
                ["a", "b", "c"],
                ["1 B, p50", "1 B, p99", "2 B, p50"],
                ["1 cable", "2 cables", "cable 2"],
            ] {
                let mut report = Report::new("numbers");
                report.figures = cases
                    .map(|case| {
                        Figure::new("g", case, unit, Sample::new(vec![one, other]))
                            .against("veth TCP", Sample::new(vec![other, one]))
                    })
                    .to_vec();
                report.figures.push(Figure::new("g", "none", unit, None));
                assert!(of(&[report]).contains("numbers"));
            }
        }
    }
    assert!(of(&[Report::new("nothing")]).contains("nothing"));
}

#[test]
fn page_network_that_no_lab_has_is_left_out() {
    for cables in [vec![[1, 1]], vec![[0, 1]], vec![[1, 60000]], vec![[1, 2]; 300]] {
        let mut report = Report::new("x");
        report.cables = cables;
        assert!(charts(&report).is_empty());
    }
}
