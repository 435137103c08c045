//! Becoming a program in a host: the running process enters the host's namespaces and is replaced.

use crate::LabError;
use crate::namespace::{enter_network, enter_user, held_by, show_interfaces};
use crate::plan::Preload;
use crate::state::State;
use crosslane_client::preload;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Which program to become, and where.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The lab.
    pub state: State,
    /// Name of the host.
    pub host: String,
    /// Whether the program is accelerated by the socket library.
    pub preload: Preload,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// End the program (SIGTERM) when the process that started it dies.
    pub tied: bool,
}

/// Enters the host and replaces this process by the program; returns only on failure. The calling process must
/// have one thread.
///
/// Returns the error and the exit code for it: 127 if the program was not found, 126 if it cannot be run, 125
/// for everything before.
pub fn enter(entry: &Entry) -> (LabError, u8) {
    let mut command = match prepare(entry) {
        Ok(command) => command,
        Err(error) => return (error, 125),
    };
    let name = command.get_program().to_string_lossy().into_owned();
    let error = command.exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    (LabError::io(format!("run {name}"))(error), code)
}

fn prepare(entry: &Entry) -> Result<Command, LabError> {
    let state = &entry.state;
    let host = state.host(&entry.host)?;
    let (program, args) =
        entry.command.split_first().ok_or_else(|| LabError::Options("no program was given".to_owned()))?;
    // Both are opened before either is entered: the paths are readable to the user who owns the lab.
    let network = held_by(state.keeper, host.network)?;
    if let Some(user) = state.user {
        enter_user(held_by(state.keeper, user)?.as_fd())?;
    }
    enter_network(network.as_fd())?;
    show_interfaces();
    if entry.tied {
        die_with_parent()?;
    }
    let mut command = Command::new(program);
    command.args(args).env("CROSSLANE_LAB", &state.mark).env("CROSSLANE_SOCKET", &host.control);
    match entry.preload {
        Preload::On => command.env("LD_PRELOAD", preload_list(library(state)?, None)),
        Preload::Off => match without_ours() {
            Some(rest) => command.env("LD_PRELOAD", rest),
            None => command.env_remove("LD_PRELOAD"),
        },
    };
    Ok(command)
}

fn die_with_parent() -> Result<(), LabError> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(LabError::io("tie to the parent process"))?;
    if getppid() == parent { Ok(()) } else { Err(LabError::Options("the parent process is gone".to_owned())) }
}

pub(crate) fn library(state: &State) -> Result<&Path, LabError> {
    let folder = state.program.parent().unwrap_or(Path::new("?"));
    state.sockets.as_deref().ok_or_else(|| LabError::Missing {
        what: "libcrosslane_sockets.so".to_owned(),
        places: format!("{} when the lab was made", folder.display()),
    })
}

/// A value of `LD_PRELOAD`: the socket library first, then the one for large allocations if it is wanted, then what the
/// environment has there already. Ours are named so that programs of another C library than glibc start without them.
pub fn preload_list(sockets: &Path, malloc: Option<&Path>) -> OsString {
    let mut list = preload::name(sockets);
    for more in malloc.map(preload::name).into_iter().chain(without_ours()) {
        list.push(":");
        list.push(more);
    }
    list
}

/// The inherited preload list without our libraries; `None` if nothing is left.
fn without_ours() -> Option<OsString> {
    let ours = ["libcrosslane_sockets.so", "libcrosslane_malloc.so"].map(OsStr::new);
    let list = env::var_os("LD_PRELOAD")?;
    let text = list.to_string_lossy();
    let rest: Vec<&str> =
        text.split([':', ' ']).filter(|one| !one.is_empty() && !ours.contains(&last(one))).collect();
    (!rest.is_empty()).then(|| rest.join(":").into())
}

fn last(path: &str) -> &OsStr {
    Path::new(path).file_name().unwrap_or_default()
}
