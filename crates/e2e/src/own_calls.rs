//! Programs that make system calls by themselves: a server with liburing, and Bun.

use crate::WORK;
use crate::program::run;
use crate::rig::Rig;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The echo server with liburing, `echo ADDRESS PORT`.
///
/// # Errors
/// It cannot be written or built.
pub fn echo(rig: &Rig) -> Result<PathBuf> {
    let (source, program) = (rig.file("echo.c"), rig.file("echo"));
    fs::write(&source, include_str!("own_calls/echo.c"))?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-o"]).arg(&program).arg(&source).arg("-luring");
    run(&mut command, WORK)?;
    Ok(program)
}

/// Bun in a host, accelerated: `server ADDRESS PORT`, or `client ADDRESS PORT BYTES`, which checks what comes back.
///
/// # Errors
/// The script cannot be written, or there is no such host.
pub fn bun(rig: &Rig, host: &str, bun: &Path, words: &[&str]) -> Result<Command> {
    let script = rig.file("bun.js");
    fs::write(&script, include_str!("own_calls/bun.js"))?;
    let mut command = rig.command(host, bun)?;
    command.env("DO_NOT_TRACK", "1").arg("run").arg(script).args(words);
    Ok(command)
}
