//! `crosslane config check`.

use anyhow::Result;
use crosslane_node::config::Config;
use std::io::{Write, stdout};
use std::path::Path;

/// Checks a configuration file as the daemon would, and says what it means.
///
/// # Errors
/// What the daemon would say.
pub(crate) fn check(file: &Path) -> Result<()> {
    let config = Config::read(file)?;
    let mut out = stdout().lock();
    writeln!(out, "{}: good", file.display())?;
    writeln!(out, "host {}, control socket {}", config.addresses.me, config.control.display())?;
    for port in &config.ports {
        let side = if port.listens { "listens" } else { "connects" };
        writeln!(
            out,
            "port {}: {side} at {}, window {} bytes",
            port.name,
            port.cable.display(),
            port.window
        )?;
    }
    Ok(())
}
