//! `crosslane report`: a page of results.

use crate::args::ReportArgs;
use crate::exit;
use anyhow::{Context, Result};
use crosslane_report::draw;
use crosslane_report::page::{Section, page};
use crosslane_results::report::Report;
use std::fs;
use std::path::Path;

/// Writes the page of the results in `args`, and their plots if they are asked for.
///
/// # Errors
/// A file is no result (exit code 2), or nothing can be written.
pub(crate) fn report(args: &ReportArgs) -> Result<()> {
    let read = |path: &std::path::PathBuf| {
        Report::read(path).map_err(|error| exit::with_code(exit::USAGE, error.to_string()))
    };
    let results = args.results.iter().map(read).collect::<Result<Vec<_>>>()?;
    let sections: Vec<Section<'_>> = results.iter().map(Section::new).collect();
    write(&args.out, &page(&sections)?)?;
    if let Some(folder) = &args.plots {
        plots(&sections, folder)?;
    }
    println!("{}", args.out.display());
    Ok(())
}

/// Each plot as `RESULT-PLOT.svg`, both counted from 1 as on the page.
fn plots(sections: &[Section<'_>], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (result, section) in (1..).zip(sections) {
        for (number, chart) in (1..).zip(&section.charts) {
            let Some(svg) = draw::svg(chart, &format!("r{result}c{number}"), true)? else { continue };
            write(&folder.join(format!("{result}-{number}.svg")), &svg)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
