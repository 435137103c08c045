//! Redis: GET by redis-benchmark, with one client or with fifty.

use super::process::{Server, run};
use super::{Effort, LIMIT, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};

#[derive(Debug)]
pub(crate) struct Redis {
    clients: u32,
    requests: u32,
}

impl Redis {
    pub(super) const ONE: Self = Self { clients: 1, requests: 40_000 };
    pub(super) const FIFTY: Self = Self { clients: 50, requests: 100_000 };

    /// One client that asks so often in a short run.
    pub(crate) const fn one_client(requests: u32) -> Self {
        Self { clients: 1, requests }
    }
}

impl Program for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["redis-server", "redis-benchmark"]
    }

    fn metrics(&self) -> Vec<Metric> {
        if self.clients == 1 {
            vec![Metric::new("GET, 1 client", Unit::PerSecond).bar(10.0, Some(30.0))]
        } else {
            vec![Metric::new("GET, 50 clients", Unit::PerSecond).bar(4.0, Some(9.0))]
        }
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        let mut command = place.server("redis-server")?;
        command.args(["--port", &port.to_string(), "--bind", "0.0.0.0", "--protected-mode", "no"]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.arg("--dir").arg(place.folder());
        Server::start(command, port)
    }

    fn measure(&self, place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
        let requests = self.requests * effort.seconds();
        let mut command = place.client("redis-benchmark")?;
        command.args(["-h", &place.address().to_string(), "-p", &port.to_string(), "-t", "get", "--csv"]);
        command.args(["-c", &self.clients.to_string(), "-n", &requests.to_string()]);
        Ok(vec![parse(&run(command, LIMIT)?)?])
    }
}

/// Requests in a second.
fn parse(out: &str) -> Result<f64> {
    let line =
        out.lines().rfind(|line| line.starts_with("\"GET\"")).context("redis-benchmark gave no GET")?;
    let field = line.split(',').nth(1).unwrap_or_default().trim_matches('"');
    field.parse().context("redis-benchmark gave no rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        assert_eq!(parse(include_str!("../captured/redis.csv")).unwrap(), 54054.05);
        assert!(parse("\"test\",\"rps\"\n").is_err());
    }
}
