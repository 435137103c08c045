//! Processor time of what idles.

use crate::figure::{Figure, Sample, Unit};
use crate::frame::Taken;
use crate::place::{self, InLab, daemons};
use crate::program;
use anyhow::{Result, ensure};
use crosslane_lab::{Lab, Options};
use std::time::Duration;

/// Connections of the idle case, and how long they are watched.
const CONNECTIONS: u32 = 100;
const TIME: Duration = Duration::from_secs(5);
/// Most of one processor that idle connections may use, percent.
const BAR: f64 = 1.0;
/// Hosts of the ring that idles, and the most of one processor that all its daemons may use, percent.
const RING: u8 = 8;
const RING_BAR: f64 = 2.0;
/// Percent of a processor that count as nothing.
const LEAST: f64 = 0.01;
/// Runs at most: each is long.
const RUNS: usize = 3;

/// A ring in which nothing moves.
pub(super) fn ring(runs: usize) -> Result<Taken> {
    let lab = place::up(&Options { hosts: RING, ..Options::scratch("idle") })?;
    let daemons = daemons(&lab);
    ensure!(daemons.len() == usize::from(RING), "not all daemons run");
    let values = (0..runs.min(RUNS)).map(|_| program::used(&daemons, TIME)).collect::<Result<_>>()?;
    place::down(lab)?;
    Ok(vec![figure("idle ring", format!("{RING} daemons in a ring"), RING_BAR, values)].into())
}

/// Connections on which nothing moves.
pub(super) fn connections(lab: &Lab, remark: &str, runs: usize) -> Result<Taken> {
    let (daemons, place) = (daemons(lab), &InLab::all(lab)?[0]);
    let case = format!("{CONNECTIONS} connections, {} daemons and both programs", daemons.len());
    let measured = (0..runs.min(RUNS)).map(|_| program::idle(place, CONNECTIONS, TIME, &daemons));
    Ok(vec![figure(&format!("idle{remark}"), case, BAR, measured.collect::<Result<_>>()?)].into())
}

/// Processor time held against `limit` percent of a processor.
fn figure(group: &str, case: String, limit: f64, values: Vec<f64>) -> Figure {
    let name = format!("limit of {limit} %");
    // A value of 0 would have no ratio to the limit.
    let values = values.into_iter().map(|value| value.max(LEAST)).collect();
    let figure = Figure::new(group, case, Unit::PercentOfCore, Sample::new(values));
    figure.against(&name, Sample::new(vec![limit])).bar(&name, 1.0, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_bar_is_the_limit() {
        let met = |values| figure("idle", String::new(), 2.0, values).meets_bar();
        assert_eq!((met(vec![0.0, 1.9, 0.1]), met(vec![2.1])), (Some(true), Some(false)));
    }
}
