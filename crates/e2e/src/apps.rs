//! The programs of `crosslane-apps` in a lab.

use crate::package;
use crate::program::{Program, run};
use crate::rig::Rig;
use anyhow::{Context, Result};
use crosslane_apps::Site;
use crosslane_apps::need::{Need, missing};
use crosslane_apps::script::Script;
use std::process::Command;
use std::time::Duration;

/// Whether all of `needs` is installed; if not, says so loudly, and in continuous integration fails.
pub fn need(needs: &[Need]) -> bool {
    let missing = missing(needs);
    if let Some(Need { what, source }) = missing {
        package::skip(&format!("{what} is not installed ({source}); scripts/install-packages.sh test"));
    }
    missing.is_none()
}

/// The command of `make` for a program in `host` whose server is in host `server`.
///
/// # Errors
/// There is no such host, or `make` fails.
pub fn command(
    rig: &Rig,
    host: &str,
    server: (&str, u16),
    make: impl FnOnce(&Site<'_>) -> Result<Command>,
) -> Result<Command> {
    let start = |program: &str| rig.command(host, program);
    let (address, port) = (rig.address(server.0)?, server.1);
    make(&Site { start: &start, folder: rig.folder(), address, port })
}

/// Starts the program of `make` in `host`, and waits until it listens on `port`.
///
/// # Errors
/// It does not.
pub fn serve(
    rig: &Rig,
    host: &str,
    port: u16,
    make: impl FnOnce(&Site<'_>) -> Result<Command>,
) -> Result<Program> {
    let mut server = Program::start(&mut command(rig, host, (host, port), make)?)?;
    server.listens(port)?;
    Ok(server)
}

/// Runs a script in `host` that compares the answers of `server`, within `patience`; returns the bytes that it sent.
///
/// # Errors
/// Others came back, or too late.
pub fn check(rig: &Rig, script: Script, host: &str, server: (&str, u16), patience: Duration) -> Result<u64> {
    let text = run(&mut command(rig, host, server, |at| script.check(at))?, patience)?.text();
    text.trim().parse().with_context(|| format!("{script:?} printed no number of bytes: {text}"))
}
