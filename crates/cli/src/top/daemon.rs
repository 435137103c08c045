//! What is asked of the daemon: looks at its status, and probes to other hosts.

use super::latency::Latencies;
use super::state::State;
use super::worker::{Ended, Worker};
use crate::{exit, ping, status};
use anyhow::{Error, Result};
use crosslane_client::session::{Session, SessionError};
use crosslane_status::Status;
use crosslane_wire::HostId;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// The error that tells that the daemon went away while we looked at it.
pub(crate) fn gone(socket: &Path, why: &Error) -> Error {
    exit::gone(format!(
        "the daemon at {} has gone away ({why:#}): its log tells why; start it again, then `crosslane top`",
        socket.display()
    ))
}

/// A look at the status.
#[derive(Debug)]
pub(crate) enum Look {
    /// The status, and when it came.
    Status(Box<Status>, Instant),
    /// It did not come in time, but may yet.
    Late,
    /// The daemon is gone, or does not speak as we do.
    Failed(Error),
    /// The connection to a daemon: it is closed when the daemon goes away.
    Connected(OwnedFd),
}

/// The thread that looks. `session` is the connection that it begins with.
///
/// # Errors
/// The kernel gives us no thread.
pub(crate) fn looks(socket: &Path, session: Session) -> Result<Worker<(), Look>> {
    let (socket, mut session) = (socket.to_owned(), Some(session));
    let serve = move |(): (), answer: &mut dyn FnMut(Look)| {
        let look = look(&socket, &mut session, answer);
        answer(look);
    };
    Ok(Worker::start("looks", serve)?)
}

fn look(socket: &Path, session: &mut Option<Session>, answer: &mut dyn FnMut(Look)) -> Look {
    let outcome = connected(socket, session, answer).and_then(status::ask);
    match outcome {
        Ok(status) => Look::Status(Box::new(status), Instant::now()),
        Err(error) => {
            // An answer that is late would be taken for that to the next question.
            *session = None;
            let is_late = matches!(error.downcast_ref(), Some(SessionError::Late));
            if is_late { Look::Late } else { Look::Failed(error) }
        }
    }
}

fn connected<'a>(
    socket: &Path,
    session: &'a mut Option<Session>,
    answer: &mut dyn FnMut(Look),
) -> Result<&'a Session> {
    if session.is_none() {
        let new = status::session(socket)?;
        answer(Look::Connected(new.socket().try_clone_to_owned()?));
        return Ok(session.insert(new));
    }
    session.as_ref().ok_or_else(|| SessionError::Late.into())
}

/// What comes of a round of probes.
#[derive(Debug)]
enum Probe {
    /// The round trip to a host, ns, if it answered, and the cables on the way.
    Answer(HostId, Option<u64>, u8),
    /// The round is over.
    Done,
}

/// The thread that probes, on a connection of its own: a host that does not answer takes a second.
#[derive(Debug)]
pub(crate) struct Probes {
    worker: Worker<Vec<HostId>, Probe>,
    busy: bool,
}

impl Probes {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives us no thread.
    pub(crate) fn start(socket: &Path) -> Result<Self> {
        let (socket, mut session) = (socket.to_owned(), None);
        let serve = move |hosts: Vec<HostId>, answer: &mut dyn FnMut(Probe)| {
            // Whether the daemon is gone is told by the looks.
            if round(&socket, &mut session, &hosts, answer).is_err() {
                session = None;
            }
            answer(Probe::Done);
        };
        Ok(Self { worker: Worker::start("probes", serve)?, busy: false })
    }

    /// Begins a round, unless one is under way.
    pub(crate) fn begin(&mut self, state: &mut State) -> Result<(), Ended> {
        if self.busy {
            return Ok(());
        }
        let hosts = state.round();
        self.busy = !hosts.is_empty();
        if self.busy { self.worker.ask(hosts) } else { Ok(()) }
    }

    /// Whether a round is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Readable when [`Self::collect`] has something to do.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.worker.event_fd()
    }

    /// Counts the answers that have come. Returns whether the round ended.
    pub(crate) fn collect(&mut self, latencies: &mut Latencies) -> Result<bool, Ended> {
        let mut done = false;
        for probe in self.worker.answers()? {
            match probe {
                Probe::Answer(host, time_ns, hops) => latencies.add(host, time_ns, hops),
                Probe::Done => done = true,
            }
        }
        self.busy &= !done;
        Ok(done)
    }
}

fn round(
    socket: &Path,
    session: &mut Option<Session>,
    hosts: &[HostId],
    answer: &mut dyn FnMut(Probe),
) -> Result<()> {
    if session.is_none() {
        *session = Some(status::session(socket)?);
    }
    let Some(session) = session else { return Ok(()) };
    for host in hosts {
        let (time, hops) = ping::probe(session, *host)?;
        answer(Probe::Answer(*host, time, hops));
    }
    Ok(())
}
