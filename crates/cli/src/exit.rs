//! Exit codes.

use anyhow::Error;
use crosslane_client::session::SessionError;
use crosslane_lab::LabError;
use crosslane_node::config::ConfigError;
use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

/// It failed.
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
const NO_DAEMON: u8 = 3;
const NO_LAB: u8 = 4;

/// An error that brings its exit code.
#[derive(Debug)]
pub(crate) struct Coded {
    code: u8,
    text: String,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Coded {}

/// An error with an exit code of its own; an empty text prints nothing.
pub(crate) fn with_code(code: u8, text: impl Into<String>) -> Error {
    Coded { code, text: text.into() }.into()
}

/// The command line makes no sense.
pub(crate) fn usage(text: impl Into<String>) -> Error {
    with_code(USAGE, text)
}

/// A daemon that answered went away.
pub(crate) fn gone(text: impl Into<String>) -> Error {
    with_code(NO_DAEMON, text)
}

/// Prints the error, if any, and returns its exit code.
pub(crate) fn code(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // The reader of our output has closed it (`crosslane status | head`).
    if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let text = format!("{error:#}");
    if !text.is_empty() {
        eprintln!("crosslane: {text}");
    }
    ExitCode::from(code_of(&error))
}

fn code_of(error: &Error) -> u8 {
    if let Some(coded) = error.downcast_ref::<Coded>() {
        return coded.code;
    }
    if error.downcast_ref::<ConfigError>().is_some() {
        return USAGE;
    }
    match error.downcast_ref::<LabError>() {
        Some(LabError::NotUp { .. } | LabError::NoHost { .. }) => return NO_LAB,
        Some(LabError::Options(_) | LabError::NoCable { .. }) => return USAGE,
        Some(LabError::NoDaemon { .. }) => return NO_DAEMON,
        _ => {}
    }
    match error.downcast_ref::<SessionError>() {
        Some(SessionError::NoDaemon { .. }) => NO_DAEMON,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_of_each_failure() {
        assert_eq!(code_of(&usage("x")), USAGE);
        assert_eq!(code_of(&anyhow::anyhow!("x")), FAILED);
        assert_eq!(code_of(&LabError::NotUp { name: "x".into(), folder: "/".into() }.into()), NO_LAB);
        let unread = ConfigError::Read { path: "/x".into(), error: ErrorKind::NotFound.into() };
        assert_eq!(code_of(&unread.into()), USAGE);
        let wrapped = Error::from(LabError::Options("x".into())).context("while");
        assert_eq!(code_of(&wrapped), USAGE);
    }
}
