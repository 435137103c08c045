//! `crosslane doctor`: what is in the way of NTB cables, of programs and of the daemon on a machine.

use crate::table::{Table, count};
use crate::{exit, screen, status};
use anyhow::{Context, Result};
use crosslane_client::session::SessionError;
use crosslane_doctor::{Daemon, Finding, Report, Severity, Tree, examine};
use std::io::{Write, stdout};
use std::path::Path;

/// Prints what was found on the machine whose files lie in `root`. The daemon at `socket` is asked if these are this machine's, or if
/// `socket_given` says that the user wants it.
///
/// # Errors
/// There is no such folder; or there is a finding of severity `error` (exit code 1, without a text).
pub(crate) fn doctor(socket: &Path, socket_given: bool, root: &Path, as_json: bool) -> Result<()> {
    let tree = Tree::open(root).with_context(|| format!("--root {}", root.display()))?;
    let daemon = if tree.is_live() || socket_given { ask(socket) } else { Daemon::NotAsked };
    let report = examine(&tree, &daemon);
    let mut out = stdout().lock();
    if as_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        let width = screen::width(&out);
        print(&report, width, &mut out)?;
    }
    if report.count(Severity::Error) > 0 { Err(exit::with_code(exit::FAILED, "")) } else { Ok(()) }
}

fn ask(socket: &Path) -> Daemon {
    let asked = status::session(socket).and_then(|session| status::ask(&session));
    match asked {
        Ok(status) => Daemon::Answered(Box::new(status), env!("CARGO_PKG_VERSION")),
        Err(error) => match error.downcast_ref::<SessionError>() {
            Some(SessionError::NoDaemon { path, errno }) => {
                Daemon::Absent(format!("no daemon answers at {}: {errno}", path.display()))
            }
            _ => Daemon::Refused(format!("the daemon at {} gives no status: {error:#}", socket.display())),
        },
    }
}

/// All findings as a table, the worst first, then what to do about each that is not as it should be.
fn print(report: &Report, width: usize, out: &mut impl Write) -> Result<()> {
    let mut table = Table::new("severity|check|about|seen");
    for finding in &report.findings {
        let about = finding.about.clone().unwrap_or_default();
        let name = finding.severity.name().to_owned();
        table.row([name, finding.check.to_string(), about, finding.seen.clone()]);
    }
    table.print(out)?;
    for finding in report.findings.iter().filter(|finding| finding.severity != Severity::Ok) {
        advice(finding, width, out)?;
    }
    let of = |severity: Severity, thing| count(report.count(severity), thing);
    Ok(writeln!(out, "\n{}, {}", of(Severity::Error, "error"), of(Severity::Warning, "warning"))?)
}

fn advice(finding: &Finding, width: usize, out: &mut impl Write) -> Result<()> {
    if finding.reason.is_empty() && finding.action.is_empty() {
        return Ok(());
    }
    let about = finding.about.as_ref().map_or_else(String::new, |about| format!(", {about}"));
    writeln!(out, "\n{}: {}{about}", finding.severity.name(), finding.check)?;
    for (head, text) in [("why", &finding.reason), ("do", &finding.action)] {
        for (at, line) in lines(text, width.saturating_sub(8)).into_iter().enumerate() {
            writeln!(out, "  {:<5} {line}", if at == 0 { head } else { "" })?;
        }
    }
    Ok(())
}

/// The words of `text` in lines of at most `width` characters; a longer word has a line of its own.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_wraps_long_texts_at_words() {
        assert_eq!(lines("one two  three", 7), ["one two", "three"]);
        assert_eq!(lines("unbreakable a", 4), ["unbreakable", "a"]);
        assert!(lines(" ", 4).is_empty());
    }

    #[test]
    fn doctor_prints_each_finding_and_what_to_do() {
        let folder = tempfile::tempdir().expect("folder");
        let tree = Tree::open(folder.path()).expect("tree");
        let report = examine(&tree, &Daemon::Absent("nobody there".to_owned()));
        let mut out = Vec::new();
        print(&report, 60, &mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("SEVERITY  CHECK"), "{text}");
        assert!(
            text.contains("nobody there") && text.contains("  do    `crosslaned --config FILE`"),
            "{text}"
        );
        assert!(text.ends_with("\n0 errors, 2 warnings\n"), "{text}");
    }

    #[test]
    fn doctor_fails_only_where_there_is_an_error() {
        let folder = tempfile::tempdir().expect("folder");
        let socket = folder.path().join("none.sock");
        assert!(doctor(&socket, false, folder.path(), true).is_ok());
        let device = folder.path().join("sys/bus/pci/devices/0000:00:03.0");
        std::fs::create_dir_all(&device).expect("folder");
        for (file, text) in [("vendor", "0x8086\n"), ("device", "0x201c\n"), ("class", "0x068000\n")] {
            std::fs::write(device.join(file), text).expect("written");
        }
        let failed = doctor(&socket, false, folder.path(), true).expect_err("a bridge without a driver");
        assert_eq!(exit::code(Err(failed)), std::process::ExitCode::from(exit::FAILED));
        assert!(doctor(&socket, false, &folder.path().join("none"), true).is_err());
    }
}
