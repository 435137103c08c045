//! Messages there and back: the round trip of a program with blocking calls, whose reply is as long as its request.

use super::part::size_name;
use super::rig::{Ours, own_sides};
use super::{Plan, VARIANTS, Variant};
use crate::calm::turn;
use crate::figure::{Figure, Sample, Unit};
use crate::place::{InLab, Place};
use crate::program::LOOPBACK;
use crate::sdp::pair::{Done, Pair};
use anyhow::{Result, ensure};
use crosslane_lab::Lab;
use std::time::Duration;

/// Lines of the table.
const TURN: &str = "there and back, on the clock";
const PROGRAMS: &str = "there and back, both programs' processors";
/// The reference variant, and the least part of its speed for the others.
const DIRECT: &str = "direct";
const HALF: f64 = 0.5;

/// All variants and the kernel's TCP by turns, at one size.
pub(super) fn figures(ours: &[Ours], kernel: &Lab, size: usize, plan: &Plan) -> Result<Vec<Figure>> {
    let mut done: Vec<Vec<Done>> = vec![Vec::new(); ours.len() + 1];
    for _ in 0..plan.runs {
        for (variant, done) in ours.iter().zip(&mut done) {
            let [place, ..] = InLab::all(&variant.plain)?;
            let before = place.carried();
            done.push(turn(|| run(&place, size, plan.time))?);
            ensure!(place.carried() > before, "the connection was not accelerated");
        }
        let [.., loopback] = InLab::all(kernel)?;
        done[ours.len()].push(turn(|| run(&loopback, size, plan.time))?);
    }
    let clock = ours.first().map_or(0.0, |ours| ours.clock);
    Ok(VARIANTS
        .iter()
        .zip(&done)
        .flat_map(|(variant, runs)| of_variant(variant, size, runs, &done, clock))
        .collect())
}

fn of_variant(variant: &Variant, size: usize, runs: &[Done], all: &[Vec<Done>], clock: f64) -> [Figure; 2] {
    let group = format!("{}, {}", size_name(size), variant.name);
    let theirs = all.last().map_or(&[][..], Vec::as_slice);
    let sample = |runs: &[Done], rate: fn(&Done) -> f64| {
        Sample::new(runs.iter().map(|done| clock / rate(done)).collect())
    };
    let figure = |case, rate| {
        Figure::new(&group, case, Unit::Cycles, sample(runs, rate)).against(LOOPBACK, sample(theirs, rate))
    };
    let mut elapsed = figure(TURN, Done::rate);
    if variant.name != DIRECT {
        elapsed = elapsed.against(DIRECT, sample(&all[0], Done::rate)).bar(DIRECT, HALF, None);
    }
    [elapsed, figure(PROGRAMS, Done::per_processor)].map(Figure::by_turns)
}

/// Requests and replies of `size` bytes for a while.
fn run(place: &dyn Place, size: usize, time: Duration) -> Result<Done> {
    let size = size.to_string();
    let at = std::net::SocketAddr::new(place.address(), place.port()?);
    let [mut answers, mut asks] = own_sides(place)?;
    answers.args(["bench", "sdp", "--reply", &at.to_string(), &size, &size]);
    let pair = Pair::start(answers, |to| {
        asks.args(["bench", "sdp", "--ask", &to.to_string(), &size, &size]);
        Ok(asks)
    })?;
    pair.measure(time, None)
}
