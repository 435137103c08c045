//! Gets to a user's predictable lab folder first: with a folder in which it has written what a lab's commands would do, with links
//! to where the user may write, and in the moment between a look and a use.

use super::{LIFE, begun};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Name of a lab that a terminal would obey.
const LOUD: &str = "\u{1b}[31mred";
/// A reader follows its content only if it trusts the folder.
const EVERYTHING: u32 = 0o777;

/// `FOLDER (made | link | race) TARGET PID START`: puts something at `FOLDER`; `made`: a lab whose keeper and daemon is the process
/// `PID` and whose program is `TARGET`; `link`: to `TARGET`; `race`: one or the other or nothing, as fast as it can.
///
/// # Errors
/// It is not the first.
pub fn run(words: &[String]) -> Result<()> {
    let [folder, way, target, pid, start] = words else { bail!("FOLDER WAY TARGET PID START") };
    let (folder, target) = (PathBuf::from(folder), PathBuf::from(target));
    let state = state(&folder, &target, pid.parse()?, start.parse()?);
    match way.as_str() {
        "made" => made(&folder, &state)?,
        "link" => symlink(&target, &folder).context("link")?,
        "race" => return race(&folder, &target),
        _ => bail!("made, link or race"),
    }
    begun();
    std::thread::sleep(LIFE);
    Ok(())
}

/// A lab's files, for a lab of every name that a user may take.
fn made(folder: &Path, state: &str) -> Result<()> {
    for name in ["default", LOUD] {
        let lab = folder.join("lab").join(name);
        fs::create_dir_all(&lab)?;
        for (file, text) in [("state.json", state), ("lock", ""), ("order.json", "{}")] {
            fs::write(lab.join(file), text)?;
            fs::set_permissions(lab.join(file), Permissions::from_mode(EVERYTHING))?;
        }
        fs::set_permissions(&lab, Permissions::from_mode(EVERYTHING))?;
    }
    for part in [folder.join("lab"), folder.to_owned()] {
        fs::set_permissions(part, Permissions::from_mode(EVERYTHING))?;
    }
    // A keeper lives as long as its lock is held.
    let lock = fs::File::open(folder.join("lab/default/lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    std::mem::forget(lock);
    Ok(())
}

/// What a lab's keeper writes.
fn state(folder: &Path, program: &Path, pid: i32, start: u64) -> String {
    let (process, file) = (json!({"pid": pid, "start": start}), |name: &str| folder.join(name));
    let host = json!({
        "name": "h1", "id": 1, "address": "10.86.0.1", "address6": "fd86::1", "control": file("h1.sock"),
        "config": file("h1.toml"), "log": file("h1.log"), "network": 0, "inode": 1, "daemon": process,
    });
    json!({
        "name": "default", "topology": "ring", "mark": "x", "keeper": process, "ready": true, "user": null, "tun": true,
        "program": program, "sockets": program, "hosts": [host], "cables": [], "cut": [],
    })
    .to_string()
}

fn race(folder: &Path, target: &Path) -> Result<()> {
    begun();
    let start = Instant::now();
    while start.elapsed() < LIFE {
        // Some of this fails when the user was faster.
        let _ = symlink(target, folder);
        let _ = fs::remove_file(folder);
        let _ = fs::create_dir(folder);
        let _ = fs::set_permissions(folder, Permissions::from_mode(EVERYTHING));
        let _ = fs::remove_dir_all(folder.join("lab"));
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}
