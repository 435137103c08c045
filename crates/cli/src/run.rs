//! `crosslane run`: become a program, accelerated.

use crate::exit;
use anyhow::Result;
use crosslane_client::session::SOCKET_VARIABLE;
use crosslane_lab::{LabError, malloc_library, preload_list, socket_library};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Environment variable that gives the library for large allocations its threshold, bytes.
const MALLOC_VARIABLE: &str = "CROSSLANE_MALLOC";

/// Replaces this process by the program; returns only on failure. Without a daemon the program runs all the
/// same: the library says once that it uses plain TCP. Allocations of `large` bytes and more are memory that far programs
/// may map, if that is given, or by the environment.
///
/// # Errors
/// The library is missing (exit code 125), the program cannot be run (126) or found (127).
pub(crate) fn run(socket: Option<&Path>, large: Option<u64>, command: &[OsString]) -> Result<()> {
    let Some((program, args)) = command.split_first() else {
        return Err(exit::usage("no program was given"));
    };
    let missing = |error: LabError| exit::with_code(125, error.to_string());
    let sockets = socket_library(None).map_err(missing)?;
    let wanted = large.is_some() || std::env::var_os(MALLOC_VARIABLE).is_some_and(|size| !size.is_empty());
    let malloc = wanted.then(|| malloc_library(None)).transpose().map_err(missing)?;
    let mut become_it = Command::new(program);
    become_it.args(args).env("LD_PRELOAD", preload_list(&sockets, malloc.as_deref()));
    if let Some(large) = large {
        become_it.env(MALLOC_VARIABLE, large.to_string());
    }
    if let Some(socket) = socket {
        become_it.env(SOCKET_VARIABLE, std::path::absolute(socket)?);
    }
    let error = become_it.exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Err(exit::with_code(code, format!("run {}: {error}", program.to_string_lossy())))
}
