//! iperf3: one stream, writes of 128 KB.

use super::process::{Server, run};
use super::{Effort, Metric, Place, Program};
use crate::figure::Unit;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::Command;
use std::thread;
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
    measure,
};

/// One run: Gb/s.
fn measure(place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
    Ok(vec![rate(client(place, port, effort)?, effort)?])
}

/// Two clients at once, each a process, with a server for each, the second one at the next port: Gb/s of both. One process alone stores by
/// one way at a time, as a processor does, which waits where a link has no credit.
pub(crate) fn measure_two(place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
    let second = port.checked_add(1).context("there is no next port")?;
    let _server = (IPERF3.serve)(place, second)?;
    let [one, other] = [client(place, port, effort)?, client(place, second, effort)?];
    let [one, other] = thread::scope(|scope| {
        let other = scope.spawn(|| rate(other, effort));
        [rate(one, effort), other.join().unwrap_or_else(|_| bail!("a thread has panicked"))]
    });
    Ok(vec![one? + other?])
}

fn client(place: &dyn Place, port: u16, effort: Effort) -> Result<Command> {
    let mut command = place.client("iperf3")?;
    command.args(["-c", &place.address().to_string(), "-p", &port.to_string()]);
    command.args(["-t", &effort.seconds().to_string(), "-l", "128K", "-J"]);
    Ok(command)
}

fn rate(client: Command, effort: Effort) -> Result<f64> {
    parse(&run(client, Duration::from_secs(u64::from(effort.seconds()) + 15))?)
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
