//! Requests to the keeper.

use super::READY;
use crate::LabError;
use crate::folder::{self, Folder};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a requester may take to send, and the keeper to answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest request, bytes.
const LONGEST: u64 = 4096;

/// A request to the keeper, one JSON line a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Command {
    /// Start a host's daemon.
    Start {
        /// The host.
        host: String,
    },
    /// Signal a host's daemon and wait for its end.
    Kill {
        /// The host.
        host: String,
        /// Number of the signal.
        signal: i32,
    },
    /// Note that a cable is cut, or whole, for daemons that start from now on.
    Cable {
        /// Number of the cable.
        number: u8,
        /// Whether it is cut.
        cut: bool,
    },
}

/// Asks the keeper of the lab in `folder`.
pub(crate) fn ask(folder: &Folder, command: &Command) -> Result<(), LabError> {
    let failed = |error: std::io::Error| LabError::Refused(format!("its keeper does not answer: {error}"));
    let mut socket = UnixStream::connect(folder.file(folder::KEEPER)).map_err(failed)?;
    socket.set_read_timeout(Some(REQUEST_TIMEOUT)).map_err(failed)?;
    let line = serde_json::to_string(command).map_err(|e| failed(e.into()))?;
    socket.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map_err(failed)?;
    if answer == READY { Ok(()) } else { Err(LabError::Refused(answer)) }
}

/// The request of `peer`; `None` if it sends nothing in time, or is gone.
pub(super) fn read(peer: &UnixStream) -> Option<Result<Command, LabError>> {
    let mut line = String::new();
    peer.set_read_timeout(Some(REQUEST_TIMEOUT)).and(peer.set_write_timeout(Some(REQUEST_TIMEOUT))).ok()?;
    BufReader::new(Read::take(peer, LONGEST)).read_line(&mut line).ok()?;
    Some(serde_json::from_str(&line).map_err(|error| LabError::Options(error.to_string())))
}
