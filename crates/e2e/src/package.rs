//! Programs that may not be installed.

use std::env;
use std::path::{Path, PathBuf};

/// Where programs are that an ordinary user's `PATH` may not name.
const MORE: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/go/bin"];

/// Path of a program, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(MORE.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Path of a program that a test needs; if it is missing, prints a line and returns `None`, or panics in continuous integration (`CI=true`).
pub fn need(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        skip(&format!("{program} is not installed; scripts/install-packages.sh test installs it"));
    }
    found
}

/// As [`need`], for a program that not every distribution has: it never fails.
pub fn want(program: &str, why: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        println!("SKIPPED: {program} is not installed: {why}");
    }
    found
}

/// Says that a test is skipped and why.
///
/// # Panics
/// In continuous integration: there everything must run.
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
    assert!(env::var("CI").map_or(true, |ci| ci != "true"), "nothing may be skipped with CI=true: {why}");
}

/// Debian's Python rather than one of a version manager: its binary is no shell script.
pub fn python() -> Option<PathBuf> {
    let debian = Path::new("/usr/bin/python3");
    if debian.is_file() { Some(debian.to_owned()) } else { need("python3") }
}
