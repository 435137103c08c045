//! Redis: GET by redis-benchmark, with one client or with fifty.

use super::process::{Server, run};
use super::{LIMIT, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};

/// Requests of one client that tell how many take so many seconds.
const FIRST: u32 = 2_000;

pub(super) const ONE: Program = Program {
    name: "redis",
    needs: &["redis-server", "redis-benchmark"],
    metrics: &[Metric::new("GET, 1 client", Unit::PerSecond).bar(10.0, Some(30.0))],
    serve,
    measure: |place, port, effort| {
        let first = rate(place, port, 1, FIRST)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds' requests")]
        let requests = (first * f64::from(effort.seconds())) as u32;
        Ok(vec![rate(place, port, 1, requests.max(FIRST))?])
    },
};

pub(super) const FIFTY: Program = Program {
    metrics: &[Metric::new("GET, 50 clients", Unit::PerSecond).bar(4.0, Some(9.0))],
    measure: |place, port, effort| Ok(vec![rate(place, port, 50, 100_000 * effort.seconds())?]),
    ..ONE
};

pub(crate) fn serve(place: &dyn Place, port: u16) -> Result<Server> {
    let mut command = place.server("redis-server")?;
    command.args(["--port", &port.to_string(), "--bind", "0.0.0.0", "--protected-mode", "no"]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--dir").arg(place.folder());
    Server::start(command, port)
}

/// How many of so many requests that `clients` ask are answered in a second.
pub(crate) fn rate(place: &dyn Place, port: u16, clients: u32, requests: u32) -> Result<f64> {
    let mut command = place.client("redis-benchmark")?;
    command.args(["-h", &place.address().to_string(), "-p", &port.to_string(), "-t", "get", "--csv"]);
    command.args(["-c", &clients.to_string(), "-n", &requests.to_string()]);
    parse(&run(command, LIMIT)?)
}

/// Requests in a second.
fn parse(out: &str) -> Result<f64> {
    let field = get(out)?.split(',').nth(1).unwrap_or_default().trim_matches('"');
    field.parse().context("redis-benchmark gave no rate")
}

/// The line of GET in what redis-benchmark printed.
fn get(out: &str) -> Result<&str> {
    out.lines().rfind(|line| line.starts_with("\"GET\"")).context("redis-benchmark gave no GET")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_rate_is_parsed() {
        assert_eq!(parse(include_str!("../captured/redis.csv")).unwrap(), 54054.05);
        assert!(parse("\"test\",\"rps\"\n").is_err());
    }
}
