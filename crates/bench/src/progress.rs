//! The terminal's display while measurements run.

use crate::figure::{Figure, Reference};
use indicatif::{ProgressBar, ProgressStyle};

/// Writes a line above the progress, or to standard error where that is no terminal.
pub(crate) fn print(progress: &ProgressBar, line: &str) {
    if progress.is_hidden() { eprintln!("{line}") } else { progress.println(line) }
}

/// One figure in one line, when it is complete.
pub(crate) fn line(figure: &Figure) -> String {
    let Figure { group, case, unit, .. } = figure;
    let Some(sample) = &figure.sample else {
        return format!("  {group}, {case}: {}", figure.missing.as_deref().unwrap_or("nothing was measured"));
    };
    let ratio = |to: &Reference| Some(format!("{:.1} x {}", figure.ratio(to)?, to.name));
    let ratios: Vec<String> = figure.references.iter().filter_map(ratio).collect();
    format!("  {group}, {case}: {:.1} {}  ({})", sample.median, unit.name(), ratios.join(", "))
}

/// The display of progress while its end is unknown.
pub(crate) const USUAL: &str = "  {bar:30} {pos}/{len}  {elapsed}  {msg}";

/// Progress of so many steps on the terminal.
pub(crate) fn progress(steps: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
