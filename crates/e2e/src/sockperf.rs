//! sockperf: requests and replies, with its own check of the bytes.

use crate::WORK;
use crate::program::{Program, run};
use crate::rig::Rig;
use anyhow::{Context, Result};
use std::path::Path;

/// Starts a TCP server on `address`.
///
/// # Errors
/// It does not listen.
pub fn server(rig: &Rig, host: &str, sockperf: &Path, address: &str, port: u16) -> Result<Program> {
    let mut command = rig.command(host, sockperf)?;
    command.args(["server", "--tcp", "-i", address, "-p", &port.to_string()]);
    let mut server = Program::start(&mut command)?;
    server.listens(port)?;
    Ok(server)
}

/// Replies that prove that it works.
const ENOUGH: u64 = 100;

/// Runs a ping-pong of `size` bytes for a second, every byte checked, and returns how many replies came. `more` are
/// further arguments. On a machine that is so busy that a second is too short for enough of them it takes longer.
///
/// # Errors
/// It fails, or bytes differ.
pub fn ping_pong(
    rig: &Rig,
    host: &str,
    sockperf: &Path,
    address: &str,
    port: u16,
    size: usize,
    more: &[&str],
) -> Result<u64> {
    let mut came = Err(anyhow::anyhow!("not run"));
    for seconds in ["1", "20"] {
        came = ping_pong_for(rig, host, sockperf, (address, port), size, &[&["-t", seconds], more].concat());
        if came.as_ref().is_ok_and(|replies| *replies > ENOUGH) {
            break;
        }
    }
    came
}

fn ping_pong_for(
    rig: &Rig,
    host: &str,
    sockperf: &Path,
    to: (&str, u16),
    size: usize,
    more: &[&str],
) -> Result<u64> {
    let mut command = rig.command(host, sockperf)?;
    command.args(["ping-pong", "--tcp", "-i", to.0, "-p", &to.1.to_string()]);
    // It keeps a record of each message, and assumes at most 600,000 a second by default.
    command.args(["--mps", "3000000", "-m", &size.to_string(), "--data-integrity"]).args(more);
    let text = run(&mut command, WORK)?.text();
    anyhow::ensure!(!text.contains("data integrity test failed"), "sockperf: {text}");
    replies(&text).with_context(|| format!("sockperf's summary: {text}"))
}

/// `ReceivedMessages` of the line that says `[Total Run]`.
fn replies(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("[Total Run]"))?;
    line.split("ReceivedMessages=").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn sockperf_summary_is_parsed() {
        let line = "sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; SentMessages=73361; ReceivedMessages=73360";
        assert_eq!(super::replies(line), Some(73360));
        assert_eq!(super::replies(""), None);
    }
}
