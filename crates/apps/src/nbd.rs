//! Network block devices: nbdkit's disk in memory, copied by nbdcopy, written and read by fio.

use crate::Site;
use crate::work::Work;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A disk of so many MiB.
///
/// # Errors
/// The place is gone.
pub fn server(at: &Site<'_>, mib: u32) -> Result<Command> {
    let mut command = at.command("nbdkit")?;
    command.args(["--foreground", "--ipaddr", &at.address.to_string(), "--port", &at.port.to_string()]);
    command.args(["memory", &format!("{mib}M")]);
    Ok(command)
}

/// How clients name it.
fn name(at: &Site<'_>) -> String {
    format!("nbd://{}", at.socket())
}

/// Copies a file of the disk's size to the disk.
///
/// # Errors
/// The place is gone.
pub fn copy_to(at: &Site<'_>, file: &Path) -> Result<Command> {
    let mut command = at.command("nbdcopy")?;
    command.arg(file).arg(name(at));
    Ok(command)
}

/// Copies the disk into a file; without one, reads it.
///
/// # Errors
/// The place is gone.
pub fn copy_from(at: &Site<'_>, file: Option<&Path>) -> Result<Command> {
    let mut command = at.command("nbdcopy")?;
    command.arg(name(at)).arg(file.unwrap_or_else(|| Path::new("null:")));
    Ok(command)
}

/// fio at random places of the disk, without anything else.
fn fio(at: &Site<'_>) -> Result<Command> {
    let mut command = at.command("fio")?;
    // It can use rings, but not for sockets.
    command.env("CROSSLANE_OWN_CALLS", "files");
    command.current_dir(at.folder);
    command.args(["--name=crosslane", "--ioengine=nbd", "--output-format=json", "--rw=randrw"]);
    command.arg(format!("--uri={}", name(at)));
    Ok(command)
}

/// Writes so many MiB at random places and reads them back, each block with a checksum.
///
/// # Errors
/// The place is gone.
pub fn verify(at: &Site<'_>, mib: u32) -> Result<Command> {
    let mut command = fio(at)?;
    command.args([
        "--bs=4k-256k",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ]);
    command.arg(format!("--size={mib}M"));
    Ok(command)
}

/// Reads and writes blocks of 16 KB, 16 under way, for so many seconds.
///
/// # Errors
/// The place is gone.
pub fn rate(at: &Site<'_>, seconds: f64) -> Result<Command> {
    let mut command = fio(at)?;
    command.args(["--bs=16k", "--iodepth=16", "--size=64M", "--time_based"]);
    command.arg(format!("--runtime={}ms", (seconds * 1e3).round()));
    Ok(command)
}

/// Megabytes (10^6) that fio has read and written.
///
/// # Errors
/// It printed something else, or met errors.
pub fn read(out: &str) -> Result<Work> {
    let json = out.find('{').and_then(|at| out.get(at..)).context("fio printed no JSON")?;
    let value: Value = serde_json::from_str(json).context("fio's JSON")?;
    let job = &value["jobs"][0];
    anyhow::ensure!(job["error"] == 0, "fio met errors: {}", job["error"]);
    let number = |way: &str, what: &str| job[way][what].as_f64().unwrap_or(0.0);
    let bytes = number("read", "io_bytes") + number("write", "io_bytes");
    let millis = number("read", "runtime").max(number("write", "runtime"));
    Work { count: bytes / 1e6, seconds: millis / 1e3, processor: None }.checked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbd_counts_both_directions() {
        let out =
            "fio: connected\n{\"jobs\": [{\"error\": 0, \"read\": {\"io_bytes\": 3000000, \"runtime\": 500},
            \"write\": {\"io_bytes\": 1000000, \"runtime\": 400}}]}";
        assert_eq!(read(out).unwrap(), Work { count: 4.0, seconds: 0.5, processor: None });
        assert!(read("{\"jobs\": [{\"error\": 5}]}").is_err());
        assert!(read("").is_err());
    }
}
