//! `crosslane bench all`: one experiment after the other, in one report, whose groups begin with the experiment's name.

pub mod args;
mod parts;

use crate::figure::{Figure, Report};
use crate::frame::args::Common;
use crate::frame::{Experiment, Taken};
use anyhow::Result;
use indicatif::ProgressBar;
pub use parts::{PARTS, Part};

/// All of them, or those that were chosen.
pub struct All {
    parts: Vec<Part>,
    common: Common,
    /// Part and step within it of each step.
    steps: Vec<(usize, usize)>,
    names: Vec<String>,
    /// The experiment that is under way, which may have labs, and its place in `parts`.
    current: Option<(usize, Box<dyn Experiment>)>,
}

impl All {
    /// These parts.
    pub fn new(parts: Vec<Part>, common: Common) -> Self {
        let (mut steps, mut names) = (Vec::new(), Vec::new());
        for (number, part) in parts.iter().enumerate() {
            for (step, name) in (part.make)(&common).steps().into_iter().enumerate() {
                steps.push((number, step));
                names.push(format!("{}: {name}", part.name));
            }
        }
        Self { parts, common, steps, names, current: None }
    }

    /// The experiment of a part; one that is under way and not this one is let go, with its labs.
    fn experiment(&mut self, part: usize) -> &mut dyn Experiment {
        self.current.take_if(|(current, _)| *current != part);
        let make = || (part, (self.parts[part].make)(&self.common));
        self.current.get_or_insert_with(make).1.as_mut()
    }
}

impl Experiment for All {
    fn title(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name).collect();
        let quick = if self.common.quick { " --quick" } else { "" };
        let runs = self.common.runs.map(|runs| format!(" --runs {runs}")).unwrap_or_default();
        format!("crosslane bench all{quick}{runs}: {}", names.join(", "))
    }

    fn steps(&self) -> Vec<String> {
        self.names.clone()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let (part, step) = self.steps[step];
        let name = self.parts[part].name;
        let Taken { mut figures, notes } = self.experiment(part).take(step, progress)?;
        figures.iter_mut().for_each(|figure| figure.group = format!("{name}: {}", figure.group));
        Ok(Taken { figures, notes: notes.into_iter().map(|note| format!("{name}: {note}")).collect() })
    }

    fn conclude(&self, report: &mut Report) {
        for part in &self.parts {
            conclude(part, (part.make)(&self.common).as_ref(), report);
        }
    }
}

/// Has an experiment conclude on its own figures and notes, as if it were alone.
fn conclude(part: &Part, experiment: &dyn Experiment, report: &mut Report) {
    let prefix = format!("{}: ", part.name);
    let mut own = Report { figures: Vec::new(), warnings: Vec::new(), ..report.clone() };
    let is_own = |figure: &Figure| figure.group.starts_with(&prefix);
    let at = report.figures.iter().position(is_own).unwrap_or(report.figures.len());
    own.figures.extend(report.figures.extract_if(.., |figure| figure.group.starts_with(&prefix)));
    for figure in &mut own.figures {
        figure.group.drain(..prefix.len());
    }
    let notes = report.warnings.extract_if(.., |note| note.starts_with(&prefix));
    own.warnings.extend(notes.map(|note| note[prefix.len()..].to_owned()));
    experiment.conclude(&mut own);
    for figure in &mut own.figures {
        figure.group.insert_str(0, &prefix);
    }
    report.figures.splice(at..at, own.figures);
    report.warnings.extend(own.warnings.into_iter().map(|note| format!("{prefix}{note}")));
    report.programs.extend(own.programs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Sample, Unit};
    use crate::frame::measure;
    use std::cell::Cell;

    thread_local! {
        /// How many of these experiments hold a lab now.
        static LABS: Cell<usize> = const { Cell::new(0) };
    }

    /// Two steps on a lab, of which one fails in a quick run.
    #[derive(Default)]
    struct Two {
        quick: bool,
        lab: bool,
    }

    impl Drop for Two {
        fn drop(&mut self) {
            LABS.set(LABS.get() - usize::from(self.lab));
        }
    }

    impl Experiment for Two {
        fn title(&self) -> String {
            "two".to_owned()
        }

        fn steps(&self) -> Vec<String> {
            ["x", "y"].map(str::to_owned).to_vec()
        }

        fn take(&mut self, step: usize, _: &ProgressBar) -> Result<Taken> {
            LABS.set(LABS.get() + usize::from(!self.lab));
            self.lab = true;
            assert_eq!(LABS.get(), 1, "the lab of the experiment before is gone");
            anyhow::ensure!(step == 0 || !self.quick, "no such tool");
            let figure =
                Figure::new("group", self.steps()[step].clone(), Unit::PerSecond, Sample::new(vec![1.0]));
            Ok(Taken { figures: vec![figure], notes: vec!["a note".to_owned()] })
        }

        fn conclude(&self, report: &mut Report) {
            assert!(report.figures.iter().all(|figure| !figure.group.contains("a: ")), "{report:?}");
            report.warnings.push(format!("{} figures", report.figures.len()));
        }
    }

    fn parts() -> Vec<Part> {
        let make =
            |common: &Common| -> Box<dyn Experiment> { Box::new(Two { quick: common.quick, lab: false }) };
        ["a", "b"].map(|name| Part { name, make, is_slow: false }).to_vec()
    }

    #[test]
    fn all_has_each_part_under_its_name_and_one_lab_at_a_time() {
        let (report, failed) = measure(&mut All::new(parts(), Common::default()), None).unwrap();
        let groups: Vec<_> = report.figures.iter().map(|figure| figure.group.as_str()).collect();
        assert_eq!((groups, failed), (vec!["a: group", "a: group", "b: group", "b: group"], 0));
        for note in ["a: a note", "b: a note", "a: 2 figures", "b: 2 figures"] {
            assert!(report.warnings.iter().any(|there| there == note), "{note}: {:?}", report.warnings);
        }
    }

    #[test]
    fn all_goes_on_behind_a_part_that_fails() {
        let (report, failed) =
            measure(&mut All::new(parts(), Common { quick: true, ..Common::default() }), None).unwrap();
        assert_eq!(failed, 2);
        let missing = |group: &str| report.find(group, "all").and_then(|figure| figure.missing.clone());
        assert_eq!(missing("a: y").as_deref(), Some("no such tool"));
        assert!(report.find("b: group", "x").is_some());
    }

    #[test]
    fn all_parts_have_different_names_and_steps() {
        for quick in [false, true] {
            let mut names = All::new(PARTS.to_vec(), Common { quick, ..Common::default() }).steps();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
