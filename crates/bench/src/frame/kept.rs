//! Steps of a run that are kept until all are there: a line of JSON each, behind a line that says of which run they are.

use super::Taken;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    title: String,
    version: String,
}

/// Each line behind it.
#[derive(Debug, Serialize, Deserialize)]
struct Step {
    step: String,
    #[serde(flatten)]
    taken: Taken,
}

/// What is kept of a run.
#[derive(Debug)]
pub(super) struct Kept {
    file: Option<File>,
    steps: HashMap<String, Taken>,
}

impl Kept {
    /// What is kept of the run called `title` in the file `path`, which is made if it is not there.
    ///
    /// # Errors
    /// The file is of another run, or of another release; it cannot be read or written.
    pub(super) fn open(path: Option<&Path>, title: &str) -> Result<Self> {
        let Some(path) = path else { return Ok(Self { file: None, steps: HashMap::new() }) };
        let shown = path.display();
        let head = Head { title: title.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("cannot keep steps in {shown}"))?;
        let mut lines = BufReader::new(&file).lines();
        let mut steps = HashMap::new();
        match lines.next().transpose().with_context(|| format!("cannot read {shown}"))? {
            None => writeln!(file, "{}", serde_json::to_string(&head)?)?,
            Some(line) => {
                let kept: Option<Head> = serde_json::from_str(&line).ok();
                ensure!(
                    kept.as_ref() == Some(&head),
                    "{shown} keeps steps of another run ({}): finish that one with its own options, or remove the file",
                    kept.map_or("not readable".to_owned(), |kept| kept.title)
                );
                // A run that was killed while it wrote leaves half a line; lines of nothing are in front of each step.
                for line in lines {
                    if let Ok(Step { step, taken }) = serde_json::from_str(&line?) {
                        steps.insert(step, taken);
                    }
                }
                eprintln!("  {} steps are there from a run that was interrupted ({shown})", steps.len());
            }
        }
        Ok(Self { file: Some(file), steps })
    }

    /// What a step gave, if it is there.
    pub(super) fn take(&mut self, step: &str) -> Option<Taken> {
        self.steps.remove(step)
    }

    /// Keeps a step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, step: &str, taken: &Taken) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(&Step { step: step.to_owned(), taken: taken.clone() })?;
        // One write: what a kill leaves is a whole line, or one that is not read. It begins with an end of line, in case half a line is there.
        file.write_all(format!("\n{line}\n").as_bytes()).context("cannot keep a step")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Sample, Unit};

    fn taken() -> Taken {
        let figure = Figure::new("group", "case", Unit::MegabytesPerSecond, Sample::new(vec![1.0, 2.5]));
        Taken { figures: vec![figure], notes: vec!["a note".to_owned()] }
    }

    #[test]
    fn kept_steps_are_read_again_but_for_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("partial");
        Kept::open(Some(&path), "a run").unwrap().add("one", &taken()).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"step\": \"two\", \"fig").unwrap();
        let mut again = Kept::open(Some(&path), "a run").unwrap();
        assert_eq!((again.take("one"), again.take("two")), (Some(taken()), None));
        again.add("two", &taken()).unwrap();
        let mut third = Kept::open(Some(&path), "a run").unwrap();
        assert_eq!((third.take("one"), third.take("two")), (Some(taken()), Some(taken())));
    }

    #[test]
    fn kept_steps_of_another_run_are_not_mixed_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("partial");
        Kept::open(Some(&path), "a run").unwrap();
        let error = Kept::open(Some(&path), "another run").unwrap_err().to_string();
        assert!(error.contains("a run") && error.contains("remove"), "{error}");
        std::fs::write(&path, "rubbish\n").unwrap();
        assert!(Kept::open(Some(&path), "a run").is_err());
    }
}
