//! The errors of a lab, and what to do about them.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a lab could not be made, entered or ended.
#[derive(Debug, Error)]
pub enum LabError {
    /// The options contradict each other or are out of range.
    #[error("{0}")]
    Options(String),
    /// There is a lab of that name.
    #[error(
        "lab `{name}` is up already: end it with `crosslane lab down --name {name}`, or replace it with --force"
    )]
    AlreadyUp {
        /// Its name.
        name: String,
    },
    /// There is no lab of that name.
    #[error("no lab `{name}` is up ({}): start one with `crosslane lab up --name {name}`", .folder.display())]
    NotUp {
        /// Its name.
        name: String,
        /// Where its state would be.
        folder: PathBuf,
    },
    /// The lab has no host of that name.
    #[error("no host `{host}` in lab `{name}`; it has {hosts}")]
    NoHost {
        /// What was asked for.
        host: String,
        /// The lab's name.
        name: String,
        /// Names of its hosts.
        hosts: String,
    },
    /// No cable joins the two.
    #[error("no cable joins {one} and {other}; the cables of {one} lead to {neighbours}")]
    NoCable {
        /// A host.
        one: String,
        /// Another, or the same.
        other: String,
        /// Names of the first one's neighbours.
        neighbours: String,
    },
    /// The keeper refused the request.
    #[error("{0}")]
    Refused(String),
    /// A binary or library of Crosslane's is missing.
    #[error(
        "{what} was not found in {places}: build it with `make build`, or set CROSSLANE_BIN to the folder that has it"
    )]
    Missing {
        /// File name.
        what: String,
        /// Where it was looked for.
        places: String,
    },
    /// The kernel does not let this user make namespaces.
    #[error(
        "this kernel does not let you make {what} ({source}): run as root, or allow it with \
         `sysctl -w kernel.unprivileged_userns_clone=1` (Debian) or \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu); in a container, add CAP_SYS_ADMIN"
    )]
    Forbidden {
        /// Kind of namespace.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Other users could choose what a lab runs and ends.
    #[error(
        "{} is not safe for a lab: {why}; remove it, or set XDG_RUNTIME_DIR to a folder that only you can write", .folder.display()
    )]
    Untrusted {
        /// The folder, or a link, on the way to the lab's files.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The keeper could not make the lab.
    #[error("the lab did not come up: {0}")]
    Keeper(String),
    /// The lab was not ready in time.
    #[error("the lab was not ready after {seconds:.1} s: {why}{logs}")]
    NotReady {
        /// How long it was waited for, s.
        seconds: f64,
        /// What was still missing.
        why: String,
        /// Ends of the daemons' logs, or nothing.
        logs: String,
    },
    /// A daemon does not answer.
    #[error("no daemon answers at {}: {why}", .socket.display())]
    NoDaemon {
        /// Its control socket.
        socket: PathBuf,
        /// Why.
        why: String,
    },
    /// A system call or command failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl LabError {
    pub(crate) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }
}
