//! Test programs with libFuzzer in them, by a stable compiler.

use super::targets::Target;
use crate::sources::cargo;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// bolero's targets become libFuzzer's, all assertions stay, and LLVM counts which branches are taken and compared with
/// what.
const FLAGS: &[&str] = &[
    "--cfg",
    "fuzzing",
    "--cfg",
    "fuzzing_libfuzzer",
    "-Cdebug-assertions",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // Cargo also builds the programs of a package, which have no libFuzzer to report to, and are never run.
    "-Clink-arg=-Wl,--unresolved-symbols=ignore-in-object-files",
];

/// Where everything of this goes, apart from other builds.
pub(crate) fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(target).join("fuzz")
}

/// Builds the test programs of `targets` and returns them by package and name.
pub(crate) fn build(root: &Path, targets: &[Target]) -> Result<HashMap<(String, String), PathBuf>> {
    let host = host()?;
    let mut command = cargo();
    command.current_dir(root).args(["test", "--locked", "--no-run", "--profile", "fuzz"]);
    // With a target named, the flags are not those of build scripts.
    command.args(["--target", &host, "--message-format", "json-render-diagnostics", "--target-dir"]);
    command.arg(folder(root)).env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    for package in targets.iter().map(Target::package).collect::<BTreeSet<_>>() {
        command.args(["-p", &package]);
    }
    for test in targets.iter().map(Target::test).collect::<BTreeSet<_>>() {
        command.args(["--test", test]);
    }
    let output = command.stderr(Stdio::inherit()).output().context("run cargo test")?;
    if !output.status.success() {
        bail!("the fuzz targets were not built: {}", cause(output.status, has_compiler()));
    }
    Ok(programs(&String::from_utf8_lossy(&output.stdout)))
}

/// Why a build failed.
fn cause(status: ExitStatus, compiler: bool) -> String {
    match status.signal() {
        Some(signal) => format!("cargo was ended by signal {signal}"),
        None if !compiler => {
            "libFuzzer needs a C++ compiler, and there is none: scripts/install-packages.sh test".to_owned()
        }
        None => format!("cargo says above why ({status})"),
    }
}

/// Whether the C++ compiler that cargo's build scripts use is there.
fn has_compiler() -> bool {
    let name = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut version = Command::new(name);
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// The test programs that cargo's messages name.
fn programs(messages: &str) -> HashMap<(String, String), PathBuf> {
    let mut programs = HashMap::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let (Some(program), Some(test)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        else {
            continue;
        };
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().and_then(Path::file_name).unwrap_or_default();
        let package = format!("crosslane-{}", folder.to_string_lossy());
        if message["target"]["kind"][0] == "test" {
            programs.insert((package, test.to_owned()), program.into());
        }
    }
    programs
}

/// The target triple of this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_killed_is_not_a_missing_compiler() {
        let (killed, failed) = (ExitStatus::from_raw(9), ExitStatus::from_raw(101 << 8));
        assert!(cause(killed, true).contains("signal 9") && cause(killed, false).contains("signal 9"));
        assert!(cause(failed, false).contains("C++") && !cause(failed, true).contains("C++"));
    }

    #[test]
    fn build_messages_name_the_programs() {
        let test = r#"{"manifest_path":"/x/crates/shm/Cargo.toml","target":{"kind":["test"],"name":"r"},"executable":"/y"}"#;
        let bin = r#"{"manifest_path":"/x/crates/node/Cargo.toml","target":{"kind":["bin"],"name":"d"},"executable":"/z"}"#;
        let programs = programs(&format!("{bin}\nno JSON\n{test}\n{{}}\n"));
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[&("crosslane-shm".to_owned(), "r".to_owned())], Path::new("/y"));
    }
}
