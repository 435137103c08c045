//! Versions of the programs of others that were measured, as the package system knows them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Packages of the programs at `paths` and their versions; nothing of what no package brought, or without `dpkg-query`.
pub(crate) fn of(paths: impl Iterator<Item = PathBuf>) -> BTreeMap<String, String> {
    let paths: Vec<PathBuf> = paths.collect();
    let owners = paths.first().and_then(|_| said(Command::new("dpkg-query").arg("-S").args(&paths)));
    let mut packages: Vec<String> = owners.as_deref().map(owners_of).unwrap_or_default();
    packages.dedup();
    let show = "--showformat=${Package} ${Version}\\n";
    let shown =
        packages.first().and_then(|_| said(Command::new("dpkg-query").args(["-W", show]).args(&packages)));
    shown.as_deref().map(versions_of).unwrap_or_default()
}

/// What a command prints. It fails where one of many is not known, and prints the others.
fn said(command: &mut Command) -> Option<String> {
    Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
}

/// Packages in lines such as `iperf3: /usr/bin/iperf3`.
fn owners_of(text: &str) -> Vec<String> {
    let owners = text.lines().filter_map(|line| line.split_once(": /"));
    owners.filter(|(owner, _)| !owner.contains([',', ' '])).map(|(owner, _)| owner.to_owned()).collect()
}

/// Versions in lines such as `iperf3 3.12-1`.
fn versions_of(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(package, version)| (package.to_owned(), version.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_of_the_package_system() {
        let text = "iperf3: /usr/bin/iperf3\ndiversion by dash from: /bin/sh\nlibc6:amd64: /lib/x\n";
        assert_eq!(owners_of(text), ["iperf3", "libc6:amd64"]);
        assert_eq!(versions_of("iperf3 3.12-1\n").get("iperf3").map(String::as_str), Some("3.12-1"));
        assert!(of(std::iter::empty()).is_empty());
        assert!(of([PathBuf::from("/no/such/program")].into_iter()).is_empty());
    }
}
