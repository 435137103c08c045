//! qperf: bandwidth and latency by sockets of the family `AF_INET_SDP`, as programs for the SDP stacks of their time open
//! them, and by TCP; a control connection beside, by TCP in both cases.

use crate::WORK;
use crate::program::{Program, run};
use crate::rig::Rig;
use anyhow::{Context, Result};
use std::path::Path;

/// Starts a server on `port`.
///
/// # Errors
/// It does not listen.
pub fn server(rig: &Rig, host: &str, qperf: &Path, port: u16) -> Result<Program> {
    let mut command = rig.command(host, qperf)?;
    let mut server = Program::start(command.args(["-lp", &port.to_string()]))?;
    server.listens(port)?;
    Ok(server)
}

/// A client's results: bandwidth (bytes a second) and latency (ns), as far as the tests have them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Results {
    /// `bw`, bytes a second.
    pub bandwidth: f64,
    /// `latency`, ns.
    pub latency: f64,
}

/// Runs tests (`sdp_bw`, `sdp_lat`, `tcp_bw`), a second each.
///
/// # Errors
/// It fails, or prints nothing that can be parsed.
pub fn client(rig: &Rig, host: &str, qperf: &Path, to: &str, port: u16, tests: &[&str]) -> Result<Results> {
    let mut command = rig.command(host, qperf)?;
    // Numbers in plain units, all digits.
    command.args(["-lp", &port.to_string(), "-t", "1", "-uu", to]).args(tests);
    let text = run(&mut command, WORK)?.text();
    read(&text).with_context(|| format!("qperf's figures: {text}"))
}

fn read(text: &str) -> Option<Results> {
    let mut results = Results::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next(), words.nth(1));
        let number = || value.map(|value| value.replace(',', "")).and_then(|value| value.parse().ok());
        match name {
            Some("bw") => results.bandwidth = number()?,
            Some("latency") => results.latency = number()?,
            _ => {}
        }
    }
    Some(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qperf_figures_are_parsed() {
        let text = "sdp_bw:\n    bw  =  56,400,000,000 bytes/sec\nsdp_lat:\n    latency  =  172 ns\n";
        assert_eq!(read(text), Some(Results { bandwidth: 56.4e9, latency: 172.0 }));
        assert_eq!(read("sdp_bw:\n    bw  =  much\n"), None);
    }
}
