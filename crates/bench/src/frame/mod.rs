//! The one frame of experiments: their options, their steps with progress, and what is kept of a run that was interrupted.
//!
//! An experiment says which steps it has and takes one; the frame goes through them, shows how far it is, turns a step that fails into a figure
//! that says why, and keeps what was measured beside the file that `--out` names, until all is there.

pub mod args;
mod kept;
pub mod shared;

use crate::figure::{Figure, Report};
use crate::progress::{USUAL, line, print, progress};
use anyhow::Result;
use indicatif::ProgressBar;
use kept::Kept;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a step gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Notes for who reads them.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl From<Vec<Figure>> for Taken {
    fn from(figures: Vec<Figure>) -> Self {
        Self { figures, notes: Vec::new() }
    }
}

/// Something that is measured in steps.
pub trait Experiment {
    /// What was run, with all that figures depend on: a run that was interrupted is only continued by one of the same title.
    fn title(&self) -> String;

    /// Names of its steps, all different, in their order.
    fn steps(&self) -> Vec<String>;

    /// Takes a step, by its place in [`Self::steps`]; `progress` may get messages. A lab that this needs is brought up now, and may stay up for the
    /// next step ([`shared`]). An error makes a figure without a value of this step.
    ///
    /// # Errors
    /// Whatever keeps the step from giving figures.
    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken>;

    /// Adds what only all figures together give.
    fn conclude(&self, _report: &mut Report) {}
}

/// Takes all steps of an experiment; returns its report, and how many steps failed. `kept`: the file in which steps are kept while others
/// are still to come, if any.
///
/// # Errors
/// What was kept cannot be read, or not be written.
pub fn measure(experiment: &mut dyn Experiment, kept: Option<&Path>) -> Result<(Report, usize)> {
    let (title, steps) = (experiment.title(), experiment.steps());
    let mut kept = Kept::open(kept, &title)?;
    let (mut report, mut failed) = (Report::new(title), 0);
    let progress = progress(steps.len() as u64, USUAL);
    for (number, step) in steps.iter().enumerate() {
        progress.set_message(step.clone());
        let taken = match kept.take(step) {
            Some(taken) => taken,
            None => match experiment.take(number, &progress) {
                Ok(taken) => {
                    kept.add(step, &taken)?;
                    taken
                }
                // It is tried again by a run that continues this one.
                Err(why) => {
                    failed += 1;
                    vec![Figure::failed(step, &why)].into()
                }
            },
        };
        taken.figures.iter().for_each(|figure| print(&progress, &line(figure)));
        report.figures.extend(taken.figures);
        report.warnings.extend(taken.notes);
        progress.inc(1);
    }
    progress.finish_and_clear();
    report.gather_groups();
    report.warn_of_noise();
    experiment.conclude(&mut report);
    Ok((report, failed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Sample, Unit};
    use anyhow::bail;

    /// Three steps, of which one fails at first.
    #[derive(Default)]
    struct Three {
        taken: Vec<usize>,
        broken: bool,
    }

    impl Experiment for Three {
        fn title(&self) -> String {
            "three steps".to_owned()
        }

        fn steps(&self) -> Vec<String> {
            ["a", "b", "c"].map(str::to_owned).to_vec()
        }

        fn take(&mut self, step: usize, _: &ProgressBar) -> Result<Taken> {
            self.taken.push(step);
            if self.broken && step == 1 {
                bail!("the lab is dead");
            }
            let (case, sample) = (self.steps()[step].clone(), Sample::new(vec![7.0]));
            let figures = vec![Figure::new("group", case, Unit::PerSecond, sample)];
            Ok(Taken { figures, notes: vec![format!("note {step}")] })
        }

        fn conclude(&self, report: &mut Report) {
            report.warnings.push(format!("{} figures", report.figures.len()));
        }
    }

    #[test]
    fn frame_goes_on_where_a_run_was_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json.partial");
        let mut first = Three { broken: true, ..Three::default() };
        let (report, failed) = measure(&mut first, Some(&path)).unwrap();
        assert_eq!((&first.taken[..], failed), (&[0, 1, 2][..], 1));
        let missing = report.find("b", "all").unwrap().missing.as_deref();
        assert_eq!(missing, Some("the lab is dead"));
        assert!(report.warnings.iter().any(|note| note == "3 figures"));

        let mut second = Three::default();
        let (report, failed) = measure(&mut second, Some(&path)).unwrap();
        assert_eq!((&second.taken[..], failed), (&[1][..], 0));
        assert_eq!(report.find("group", "c").unwrap().median(), Some(7.0));
        assert!(report.warnings.iter().any(|note| note == "note 2"), "what was kept has its notes");
    }

    #[test]
    fn frame_keeps_nothing_where_nothing_is_to_be_written() {
        let mut all = Three::default();
        measure(&mut all, None).unwrap();
        let mut again = Three::default();
        measure(&mut again, None).unwrap();
        assert_eq!(again.taken, [0, 1, 2]);
    }
}
