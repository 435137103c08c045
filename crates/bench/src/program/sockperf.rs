//! sockperf: one request and one reply of 14 bytes, its shortest, over one TCP connection.

use super::process::{Server, run};
use super::{Metric, Program};
use crate::figure::Unit;
use anyhow::{Context, Result};
use std::time::Duration;

/// More round trips in a second than there can be. Without it sockperf makes room for 600000, which a stream exceeds,
/// and then gives up.
const RATE: &str = "--mps=4000000";

pub(super) const METRICS: &[Metric] = &[
    Metric::new("round trip, mean", Unit::Microseconds).bar(25.0, Some(50.0)),
    Metric::new("round trip, median", Unit::Microseconds),
    Metric { other: Some(1), ..Metric::new("round trip, p99", Unit::Microseconds) }.bar(1.0, None),
];

/// Ping-pong of 14 bytes.
pub const SOCKPERF: Program = Program {
    name: "sockperf",
    needs: &["sockperf"],
    metrics: METRICS,
    serve: |place, port| {
        let mut command = place.server("sockperf")?;
        command.args(["sr", "--tcp", "-i", &place.address().to_string(), "-p", &port.to_string()]);
        Server::start(command, port)
    },
    measure: |place, port, effort| {
        let seconds = effort.seconds();
        let mut command = place.client("sockperf")?;
        command.args(["ping-pong", "--tcp", "-i", &place.address().to_string(), "-p", &port.to_string()]);
        command.args(["-m", "14", "-t", &seconds.to_string(), "--full-rtt", RATE]);
        parse(&run(command, Duration::from_secs(u64::from(seconds) + 15))?)
    },
};

/// Mean, median and 99th percentile of the round trip, us.
fn parse(out: &str) -> Result<Vec<f64>> {
    let number = |before| number(out, before);
    Ok(vec![number("Round trip is")?, number("percentile 50.000")?, number("percentile 99.000")?])
}

/// The number behind the first `before`.
pub(crate) fn number(out: &str, before: &str) -> Result<f64> {
    let rest = out.split_once(before).with_context(|| format!("sockperf printed no {before:?}"))?.1;
    let word = rest.trim_start_matches([' ', '=']).split(|c: char| c.is_whitespace()).next();
    word.unwrap_or_default().parse().with_context(|| format!("no number after {before:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockperf_mean_and_percentiles_are_parsed() {
        assert_eq!(parse(include_str!("../captured/sockperf.txt")).unwrap(), [11.909, 11.256, 12.518]);
        assert!(parse("sockperf: Test end").is_err());
    }
}
