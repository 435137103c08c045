//! What programs reach that no library accelerates: the fabric's IP against the kernel's own pair of interfaces.

use super::iperf3::Iperf3;
use super::process::{Server, run};
use super::relay::relay;
use super::sockperf::Sockperf;
use super::{Effort, LIMIT, Metric, Program, VETH};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};
use std::time::Duration;

/// Least part of the reference's bandwidth.
const BANDWIDTH_BAR: f64 = 0.8;
/// Times may be twice the reference's.
const TIME_BAR: f64 = 0.5;

/// The programs, each with its bars.
pub fn over_ip() -> Vec<Box<dyn Program>> {
    vec![
        Box::new(Plain { program: Iperf3, name: "IP: iperf3", bar: BANDWIDTH_BAR }),
        Box::new(Plain { program: Sockperf, name: "IP: sockperf", bar: TIME_BAR }),
        Box::new(Ping),
    ]
}

/// A program whose first metric is held against the same program over the other interface.
#[derive(Debug)]
struct Plain<P> {
    program: P,
    name: &'static str,
    bar: f64,
}

impl<P: Program> Program for Plain<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [&'static str] {
        self.program.needs()
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.program.metrics();
        for metric in &mut metrics {
            (metric.bar, metric.other, metric.against) = (None, None, VETH);
        }
        if let Some(first) = metrics.first_mut() {
            first.bar = Some((self.bar, None));
        }
        metrics
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        self.program.serve(place, port)
    }

    fn measure(&self, place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
        self.program.measure(place, port, effort)
    }
}

/// Pause between two pings.
const PAUSE: Duration = Duration::from_millis(200);

/// `ping`, a few times a second: everything on the way sleeps in between. Beside it what three sleepers take who wake
/// each other and do nothing else: two daemons and the one who waits for the answer.
#[derive(Debug)]
struct Ping;

impl Program for Ping {
    fn name(&self) -> &'static str {
        "IP: ping"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["ping"]
    }

    fn metrics(&self) -> Vec<Metric> {
        let mean = Metric { against: VETH, ..Metric::new("round trip, mean", Unit::Microseconds) };
        let floor =
            Metric { against: VETH, ..Metric::new("three sleepers in turn, alone", Unit::Microseconds) };
        vec![mean.bar(TIME_BAR, None), floor]
    }

    /// The kernel answers; something that can be ended stands in for the server.
    fn serve(&self, place: &dyn Place, _: u16) -> Result<Server> {
        let mut command = place.server("sh")?;
        command.args(["-c", "echo ready; exec sleep 3600"]);
        Server::start_speaking(command)
    }

    fn measure(&self, place: &dyn Place, _: u16, effort: Effort) -> Result<Vec<f64>> {
        let mut command = place.client("ping")?;
        let (count, pause) = (effort.seconds() * 5, PAUSE.as_secs_f32().to_string());
        command.args(["-q", "-i", &pause, "-c", &count.to_string(), &place.address().to_string()]);
        Ok(vec![parse(&run(command, LIMIT)?)?, relay(count, PAUSE)?])
    }
}

/// The mean, us.
fn parse(out: &str) -> Result<f64> {
    let (_, times) = out.rsplit_once(" = ").context("ping printed no times")?;
    let mean = times.split('/').nth(1).context("ping printed no mean")?;
    Ok(mean.parse::<f64>()? * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_read() {
        let out = "5 packets transmitted, 5 received, 0% packet loss, time 816ms\n\
                   rtt min/avg/max/mdev = 0.043/0.059/0.066/0.008 ms\n";
        assert_eq!(parse(out).unwrap(), 59.0);
        assert!(parse("5 packets transmitted, 0 received, 100% packet loss").is_err());
    }

    #[test]
    fn bars_are_against_the_pair_of_interfaces() {
        for program in over_ip() {
            let metrics = program.metrics();
            assert!(metrics[0].bar.is_some() && metrics.iter().all(|metric| metric.against == VETH));
        }
    }
}
