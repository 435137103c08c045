//! iperf3: a stream for a time, or several, either way.

use crate::WORK;
use crate::program::{Printed, Program, run};
use crate::rig::Rig;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What iperf3 reports of one run.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Bytes that receivers got, all streams and directions.
    pub bytes: u64,
    /// Streams.
    pub streams: u64,
}

/// Starts a server on `port`.
///
/// # Errors
/// It does not listen.
pub fn server(rig: &Rig, host: &str, iperf3: &Path, port: u16) -> Result<Program> {
    let mut command = rig.command(host, iperf3)?;
    let mut server = Program::start(command.args(["-s", "-p", &port.to_string()]))?;
    server.listens(port)?;
    Ok(server)
}

/// Runs a client for a second with `more` arguments.
///
/// # Errors
/// It fails, or not all streams moved something.
pub fn client(rig: &Rig, host: &str, iperf3: &Path, to: &str, port: u16, more: &[&str]) -> Result<Moved> {
    let mut command = client_of(rig, host, iperf3, to, port)?;
    let report = report(&run(command.args(["-t", "1"]).args(more), WORK)?)?;
    let end = &report["end"];
    let both = end["sum_received_bidir_reverse"]["bytes"].as_u64().unwrap_or(0);
    let bytes = end["sum_received"]["bytes"].as_u64().context("sum_received")? + both;
    let streams = end["streams"].as_array().context("streams")?;
    for stream in streams {
        ensure!(stream["receiver"]["bytes"].as_u64() > Some(0), "a stream moved nothing: {stream}");
    }
    Ok(Moved { bytes, streams: streams.len() as u64 })
}

/// Starts a client of the server on a host and port, with `more` arguments; see [`report`].
///
/// # Errors
/// There is no such host.
pub fn start(
    rig: &Rig,
    host: &str,
    iperf3: &Path,
    (server, port): (&str, u16),
    more: &[&str],
) -> Result<Program> {
    let to = rig.address(server)?.to_string();
    Program::start(client_of(rig, host, iperf3, &to, port)?.args(more))
}

/// Parses a client's report.
///
/// # Errors
/// It is an error.
pub fn report(printed: &Printed) -> Result<Value> {
    let report: Value = serde_json::from_str(&printed.text()).context("iperf3's JSON")?;
    ensure!(report["error"].is_null(), "iperf3: {}", report["error"]);
    Ok(report)
}

fn client_of(rig: &Rig, host: &str, iperf3: &Path, to: &str, port: u16) -> Result<Command> {
    let mut command = rig.command(host, iperf3)?;
    command.args(["-c", to, "-p", &port.to_string(), "-J"]);
    Ok(command)
}
