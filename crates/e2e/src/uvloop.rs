//! uvloop's own tests, of the release in Debian.

use crate::program::{Program, run};
use crate::rig::Rig;
use crate::{WORK, package};
use anyhow::{Context, Result, ensure};
use crosslane_apps::need::PYTHON;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The source of uvloop, as the Python package index has it, and its checksum.
const SOURCE: &str =
    "uvloop==0.17.0 --hash=sha256:0ddf6baf9cf11a1a22c71487f39f15b2cf78eb5bde7e5b45fbb99e8a9d91b9e1\n";
/// Its archive.
const ARCHIVE: &str = "uvloop-0.17.0.tar.gz";

/// The folder of the tests; `None`, with a line, if the package index does not serve them.
///
/// # Errors
/// What came is no archive.
pub fn tests(rig: &Rig) -> Result<Option<PathBuf>> {
    let folder = rig.file("uvloop");
    fs::create_dir_all(&folder)?;
    let wanted = rig.file("uvloop.txt");
    fs::write(&wanted, SOURCE)?;
    let mut pip = Command::new(PYTHON);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]);
    pip.args(["--disable-pip-version-check", "--require-hashes", "--dest"])
        .arg(&folder)
        .arg("-r")
        .arg(&wanted);
    if let Err(why) = run(&mut pip, WORK) {
        println!("SKIPPED: uvloop's tests cannot be had: {why}");
        return Ok(None);
    }
    let mut tar = Command::new("tar");
    run(tar.arg("-xzf").arg(folder.join(ARCHIVE)).args(["--strip-components=1", "-C"]).arg(&folder), WORK)?;
    // Beside the tests lies uvloop's own source, which must not stand for the installed one.
    let alone = rig.file("uvloop-tests");
    fs::create_dir_all(&alone)?;
    fs::rename(folder.join("tests"), alone.join("tests")).context("the archive has no tests")?;
    Ok(Some(alone))
}

/// Starts the tests of a module whose names match `pattern`.
///
/// # Errors
/// There is no such host.
pub fn start(rig: &Rig, host: &str, tests: &std::path::Path, module: &str, pattern: &str) -> Result<Program> {
    let mut command = rig.command(host, PYTHON)?;
    command.current_dir(tests).args(["-W", "ignore", "-m", "unittest", "-k", pattern]);
    Program::start(command.arg(format!("tests.{module}")))
}

/// Waits for their end; returns how many ran.
///
/// # Errors
/// One fails, or they take longer than `patience`.
pub fn finish(program: Program, patience: Duration) -> Result<u64> {
    let said = program.finish(patience)?.errors;
    let line = said.lines().rfind(|line| line.starts_with("Ran ")).with_context(|| said.clone())?;
    ensure!(said.lines().any(|line| line.starts_with("OK")), "{said}");
    line.split(' ').nth(1).and_then(|word| word.parse().ok()).with_context(|| line.to_owned())
}

/// Whether uvloop is installed; if not, says so loudly.
pub fn is_there() -> bool {
    crate::apps::need(crosslane_apps::need::of::UVLOOP) && package::need("tar").is_some()
}
