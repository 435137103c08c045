//! `crosslane perf put|get|atomic`: one-sided access between two programs, on one host, over one cable and over two.
//!
//! The owner and the requester ([`mod@sides`]) are copies of this process in hosts of a lab; the limits, the bare ring and one
//! cache line there and back, are measured by turns with them, on the same processors.

pub mod sides;

use super::plan::BARE;
use super::session::Session;
use super::{Case, Over};
use crate::affinity::Cores;
use crate::calm::turn;
use crate::figure::bytes;
use crate::figure::{Figure, Report, Sample, Unit};
use crate::place;
use crate::speaker::{Speaker, own_program};
use anyhow::{Context, Result};
use crosslane_lab::{Lab, Options, Preload, Topology};
use sides::{Offer, Outcome, Question};
use std::path::PathBuf;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Operation {
    /// One-sided: store into another program's memory
    Put,
    /// One-sided: load from another program's memory, which its side sends
    Get,
    /// One-sided: add to a word of another program's memory
    Atomic,
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What.
    pub operations: Vec<Operation>,
    /// Sizes of puts and gets, bytes.
    pub sizes: Vec<usize>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each run of a case lasts, ms.
    pub millis: u64,
}

/// Hosts of the owner, and how far that is from the requester on `h1`.
const PLACES: [(&str, &str); 3] =
    [("h1", "on one host"), ("h2", "over one cable"), ("h3", "over two cables")];
/// Name of the limit of an operation that is waited for.
const LINE: &str = "a line's round trip";
/// Size of an operation whose time is measured, and of an atomic one, bytes.
const WORD: usize = 8;
/// Size of a command in a ring, bytes.
const COMMAND: usize = crosslane_wire::access::COMMAND;

impl Plan {
    /// All sizes from 8 B to 8 MB, or the main ones.
    pub fn new(operations: Vec<Operation>, quick: bool) -> Self {
        let sizes =
            if quick { vec![8, 4096, 65536, 1 << 20] } else { (3..=23).map(|bits| 1 << bits).collect() };
        let (runs, millis) = if quick { (5, 20) } else { (11, 40) };
        Self { operations, sizes, runs, millis }
    }
}

/// One figure to measure: a request to the requester, and its references.
struct Measured {
    question: Question,
    group: String,
    unit: Unit,
    limit: (&'static str, Case),
}

/// Measures `plan` in a lab of its own, the two sides on `cores`.
///
/// # Errors
/// The lab does not come up, or a side fails or falls silent.
pub fn measure(plan: &Plan, cores: Cores) -> Result<Report> {
    let lab = place::up(&Options { topology: Topology::Chain, ..Options::scratch("access") })?;
    let program = own_program()?;
    let mut limits = Session::start(cores)?;
    let title = format!("One-sided access, processors {cores}, medians of {} runs", plan.runs);
    let mut report = Report::new(title);
    for (host, distance) in PLACES {
        eprintln!("  {distance}");
        let [_owner, mut requester] = sides(&lab, &program, host, cores)?;
        for measured in cases(plan, distance) {
            report.figures.push(figure(plan, &measured, &mut requester, &mut limits)?);
        }
    }
    report.gather_groups();
    report.warn_of_noise();
    if cores.is_shared() {
        report.warnings.push("both sides share one processor: times are those of switching".to_owned());
    }
    place::down(lab)?;
    Ok(report)
}

/// The owner of the memory, and the requester.
fn sides(lab: &Lab, program: &PathBuf, host: &str, cores: Cores) -> Result<[Speaker; 2]> {
    let side = |host, role: &str, what: &str| {
        let mut command = lab.command(host, Preload::Off, program)?;
        command.args(["perf", role, what, "--cores", &cores.to_string()]);
        Speaker::start(command)
    };
    let mut owner = side(host, "--own", &lab.address(host)?.to_string())?;
    let offer: Offer = owner.receive().context("the owner")?;
    let requester = side("h1", "--request", &serde_json::to_string(&offer)?)?;
    Ok([owner, requester])
}

fn cases(plan: &Plan, distance: &str) -> Vec<Measured> {
    let millis = plan.millis;
    let stream = |size| (BARE, Case::Stream { over: Over::Bare, size, millis, both: false, key: 0 });
    let mut cases = Vec::new();
    for &operation in &plan.operations {
        let name = match operation {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Atomic => "fetch_add",
        };
        let question = |size, waits| Question { operation, size, waits, millis };
        let measured = |question, what: &str, unit, limit| {
            let group = format!("{name} {distance}, {what}");
            Measured { question, group, unit, limit }
        };
        let line = (LINE, Case::Line { millis });
        cases.push(measured(question(WORD, true), "waited for", Unit::Nanoseconds, line));
        if operation == Operation::Atomic {
            cases.push(measured(question(WORD, false), "posted", Unit::PerSecond, stream(COMMAND)));
            continue;
        }
        let posted = |size| measured(question(size, false), "posted", Unit::GigabitsPerSecond, stream(size));
        cases.extend(plan.sizes.iter().map(|&size| posted(size)));
    }
    cases
}

fn figure(plan: &Plan, measured: &Measured, requester: &mut Speaker, limits: &mut Session) -> Result<Figure> {
    let (size, unit) = (measured.question.size, measured.unit);
    let (name, case) = measured.limit;
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let outcome = turn(|| {
            requester.say(&measured.question)?;
            requester.receive().context("the requester")
        })?;
        ours.push(value(outcome, size, unit));
        let (near, _) = turn(|| limits.run(|key| keyed(case, key)))?;
        limit.push(value(Outcome { seconds: near.seconds, count: near.messages }, size, unit));
    }
    let figure = Figure::new(&measured.group, bytes(size), unit, Sample::new(ours));
    Ok(figure.against(name, Sample::new(limit)).by_turns())
}

fn keyed(mut case: Case, fresh: u64) -> Case {
    if let Case::Stream { key, .. } = &mut case {
        *key = fresh;
    }
    case
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn value(outcome: Outcome, size: usize, unit: Unit) -> f64 {
    let rate = outcome.count as f64 / outcome.seconds;
    match unit {
        Unit::Nanoseconds => 1e9 / rate,
        Unit::GigabitsPerSecond => rate * size as f64 * 8e-9,
        _ => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_has_its_own_group_and_a_limit_in_its_unit() {
        let all = vec![Operation::Put, Operation::Get, Operation::Atomic];
        let cases = cases(&Plan::new(all, true), "here");
        let count = |what: &str| cases.iter().filter(|case| case.group == what).count();
        assert_eq!((count("put here, waited for"), count("get here, posted")), (1, 4));
        assert_eq!((count("fetch_add here, posted"), cases.len()), (1, 12));
        for case in cases {
            assert_eq!(case.question.waits, matches!(case.limit.1, Case::Line { .. }), "{}", case.group);
        }
    }

    #[test]
    fn case_values_are_in_their_unit() {
        let outcome = Outcome { seconds: 0.5, count: 1000 };
        let values = [Unit::Nanoseconds, Unit::PerSecond, Unit::GigabitsPerSecond];
        assert_eq!(values.map(|unit| value(outcome, 125_000, unit)), [500_000.0, 2000.0, 2.0]);
    }
}
