//! `cargo xtask soak`: builds the release and runs the soak with the words given.

use crate::sources::cargo;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Builds everything, then soaks; the words are those of `crosslane-soak`.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut build = cargo();
    build.current_dir(root).args(["build", "--release", "--locked", "--workspace"]);
    ensure!(build.status().context("cargo")?.success(), "the release build failed");
    let mut soak = Command::new(target.join("release/crosslane-soak"));
    let status = soak.args(words).status().context("crosslane-soak")?;
    ensure!(status.success(), "the soak failed ({status})");
    Ok(())
}
