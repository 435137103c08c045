//! iperf3: one stream, writes of 128 KB.

use super::process::{Server, run};
use super::{Effort, Metric, Place, Program};
use crate::figure::Unit;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::time::Duration;

pub(super) const METRICS: &[Metric] =
    &[Metric::new("one stream, 128 KB writes", Unit::GigabitsPerSecond).bar(4.0, Some(8.0))];

/// One stream, writes of 128 KB.
pub const IPERF3: Program = Program {
    name: "iperf3",
    needs: &["iperf3"],
    metrics: METRICS,
    serve: |place, port| {
        let mut command = place.server("iperf3")?;
        command.args(["-s", "-p", &port.to_string()]);
        Server::start(command, port)
    },
    measure: |place, port, effort| measure(place, port, effort, &[]),
};

/// One run with the options `more`, writes of 128 KB: Gb/s of all its streams.
pub(crate) fn measure(place: &dyn Place, port: u16, effort: Effort, more: &[&str]) -> Result<Vec<f64>> {
    let seconds = effort.seconds();
    let mut command = place.client("iperf3")?;
    command.args(["-c", &place.address().to_string(), "-p", &port.to_string()]);
    command.args(["-t", &seconds.to_string(), "-l", "128K", "-J"]).args(more);
    let out = run(command, Duration::from_secs(u64::from(seconds) + 15))?;
    Ok(vec![parse(&out)?])
}

/// Gb/s as the receiver saw them.
pub(crate) fn parse(out: &str) -> Result<f64> {
    let value: Value = serde_json::from_str(out).context("iperf3 printed no JSON")?;
    if let Some(error) = value["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let rate = value["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("iperf3 gave no rate")? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_receivers_rate_is_parsed() {
        let rate = parse(include_str!("../captured/iperf3.json")).unwrap();
        assert!((rate - 22.329).abs() < 0.01, "{rate}");
    }

    #[test]
    fn iperf3_errors_are_passed_on() {
        let error = parse(include_str!("../captured/iperf3-refused.json")).unwrap_err().to_string();
        assert!(error.contains("Connection refused"), "{error}");
        assert!(parse("").is_err());
    }
}
