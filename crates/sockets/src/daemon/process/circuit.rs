//! Asking for circuits.

use super::{LOST, RESUMPTIONS, RETRY_SOON, STATE, look_at_connection, on_session};
use crate::daemon::fd_exhausted;
use crate::kernel::{fd, thread};
use core::sync::atomic::Ordering;
use crosslane_client::link::attached::Granted;
use crosslane_client::session::ANSWER_TIMEOUT;
use crosslane_client::{End, Session};
use crosslane_wire::local::{Plain, Request};
use rustix::fd::RawFd;
use std::time::{Duration, Instant};

/// Why there is no circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The connection is plain TCP, and the far end knows it.
    Plain(Plain),
    /// The daemon is there but gave no usable answer: what the far end believes is not known.
    Silent,
}

/// Asks for a circuit for `socket`; for `patience` at most, and always less than [`ANSWER_TIMEOUT`] for each answer. If the
/// connection ends meanwhile, the answer is asked for again by the next one.
pub fn circuit(request: &Request, socket: RawFd, patience: Duration) -> Result<Granted, ConnectError> {
    let until = Instant::now() + patience;
    let mut seen = RESUMPTIONS.load(Ordering::Relaxed);
    let mut outcome = try_circuit(request, socket, patience);
    while matches!(outcome, Err(ConnectError::Silent)) && Instant::now() < until {
        let (lost, now) = (LOST.load(Ordering::Relaxed), RESUMPTIONS.load(Ordering::Relaxed));
        if !lost && now == seen {
            break;
        }
        if lost {
            std::thread::sleep(RETRY_SOON);
        }
        seen = now;
        outcome = match (try_circuit(request, socket, patience), request) {
            // It was accepted, and the answer was lost.
            (Err(ConnectError::Plain(Plain::NotAnnounced)), Request::Accept) => {
                try_circuit(&Request::Adopt, socket, patience)
            }
            (outcome, _) => outcome,
        };
    }
    outcome
}

fn try_circuit(request: &Request, socket: RawFd, patience: Duration) -> Result<Granted, ConnectError> {
    let socket = fd::borrow(socket);
    let granted = on_session(|link| {
        let waits = !link.hangs() && patience >= ANSWER_TIMEOUT;
        link.circuit(request, socket, patience, waits, |session, request| {
            let ask = |session: &Session| session.circuit(request, socket);
            Some(fd_exhausted::elsewhere(session, Some(socket), ask))
        })
    });
    match granted {
        Some(granted) => granted.map_err(ConnectError::Plain),
        None if is_absent() => Err(ConnectError::Plain(Plain::System)),
        None => Err(ConnectError::Silent),
    }
}

/// Asks for the second circuit of a striped stream, for `patience` at most.
pub fn twin(end: &End, patience: Duration) -> Result<Granted, ConnectError> {
    let granted = on_session(|link| {
        let waits = !link.hangs() && patience >= ANSWER_TIMEOUT;
        let ids @ (circuit, token) = (end.circuit(), end.token());
        link.twin(ids, patience, waits, |session| {
            Some(fd_exhausted::elsewhere(session, None, |session| session.twin(circuit, token, patience)))
        })
    });
    granted.map_or(Err(ConnectError::Silent), |granted| granted.map_err(ConnectError::Plain))
}

/// Whether the daemon that knew of this process's listeners is gone, so that whatever it announced is over at the other
/// end too.
fn is_absent() -> bool {
    look_at_connection();
    STATE.with(thread::tid(), |state| state.link.is_none() && state.former.is_none()).unwrap_or(false)
}
