//! Programs that make their own system calls: a server with liburing, and Bun.

use crate::program::run;
use crate::rig::Rig;
use crate::{WORK, package};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bun, as npm has it.
const BUN: &str = "bun@1.4.5";

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

/// Bun, installed or downloaded by npm; `None`, with a line, if neither is there.
///
/// # Errors
/// npm brought something else.
pub fn bun(rig: &Rig) -> Result<Option<PathBuf>> {
    if let Some(bun) = package::find("bun") {
        return Ok(Some(bun));
    }
    let Some(npm) = package::want("npm", "bun is no Debian package, but npm's") else { return Ok(None) };
    let folder = rig.file("npm");
    let mut install = Command::new(npm);
    install.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    if let Err(why) = run(install.arg(&folder).arg(BUN), WORK) {
        println!("SKIPPED: bun cannot be had: {why}");
        return Ok(None);
    }
    let packages = fs::read_dir(folder.join("node_modules/@oven"))?;
    let programs = packages.filter_map(|package| Some(package.ok()?.path().join("bin/bun")));
    let runs = |program: &PathBuf| run(Command::new(program).arg("--version"), WORK).is_ok();
    let program = programs.filter(|program| program.is_file()).find(runs);
    Ok(Some(program.context("no bun of npm's runs on this processor")?))
}

/// Bun in a host, accelerated: `server ADDRESS PORT`, or `client ADDRESS PORT BYTES`, which checks what comes back.
///
/// # Errors
/// The script cannot be written, or there is no such host.
pub fn run_bun(rig: &Rig, host: &str, bun: &Path, words: &[&str]) -> Result<Command> {
    let script = rig.file("bun.js");
    fs::write(&script, include_str!("own_calls/bun.js"))?;
    let mut command = rig.command(host, bun)?;
    command.env("DO_NOT_TRACK", "1").arg("run").arg(script).args(words);
    Ok(command)
}
