//! Node.js: an HTTP server and its client, on libuv.

use crate::rig::Rig;
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The script in a host, accelerated: `server ADDRESS PORT`, or `client ADDRESS PORT BYTES REQUESTS`, which checks
/// what comes back.
///
/// # Errors
/// The script cannot be written, or there is no such host.
pub fn command(rig: &Rig, host: &str, node: &Path, words: &[&str]) -> Result<Command> {
    let path = rig.file("http.js");
    if !path.exists() {
        fs::write(&path, include_str!("nodejs/http.js"))?;
    }
    let mut command = rig.command(host, node)?;
    command.arg(path).args(words);
    Ok(command)
}
