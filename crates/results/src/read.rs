//! Reading the file of a result: strict, so that nothing is compared or drawn that means something else.

use crate::report::{Report, VERSION};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file that is read, bytes. The largest results have less than a tenth.
const MOST: u64 = 16 << 20;
/// Most figures of a result.
const FIGURES: usize = 20_000;

/// Why a file is no result.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// It is read, and is none.
    #[error("{}: {why}", path.display())]
    NoResult {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: NoResult,
    },
}

/// Why a text is no result, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum NoResult {
    /// It is too long.
    #[error("larger than {} MB: not a result; give a file that `crosslane perf`, `bench` or `demo` wrote with --out", MOST >> 20)]
    Large,
    /// It is not JSON, or not an object.
    #[error(
        "not JSON of a result ({0}); give a file that `crosslane perf`, `bench` or `demo` wrote with --out"
    )]
    NotJson(serde_json::Error),
    /// It has no version.
    #[error(
        "has no `version`: not a result, or one of a crosslane that did not write it yet; measure again with --out"
    )]
    NoVersion,
    /// It has another version.
    #[error(
        "is of version {0} of this form, and this crosslane reads version {VERSION}; use the crosslane that wrote it, or measure again"
    )]
    OtherVersion(u64),
    /// It does not have the fields of a result.
    #[error("not a result ({0}); was it edited? measure again with --out")]
    Fields(serde_json::Error),
    /// It has more figures than any result.
    #[error("has {0} figures, more than a result has ({FIGURES})")]
    Figures(usize),
}

impl NoResult {
    fn of(self, path: &Path) -> ReadError {
        ReadError::NoResult { path: path.to_owned(), why: self }
    }
}

/// What is looked at first.
#[derive(Deserialize)]
struct Head {
    version: Option<u64>,
}

impl Report {
    /// The result in the file `path`, which [`crate::export::json`] made.
    ///
    /// # Errors
    /// The file cannot be read, is too large, is not JSON, has no version or another one, or does not fit.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let mut text = String::new();
        let unread = |error| ReadError::Unread { path: path.to_owned(), error };
        let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
        match read {
            Ok(_) => Self::from_json(&text).map_err(|why| why.of(path)),
            // Bytes that are no text.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(NoResult::NotJson(serde_json::Error::io(error)).of(path))
            }
            Err(error) => Err(unread(error)),
        }
    }

    /// The result that `text` holds.
    ///
    /// # Errors
    /// As [`Report::read`].
    pub fn from_json(text: &str) -> Result<Self, NoResult> {
        if text.len() as u64 > MOST {
            return Err(NoResult::Large);
        }
        let head: Head = serde_json::from_str(text).map_err(NoResult::NotJson)?;
        match head.version {
            Some(VERSION) => {}
            Some(other) => return Err(NoResult::OtherVersion(other)),
            None => return Err(NoResult::NoVersion),
        }
        let report: Self = serde_json::from_str(text).map_err(NoResult::Fields)?;
        if report.figures.len() > FIGURES {
            return Err(NoResult::Figures(report.figures.len()));
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::json;
    use crate::figure::{Bar, Compared, Figure, Reference};
    use crate::machine::Machine;
    use crate::sample::Sample;
    use crate::unit::Unit;
    use proptest::collection::{btree_map, vec};
    use proptest::option;
    use proptest::prelude::*;

    fn sample() -> impl Strategy<Value = Sample> {
        let run = prop_oneof![-1e12..1e12f64, 0.0..1.0f64, Just(0.0), Just(f64::MIN_POSITIVE)];
        let factor = prop_oneof![Just(1.0), 0.1..10.0f64];
        (vec(run, 1..12), factor).prop_map(|(runs, factor)| Sample::new(runs).unwrap().scaled(factor))
    }

    fn figure() -> impl Strategy<Value = Figure> {
        let compared = prop_oneof![Just(Compared::ByTurns), Just(Compared::ByMedians), Just(Compared::Not)];
        let reference = (".*", sample(), compared);
        let reference = reference.prop_map(|(name, sample, compared)| Reference { name, sample, compared });
        let bar = (".*", 0.0..9.0f64, option::of(0.0..9.0f64));
        let bar = bar.prop_map(|(against, bar, goal)| Bar { against, bar, goal });
        let unit = proptest::sample::select(Unit::ALL.to_vec());
        let kept = (option::of(0.0..100.0f64), option::of(".*"));
        ((".*", ".*", unit), option::of(sample()), vec(reference, 0..3), option::of(bar), kept).prop_map(
            |((group, case, unit), sample, references, bar, (steal, missing))| Figure {
                group,
                case,
                unit,
                sample,
                missing,
                references,
                bar,
                steal,
            },
        )
    }

    fn report() -> impl Strategy<Value = Report> {
        let kept = (any::<bool>(), option::of(0.0..999.0f64), option::of(0.0..99.0f64));
        let machine = (".*", any::<u8>(), ".*", 0.0..99.0f64, 0.0..99.0f64, kept);
        let machine = machine.prop_map(
            |(processor, processors, kernel, load, steal_percent, (awake, distance_ns, slowed_percent))| {
                Machine {
                    processor,
                    processors: processors.into(),
                    kernel,
                    load,
                    steal_percent,
                    awake,
                    distance_ns,
                    slowed_percent,
                }
            },
        );
        let texts = (".*", ".*", vec(".*", 0..4), btree_map(".*", ".*", 0..3), vec(".*", 0..3));
        (texts, any::<u64>(), machine, vec(figure(), 0..6)).prop_map(
            |((title, crosslane, command, programs, warnings), started, machine, figures)| Report {
                version: VERSION,
                title,
                crosslane,
                command,
                started,
                programs,
                machine,
                cables: vec![[1, 2]],
                figures,
                warnings,
                began: None,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn result_reads_back_as_it_was_written(report in report()) {
            prop_assert_eq!(Report::from_json(&json(&report).unwrap()).unwrap(), report);
        }

        #[test]
        fn result_reader_takes_any_text(text in ".*") {
            prop_assert!(Report::from_json(&text).is_err());
        }
    }

    fn text() -> String {
        json(&Report::new("a run").ended()).unwrap()
    }

    fn refusal(text: &str) -> String {
        Report::from_json(text).unwrap_err().to_string()
    }

    #[test]
    fn result_that_is_none_says_what_to_do() {
        for (text, words) in [
            ("", "not JSON"),
            ("[1]", "not a result"),
            ("{}", "no `version`"),
            (r#"{"version":2}"#, "this crosslane reads version 1"),
            (r#"{"version":1}"#, "missing field"),
            (&text().replace("\"load\"", "\"lode\""), "lode"),
            (&" ".repeat(1 + (16 << 20)), "larger than 16 MB"),
        ] {
            let said = refusal(text);
            assert!(said.contains(words) && (said.contains("measure") || said.contains("--out")), "{said}");
        }
    }

    #[test]
    fn result_of_endless_depth_or_figures_is_refused() {
        refusal(&"[".repeat(1 << 20));
        let mut report = Report::new("many");
        report.figures = vec![Figure::new("a", "b", Unit::Cycles, None); FIGURES + 1];
        assert!(refusal(&json(&report).unwrap()).contains("20001 figures"));
    }

    #[test]
    fn result_file_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        let read = || Report::read(&path).map_err(|error| error.to_string());
        assert!(read().unwrap_err().contains("x.json: No such file"));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read().unwrap_err().contains("x.json: not JSON"));
        std::fs::write(&path, text()).unwrap();
        assert_eq!(read().unwrap().title, "a run");
        assert!(Report::read(folder.path()).unwrap_err().to_string().contains("Is a directory"));
    }
}
