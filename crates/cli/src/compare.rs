//! `crosslane compare`: what two results differ by, and how sure that is; how far ratios move in more of them.

use crate::args::{CompareArgs, FailOn};
use crate::exit;
use anyhow::{Context, Error, Result};
use crosslane_results::compare::{Comparison, Movement, Settings, Verdict, table};
use crosslane_results::report::Report;
use serde::Serialize;
use std::io::{Write, stdout};
use std::path::Path;

/// Prints what the results of `args` differ by.
///
/// # Errors
/// A file is no result, nothing can be compared (exit code 2); or B is worse, or differs if that is asked for (exit code 1, without a
/// text).
pub(crate) fn compare(args: &CompareArgs) -> Result<()> {
    if !args.more.is_empty() {
        return movement(args);
    }
    let settings = Settings { confidence: args.confidence, least: args.min, values: args.values };
    let comparison = Comparison::new(&read(&args.a)?, &read(&args.b)?, settings);
    print(args, &comparison, || table::table(&comparison))?;
    verdict(&comparison, args.fail_on).map_or(Ok(()), Err)
}

/// How far ratios move in three results and more.
fn movement(args: &CompareArgs) -> Result<()> {
    let paths = [&args.a, &args.b].into_iter().chain(&args.more);
    let reports = paths.map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let movement = Movement::new(&reports, args.limit);
    if movement.ratios.is_empty() {
        let text = "no ratio is in all files: give results of one command";
        return Err(exit::with_code(exit::USAGE, text));
    }
    print(args, &movement, || movement.table())?;
    let fails = args.fail_on == FailOn::Any && movement.steady() < movement.ratios.len();
    if fails { Err(exit::with_code(exit::FAILED, "")) } else { Ok(()) }
}

/// As JSON or as a table, and into the file.
fn print(args: &CompareArgs, value: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
    let json = serde_json::to_string_pretty(value)?;
    if let Some(path) = &args.out {
        std::fs::write(path, &json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{json}")?
    } else {
        write!(out, "{}", table())?
    }
    Ok(())
}

fn read(path: &Path) -> Result<Report> {
    Report::read(path).map_err(|error| exit::with_code(exit::USAGE, error.to_string()))
}

/// The error for the exit code, if it is not 0.
fn verdict(comparison: &Comparison, fail_on: FailOn) -> Option<Error> {
    if comparison.metrics.is_empty() {
        let text = "no metric is in both files: give two results of one command";
        return Some(exit::with_code(exit::USAGE, text));
    }
    if !comparison.tells() {
        let text = "nothing can be told of any metric: measure again with more --runs";
        return Some(exit::with_code(exit::USAGE, text));
    }
    let (worse, better) = (comparison.count(Verdict::Worse), comparison.count(Verdict::Better));
    let fails = match fail_on {
        FailOn::Slower => worse > 0,
        FailOn::Any => worse + better > 0,
        FailOn::Never => false,
    };
    fails.then(|| exit::with_code(exit::FAILED, ""))
}
