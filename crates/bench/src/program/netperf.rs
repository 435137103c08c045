//! netperf: one byte there and back, and a connection for each request. Debian has it in its non-free part.

use super::process::{Server, run};
use super::{Metric, Program};
use crate::figure::Unit;
use anyhow::{Context, Result};
use std::time::Duration;

pub(crate) const NETPERF: Program = Program {
    name: "netperf",
    needs: &["netserver", "netperf"],
    metrics: &[
        Metric::new("TCP_RR, 1 byte", Unit::PerSecond).bar(25.0, Some(50.0)),
        Metric::new("TCP_CRR, 1 byte", Unit::PerSecond).bar(0.5, Some(1.0)),
    ],
    serve: |place, port| {
        let mut command = place.server("netserver")?;
        command.args(["-D", "-4", "-p", &port.to_string()]);
        Server::start(command, port)
    },
    measure: |place, port, effort| {
        let rate = |test: &str| {
            let mut command = place.client("netperf")?;
            command.args(["-H", &place.address().to_string(), "-p", &port.to_string()]);
            command.args(["-t", test, "-P", "0", "-l", &effort.seconds().to_string()]);
            command.args(["--", "-r", "1,1", "-k", "THROUGHPUT"]);
            parse(&run(command, Duration::from_secs(30))?)
        };
        Ok(vec![rate("TCP_RR")?, rate("TCP_CRR")?])
    },
};

/// Transactions in a second.
fn parse(out: &str) -> Result<f64> {
    let rest = out.lines().find_map(|line| line.trim().strip_prefix("THROUGHPUT="));
    rest.context("netperf printed no rate")?.parse().context("netperf printed no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netperf_rate_is_parsed() {
        assert_eq!(parse("THROUGHPUT=54321.12\n").unwrap(), 54321.12);
        assert!(parse("establish control: are you sure there is a netserver").is_err());
    }
}
