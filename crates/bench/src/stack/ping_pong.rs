//! Messages there and back: what a program that waits for its answer sees, as long as the question, with blocking calls.

use super::part::size_name;
use super::rig::Ours;
use super::{Plan, VARIANTS, Variant};
use crate::figure::{Figure, Sample, Unit};
use crate::place::{InLab, Place};
use crate::program::LOOPBACK;
use crate::sdp::pair::{Done, Pair};
use anyhow::{Context, Result, ensure};
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_lab::Lab;
use std::time::Duration;

/// Lines of the table.
const TURN: &str = "there and back, on the clock";
const PROGRAMS: &str = "there and back, both programs' processors";
/// The variant that others are held against, and how much of its speed they must keep.
const DIRECT: &str = "direct";
const HALF: f64 = 0.5;

/// All variants and the kernel's TCP by turns, at one size.
pub(super) fn figures(ours: &[Ours], kernel: &Lab, size: usize, plan: &Plan) -> Result<Vec<Figure>> {
    let mut done: Vec<Vec<Done>> = vec![Vec::new(); ours.len() + 1];
    for _ in 0..plan.runs {
        for (variant, done) in ours.iter().zip(&mut done) {
            let [place, ..] = InLab::all(variant.plain())?;
            let before = place.carried();
            done.push(run(&place, size, plan.time)?);
            ensure!(place.carried() > before, "the connection was not accelerated");
        }
        let [.., loopback] = InLab::all(kernel)?;
        done[ours.len()].push(run(&loopback, size, plan.time)?);
    }
    let clock = ours.first().map_or(0.0, Ours::clock);
    Ok(VARIANTS
        .iter()
        .zip(&done)
        .flat_map(|(variant, runs)| of_variant(variant, size, runs, &done, clock))
        .collect())
}

fn of_variant(variant: &Variant, size: usize, runs: &[Done], all: &[Vec<Done>], clock: f64) -> Vec<Figure> {
    let group = format!("{}, {}", size_name(size), variant.name);
    let (direct, theirs) = (&all[0][..], all.last().map_or(&[][..], Vec::as_slice));
    let elapsed = |runs: &[Done]| Sample::new(runs.iter().map(|done| clock / done.rate()).collect());
    let processors =
        |runs: &[Done]| Sample::new(runs.iter().map(|done| clock / done.per_processor()).collect());
    let mut elapsed_figure =
        Figure::new(&group, TURN, Unit::Cycles, elapsed(runs)).against(LOOPBACK, elapsed(theirs));
    if variant.name != DIRECT {
        elapsed_figure = elapsed_figure.against(DIRECT, elapsed(direct)).bar(DIRECT, HALF, None);
    }
    let processors_figure =
        Figure::new(&group, PROGRAMS, Unit::Cycles, processors(runs)).against(LOOPBACK, processors(theirs));
    vec![elapsed_figure, processors_figure]
}

/// Questions and answers of `size` bytes for a while.
fn run(place: &dyn Place, size: usize, time: Duration) -> Result<Done> {
    let program = std::env::current_exe().context("cannot find my own program")?;
    let program = program.to_str().context("my own path is no text")?;
    let size = size.to_string();
    let at = std::net::SocketAddr::new(place.address(), place.port()?);
    let mut answers = place.server(program)?;
    answers.env(OWN_CALLS_VARIABLE, FILES).args(["bench", "sdp", "--reply", &at.to_string(), &size, &size]);
    let pair = Pair::start(answers, |to| {
        let mut asks = place.client(program)?;
        asks.env(OWN_CALLS_VARIABLE, FILES).args(["bench", "sdp", "--ask", &to.to_string(), &size, &size]);
        Ok(asks)
    })?;
    pair.measure(time, None)
}
