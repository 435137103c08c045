//! memcached: threads over libevent.

use crate::program::Program;
use crate::rig::Rig;
use anyhow::Result;
use std::path::Path;

/// Starts a server of four threads on `address`, values of up to 8 MB.
///
/// # Errors
/// It does not listen.
pub fn server(rig: &Rig, host: &str, memcached: &Path, address: &str, port: u16) -> Result<Program> {
    let mut command = rig.command(host, memcached)?;
    command.args(["-l", address, "-p", &port.to_string(), "-U", "0", "-t", "4", "-I", "8m", "-m", "256"]);
    // An ordinary user is root in its lab, and nobody else is known there.
    command.args(["-u", if rustix::process::geteuid().is_root() { "nobody" } else { "root" }]);
    let mut server = Program::start(&mut command)?;
    server.listens(port)?;
    Ok(server)
}
