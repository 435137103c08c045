//! A Go program: static, so that no preload reaches it; it must still work, by IP.

use crate::program::run;
use crate::rig::Rig;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the compiler may take, with nothing in its cache.
const COMPILE: Duration = Duration::from_secs(180);

/// Compiles the echo program: `server ADDRESS PORT`, or `client ADDRESS PORT BYTES`, which checks what comes back.
///
/// # Errors
/// The compiler fails.
pub fn compile(rig: &Rig, go: &Path) -> Result<PathBuf> {
    let (source, program) = (rig.file("echo.go"), rig.file("echo-go"));
    fs::write(&source, include_str!("go/echo.go"))?;
    let mut command = Command::new(go);
    command.args(["build", "-o"]).arg(&program).arg(&source).current_dir(rig.folder());
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
    if std::env::var_os("HOME").is_none() {
        command.env("GOCACHE", rig.file("go-cache"));
    }
    run(&mut command, COMPILE).context("go build")?;
    Ok(program)
}
