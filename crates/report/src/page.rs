//! The page.

use crate::chart::charts;
use crate::draw::{DrawError, svg, visible};
use crate::plot::Chart;
use crosslane_results::report::Report;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::time::{Duration, UNIX_EPOCH};

const STYLE: &str = include_str!("style.css");
/// Nothing is fetched, nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A result and the charts of it.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// The result.
    pub report: &'a Report,
    /// Its charts.
    pub charts: Vec<Chart>,
}

impl<'a> Section<'a> {
    /// The charts of `report`.
    pub fn new(report: &'a Report) -> Self {
        Self { report, charts: charts(report) }
    }
}

/// The page of these results, in their order.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(sections: &[Section<'_>]) -> Result<String, DrawError> {
    let bodies = sections.iter().enumerate().map(|(number, section)| body(number + 1, section));
    let bodies = bodies.collect::<Result<Vec<_>, _>>()?;
    let several = sections.len() > 1;
    let title = match sections {
        [one] => visible(&one.report.title),
        all => format!("{} results of Crosslane", all.len()),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (title) } (contents(sections)) }
                main { @for one in &bodies { (one) } }
                footer { p {
                    "Made by crosslane report " (env!("CARGO_PKG_VERSION"))
                    @if several { " of " (sections.len()) " results" }
                    ". Values are medians of all runs; dashed lines are limits and programs of others."
                } }
            }
        }
    };
    Ok(page.into_string())
}

/// Links to all sections and charts.
fn contents(sections: &[Section<'_>]) -> Markup {
    html! {
        nav aria-label="Contents" {
            ul {
                @for (number, section) in (1..).zip(sections) {
                    li {
                        a href={ "#r" (number) } { (visible(&section.report.title)) }
                        ul {
                            @for (place, chart) in (1..).zip(&section.charts) {
                                li { a href={ "#r" (number) "c" (place) } { (visible(&chart.title)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn body(number: usize, section: &Section<'_>) -> Result<Markup, DrawError> {
    let Section { report, charts } = section;
    let figures =
        (1..).zip(charts).map(|(place, chart): (usize, _)| figure(&format!("r{number}c{place}"), chart));
    let figures = figures.collect::<Result<Vec<_>, _>>()?;
    let missing: Vec<String> = report
        .figures
        .iter()
        .filter_map(|it| Some(format!("{}, {}: {}", it.group, it.case, it.missing.as_ref()?)))
        .collect();
    let heading = format!("r{number}");
    Ok(html! {
        section aria-labelledby=(heading) {
            h2 id=(heading) { (visible(&report.title)) }
            (surroundings(report))
            (list("What disturbed it, and other notes", &report.warnings))
            (list("What was not measured", &missing))
            @for one in &figures { (one) }
        }
    })
}

fn list(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h3 { (title) }
            ul { @for line in lines { li { (visible(line)) } } }
        }
    }
}

/// Where, when, and with what it was measured.
fn surroundings(report: &Report) -> Markup {
    let machine = &report.machine;
    let began = UNIX_EPOCH.checked_add(Duration::from_secs(report.started)).filter(|_| report.started > 0);
    // Years of more than four digits have no such form.
    let began = began
        .filter(|_| report.started < 253_402_300_800)
        .map(|at| humantime::format_rfc3339_seconds(at).to_string());
    let distance = machine.distance_ns.map(|distance| format!("{distance:.0} ns"));
    let slowed = machine.slowed_percent.map(|part| format!("{part:.0} %"));
    let mut rows = vec![
        ("Command", report.command.join(" ")),
        ("Crosslane", report.crosslane.clone()),
        ("Began", began.unwrap_or_default()),
        ("Processor", machine.processor.clone()),
        ("Processors", machine.processors.to_string()),
        ("Kernel", machine.kernel.clone()),
        ("Load before", format!("{:.1}", machine.load)),
        ("Stolen by the hypervisor", format!("{:.1} %", machine.steal_percent)),
        ("Idle processors", machine.idle().to_owned()),
        ("A cache line between two processors", distance.unwrap_or_default()),
        ("Turns on slowed processors", slowed.unwrap_or_default()),
    ];
    let programs: Vec<String> =
        report.programs.iter().map(|(name, version)| format!("{name} {version}")).collect();
    rows.push(("Programs", programs.join(", ")));
    rows.retain(|(_, value)| !value.is_empty());
    html! {
        h3 { "Surroundings" }
        dl { @for (name, value) in &rows { dt { (name) } dd { (visible(value)) } } }
    }
}

fn figure(id: &str, chart: &Chart) -> Result<Markup, DrawError> {
    let svg = svg(chart, id, false)?;
    Ok(html! {
        figure id=(id) {
            h3 { (visible(&chart.title)) }
            @if let Some(svg) = &svg { div.plot { (PreEscaped(svg)) } }
            figcaption { (visible(&chart.says)) }
            (table(id, chart))
        }
    })
}

fn table(id: &str, chart: &Chart) -> Markup {
    let name = format!("Values: {}", visible(&chart.title));
    let Some((head, rows)) = chart.table.split_first() else { return html! {} };
    html! {
        // A table wider than the screen is scrolled, by the keyboard too.
        div.wide role="group" tabindex="0" aria-label=(name) {
            table id={ (id) "-table" } {
                caption { (name) }
                thead { tr { @for cell in head { th scope="col" { (visible(cell)) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column == 0 { th scope="row" { (visible(cell)) } } @else { td { (visible(cell)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
