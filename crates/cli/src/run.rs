//! `crosslane run`: become a program, accelerated.

use crate::exit;
use anyhow::Result;
use crosslane_client::session::SOCKET_VARIABLE;
use crosslane_lab::{preload_list, socket_library};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Replaces this process by the program; returns only on failure. Without a daemon the program runs all the
/// same: the library says once that it uses plain TCP.
///
/// # Errors
/// The library is missing (exit code 125), the program cannot be run (126) or found (127).
pub(crate) fn run(socket: Option<&Path>, command: &[OsString]) -> Result<()> {
    let Some((program, args)) = command.split_first() else {
        return Err(exit::usage("no program was given"));
    };
    let library = socket_library(None).map_err(|error| exit::with_code(125, error.to_string()))?;
    let mut become_it = Command::new(program);
    become_it.args(args).env("LD_PRELOAD", preload_list(&library));
    if let Some(socket) = socket {
        become_it.env(SOCKET_VARIABLE, std::path::absolute(socket)?);
    }
    let error = become_it.exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Err(exit::with_code(code, format!("run {}: {error}", program.to_string_lossy())))
}
