//! Programs without acceleration: the fabric's IP against the kernel's own pair of interfaces.

use super::process::{Server, run};
use super::relay::relay;
use super::{IPERF3, LIMIT, Metric, Program, SOCKPERF, VETH, iperf3, sockperf};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};
use std::time::Duration;

/// Least part of the reference's bandwidth.
const BANDWIDTH_BAR: f64 = 0.8;
/// Times may be twice the reference's.
const TIME_BAR: f64 = 0.5;

/// The programs, each with its bars: its first metric is held against the same program over the other interface.
pub fn over_ip() -> Vec<Program> {
    const STREAM: &[Metric] = &[plain(iperf3::METRICS[0]).bar(BANDWIDTH_BAR, None)];
    const TIMES: &[Metric] = &[
        plain(sockperf::METRICS[0]).bar(TIME_BAR, None),
        plain(sockperf::METRICS[1]),
        plain(sockperf::METRICS[2]),
    ];
    vec![
        Program { name: "IP: iperf3", metrics: STREAM, ..IPERF3 },
        Program { name: "IP: sockperf", metrics: TIMES, ..SOCKPERF },
        PING,
    ]
}

const fn plain(metric: Metric) -> Metric {
    Metric { against: VETH, bar: None, other: None, ..metric }
}

/// Pause between two pings.
const PAUSE: Duration = Duration::from_millis(200);

/// `ping`, a few times a second: everything on the way sleeps in between. The reference beside it is three sleepers
/// that only wake each other: two daemons and the process that waits for the answer. The kernel answers the ping; the
/// server is a placeholder that can be ended.
const PING: Program = Program {
    name: "IP: ping",
    needs: &["ping"],
    metrics: &[
        plain(Metric::new("round trip, mean", Unit::Microseconds)).bar(TIME_BAR, None),
        plain(Metric::new("three sleepers in turn, alone", Unit::Microseconds)),
    ],
    serve: |place, _| placeholder(place),
    measure: |place, _, effort| {
        let count = effort.seconds() * 5;
        Ok(vec![ping(place, count, PAUSE)?, relay(count, PAUSE)?])
    },
};

/// `ping`, 25 times in half a second.
pub(crate) const OFTEN: Program = Program {
    name: "ping",
    needs: &["ping"],
    metrics: &[Metric::new("round trip, mean", Unit::Microseconds)],
    serve: |place, _| placeholder(place),
    measure: |place, _, _| Ok(vec![ping(place, 25, Duration::from_millis(20))?]),
};

fn placeholder(place: &dyn Place) -> Result<Server> {
    let mut command = place.server("sh")?;
    command.args(["-c", "echo ready; exec sleep 3600"]);
    Server::start_speaking(command)
}

/// The mean time of so many, us.
fn ping(place: &dyn Place, count: u32, pause: Duration) -> Result<f64> {
    let mut command = place.client("ping")?;
    let pause = pause.as_secs_f32().to_string();
    command.args(["-q", "-i", &pause, "-c", &count.to_string(), &place.address().to_string()]);
    parse(&run(command, LIMIT)?)
}

/// The mean, us.
pub(crate) fn parse(out: &str) -> Result<f64> {
    let (_, times) = out.rsplit_once(" = ").context("ping printed no times")?;
    let mean = times.split('/').nth(1).context("ping printed no mean")?;
    Ok(mean.parse::<f64>()? * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_mean_is_parsed() {
        let out = "5 packets transmitted, 5 received, 0% packet loss, time 816ms\n\
                   rtt min/avg/max/mdev = 0.043/0.059/0.066/0.008 ms\n";
        assert_eq!(parse(out).unwrap(), 59.0);
        assert!(parse("5 packets transmitted, 0 received, 100% packet loss").is_err());
    }

    #[test]
    fn ip_bars_are_against_the_pair_of_interfaces() {
        for program in over_ip() {
            let metrics = program.metrics;
            assert!(metrics[0].bar.is_some() && metrics.iter().all(|metric| metric.against == VETH));
        }
    }
}
