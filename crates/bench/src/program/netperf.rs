//! netperf: one byte there and back, and a connection for each request. Debian has it in its non-free part.

use super::process::{Server, run};
use super::{Effort, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Netperf;

impl Program for Netperf {
    fn name(&self) -> &'static str {
        "netperf"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["netserver", "netperf"]
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new("TCP_RR, 1 byte", Unit::PerSecond).bar(25.0, Some(50.0)),
            Metric::new("TCP_CRR, 1 byte", Unit::PerSecond).bar(0.5, Some(1.0)),
        ]
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        let mut command = place.server("netserver")?;
        command.args(["-D", "-4", "-p", &port.to_string()]);
        Server::start(command, port)
    }

    fn measure(&self, place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
        let rate = |test: &str| {
            let mut command = place.client("netperf")?;
            command.args([
                "-H",
                &place.address().to_string(),
                "-p",
                &port.to_string(),
                "-t",
                test,
                "-P",
                "0",
            ]);
            command.args(["-l", &effort.seconds().to_string(), "--", "-r", "1,1", "-k", "THROUGHPUT"]);
            parse(&run(command, Duration::from_secs(30))?)
        };
        Ok(vec![rate("TCP_RR")?, rate("TCP_CRR")?])
    }
}

/// Transactions in a second.
fn parse(out: &str) -> Result<f64> {
    let rest = out.lines().find_map(|line| line.trim().strip_prefix("THROUGHPUT="));
    rest.context("netperf printed no rate")?.parse().context("netperf printed no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        assert_eq!(parse("THROUGHPUT=54321.12\n").unwrap(), 54321.12);
        assert!(parse("establish control: are you sure there is a netserver").is_err());
    }
}
