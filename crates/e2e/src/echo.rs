//! The simplest pair of programs: one sends bytes, the other sends them back.

use crate::WORK;
use crate::program::{Program, run};
use crate::python::Script;
use crate::rig::Rig;
use anyhow::Result;
use std::path::Path;

/// Starts an echo server by `script` on `port` of all addresses.
///
/// # Errors
/// It does not listen.
pub fn server(rig: &Rig, script: Script, host: &str, python: &Path, port: u16) -> Result<Program> {
    script.server(rig, host, python, &["server", "::", &port.to_string()], port)
}

/// Sends `bytes` there and back over each of `connections` at once; the client checks them.
///
/// # Errors
/// They differ, or do not come in time.
pub fn client(
    rig: &Rig,
    script: Script,
    host: &str,
    python: &Path,
    to: (&str, u16),
    bytes: usize,
    connections: u32,
) -> Result<()> {
    let mut command = script.command(rig, host, python)?;
    command.args(["client", to.0, &to.1.to_string(), &bytes.to_string(), &connections.to_string()]);
    run(&mut command, WORK)?;
    Ok(())
}
