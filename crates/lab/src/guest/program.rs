//! A program for a client outside, and its standard streams: pipes, or a pseudo-terminal.

use crate::machine::{Program, Terminal, text};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Makes its program the leader of a session whose terminal is its standard input (util-linux).
const SETSID: &str = "/usr/bin/setsid";

/// A program that runs, and our ends of its streams.
pub(super) struct Started {
    /// Leader of a process group of its own.
    pub(super) child: Child,
    pub(super) input: File,
    pub(super) output: File,
    /// `None`: the same as its output.
    pub(super) error: Option<File>,
    /// The terminal, to give it another size.
    pub(super) terminal: Option<File>,
}

/// Starts `program`.
///
/// # Errors
/// `NotFound` if there is none of that name. With a terminal it is started by another, which says so there, and ends with 127.
pub(super) fn start(program: &Program) -> io::Result<Started> {
    let (name, arguments) = program.command.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut command = match program.terminal {
        None => Command::new(text(name)),
        Some(_) => Command::new(SETSID),
    };
    if program.terminal.is_some() {
        command.arg("--ctty").arg(text(name));
    }
    command
        .args(arguments.iter().map(|argument| text(argument)))
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (text(name), text(value))))
        .current_dir(text(&program.folder));
    match program.terminal {
        None => with_pipes(command),
        Some(terminal) => with_terminal(command, terminal),
    }
}

fn with_pipes(mut command: Command) -> io::Result<Started> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let missing = || io::Error::from(ErrorKind::BrokenPipe);
    Ok(Started {
        input: file(child.stdin.take().ok_or_else(missing)?),
        output: file(child.stdout.take().ok_or_else(missing)?),
        error: Some(file(child.stderr.take().ok_or_else(missing)?)),
        terminal: None,
        child,
    })
}

fn with_terminal(mut command: Command, terminal: Terminal) -> io::Result<Started> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    terminal.size.give(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let no_own = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap_or(0);
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let its = OpenOptions::new().read(true).write(true).custom_flags(no_own).open(path)?;
    command.stdin(its.try_clone()?).stdout(its.try_clone()?);
    command.stderr(if terminal.error { its.into() } else { Stdio::piped() });
    let mut child = command.spawn()?;
    let ours = File::from(ours);
    Ok(Started {
        input: ours.try_clone()?,
        output: ours.try_clone()?,
        error: child.stderr.take().map(file),
        terminal: Some(ours),
        child,
    })
}

fn file(pipe: impl Into<OwnedFd>) -> File {
    File::from(pipe.into())
}
