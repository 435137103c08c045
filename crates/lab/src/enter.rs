//! Becoming a program in a host: the running process enters the host's namespaces and is replaced.

use crate::LabError;
use crate::machine::{Program, client};
use crate::namespace::{enter_network, enter_user, held_by, show_interfaces};
use crate::plan::Preload;
use crate::state::{HostState, State};
use crosslane_client::preload;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which program to become, and where.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The lab.
    pub state: State,
    /// Its folder.
    pub folder: PathBuf,
    /// Name of the host.
    pub host: String,
    /// Whether the program is accelerated by the socket library.
    pub preload: Preload,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// End the program (SIGTERM) when the process that started it dies.
    pub tied: bool,
    /// Where the program runs if the host is a virtual machine.
    pub place: Place,
}

/// Where a program of a host that is a virtual machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the machine.
    Inside,
    /// In the network namespace that the machine itself runs in.
    Beside,
}

/// Enters the host and replaces this process by the program; returns only on failure. The calling process must
/// have one thread.
///
/// Returns the error and the exit code for it: 127 if the program was not found, 126 if it cannot be run, 125
/// for everything before.
pub fn enter(entry: &Entry) -> (LabError, u8) {
    if entry.state.accelerator.is_some() && entry.place == Place::Inside {
        return run_inside(entry);
    }
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
    let command = command_of(entry, host)?;
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
    Ok(command)
}

/// Runs the program in the machine and ends as it did.
fn run_inside(entry: &Entry) -> (LabError, u8) {
    let program = entry.state.host(&entry.host).and_then(|host| Ok((host, program_of(entry, host)?)));
    let (host, program) = match program {
        Ok(program) => program,
        Err(error) => return (error, 125),
    };
    match entry.tied.then(die_with_parent).transpose() {
        Ok(_) => match client::run(&entry.folder, host, program) {
            Ok(code) => std::process::exit(code.into()),
            Err(failed) => failed,
        },
        Err(error) => (error, 125),
    }
}

/// The program with the environment that it would have here.
fn program_of(entry: &Entry, host: &HostState) -> Result<Program, LabError> {
    let command = command_of(entry, host)?;
    let mut environment: BTreeMap<OsString, OsString> = env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => environment.insert(name.to_owned(), value.to_owned()),
            None => environment.remove(name),
        };
    }
    let folder = env::current_dir().map_err(LabError::io("read the current folder"))?;
    Ok(Program {
        command: entry.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: environment
            .into_iter()
            .map(|(name, value)| (name.into_vec(), value.into_vec()))
            .collect(),
        folder: folder.into_os_string().into_vec(),
        terminal: None,
    })
}

/// The program, with the words of its environment that make it one of the host.
fn command_of(entry: &Entry, host: &HostState) -> Result<Command, LabError> {
    let state = &entry.state;
    let (program, args) =
        entry.command.split_first().ok_or_else(|| LabError::Options("no program was given".to_owned()))?;
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
