//! Ways over several cables: the cost of each further cable, the cost of safety, and how long streams are without a way
//! when a cable is lost.

mod loss;
mod safety;
mod ways;

use crate::compare::{Outcome, Setting, by_turns};
use crate::figure::Figure;
use crate::frame::Taken;
use crate::place::{InLab, Place};
use crate::program::Program;
use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;

/// A part of the run, and its name for `--only`.
type Part = (&'static str, fn(&Setting, &ProgressBar) -> Result<Vec<Judged>>);

const PARTS: [Part; 3] = [("transit", ways::measure), ("safety", safety::measure), ("loss", loss::measure)];

/// A figure, and over how many cables its way leads.
#[derive(Debug)]
struct Judged {
    figure: Figure,
    /// Its bar counts only where sender, receiver and each pump between them have a processor; 0: it counts always.
    cables: usize,
}

impl From<Figure> for Judged {
    fn from(figure: Figure) -> Self {
        Self { figure, cables: 0 }
    }
}

/// Names of the parts.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.into_iter().map(|(name, _)| name)
}

/// Measures the part of this name.
///
/// # Errors
/// There is no such part, its lab does not come up, or a program fails.
pub fn measure(part: &str, setting: &Setting, progress: &ProgressBar) -> Result<Taken> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (_, measure) = PARTS.into_iter().find(|(name, _)| *name == part).context("there is no such part")?;
    let (judged, mut notes) = (measure(setting, progress)?, Vec::new());
    let figures = judged.into_iter().map(|one| one.judge(processors, &mut notes)).collect();
    Ok(Taken { figures, notes })
}

impl Judged {
    /// The figure; without its bar, and with a note, on too few processors.
    fn judge(mut self, processors: usize, notes: &mut Vec<String>) -> Figure {
        let threads = self.cables + 1;
        if self.cables > 0 && threads > processors {
            let Figure { group, case, .. } = &self.figure;
            notes.push(format!("{group}, {case}: no bar, {threads} threads share {processors} processors"));
            self.figure.bar = None;
        }
        self.figure
    }
}

/// One metric of `program` at all `places`, by turns: the runs of each.
fn runs(
    program: &Program,
    metric: usize,
    places: &[InLab<'_>],
    (setting, progress): (&Setting, &ProgressBar),
) -> Result<Vec<Vec<f64>>> {
    let outcomes = by_turns(program, places, setting, progress);
    let one = |(place, outcome): (&InLab<'_>, Outcome)| {
        let runs = outcome.map_err(|why| anyhow!("{} over {}: {why}", program.name, place.name()))?;
        let mut columns = runs.columns;
        (metric < columns.len()).then(|| columns.swap_remove(metric)).context("no such metric")
    };
    places.iter().zip(outcomes).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Sample, Unit};

    #[test]
    fn bar_counts_where_each_thread_has_a_processor() {
        let judged = |cables| {
            let figure = Figure::new("g", "c", Unit::PerSecond, Sample::new(vec![1.0]));
            Judged { figure: figure.against("x", Sample::new(vec![2.0])).bar("x", 0.6, None), cables }
        };
        let mut notes = Vec::new();
        assert_eq!(judged(3).judge(4, &mut notes).meets_bar(), Some(false));
        assert_eq!(judged(0).judge(1, &mut notes).meets_bar(), Some(false));
        assert!(notes.is_empty());
        assert_eq!(judged(4).judge(4, &mut notes).meets_bar(), None);
        assert_eq!(notes, ["g, c: no bar, 5 threads share 4 processors"]);
    }
}
