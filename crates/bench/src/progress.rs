//! What a terminal shows while measurements run.

use crate::figure::Figure;
use indicatif::{ProgressBar, ProgressStyle};

/// Tells figures that are not of a program that the suite has run.
pub(crate) fn show(figures: &[Figure]) {
    figures.iter().for_each(|figure| eprintln!("{}", line(figure)));
}

/// Writes a line above the progress, or to standard error where that is no terminal.
pub(crate) fn tell(progress: &ProgressBar, line: &str) {
    if progress.is_hidden() { eprintln!("{line}") } else { progress.println(line) }
}

/// One figure in one line, as it comes in.
pub(crate) fn line(figure: &Figure) -> String {
    let Figure { group, case, unit, .. } = figure;
    let Some(sample) = &figure.sample else {
        return format!("  {group}, {case}: {}", figure.missing.as_deref().unwrap_or("nothing was measured"));
    };
    let ratios = figure
        .references
        .iter()
        .filter_map(|reference| Some(format!("{:.1} x {}", figure.ratio(reference)?, reference.name)));
    let ratios: Vec<String> = ratios.collect();
    format!("  {group}, {case}: {:.1} {}  ({})", sample.median, unit.name(), ratios.join(", "))
}

/// Progress of so many steps on the terminal.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("  {bar:30} {pos}/{len}  {elapsed}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
