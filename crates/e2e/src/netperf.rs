//! netperf: request-reply and streams, with a control connection beside; its server forks.

use crate::WORK;
use crate::program::{Program, run};
use crate::rig::Rig;
use anyhow::Result;
use std::path::Path;

/// Starts `netserver`.
///
/// # Errors
/// It does not listen.
pub fn server(rig: &Rig, host: &str, netserver: &Path, port: u16) -> Result<Program> {
    let mut command = rig.command(host, netserver)?;
    let mut server = Program::start(command.args(["-D", "-p", &port.to_string()]))?;
    server.listens(port)?;
    Ok(server)
}

/// Runs one test (`TCP_RR`, `TCP_STREAM`, `TCP_CRR`) for a second and returns what it prints.
///
/// # Errors
/// It fails.
pub fn client(rig: &Rig, host: &str, netperf: &Path, to: &str, port: u16, test: &str) -> Result<String> {
    let mut command = rig.command(host, netperf)?;
    command.args(["-H", to, "-p", &port.to_string(), "-t", test, "-l", "1"]);
    Ok(run(&mut command, WORK)?.text())
}
