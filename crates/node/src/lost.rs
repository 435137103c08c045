//! Sessions that have lost their connection while their program may live: the daemon keeps them for it.
//!
//! ```text
//!   connection ends --> does a process hold a socket of one of its endpoints?  --no-->  the session ends
//!                         | yes
//!                         v
//!                       lost: its endpoints live, their words in its status page stay current, its waiters are woken
//!                         |                                  |
//!   Hello with its ticket, from its process           the kernel says that no process holds an endpoint's socket
//!                         v                                  v
//!                       resumes over the new connection    the endpoint is closed; the session ends with its last one
//! ```
//! A lost session is charged to its user as before, so nobody gains by losing sessions.

use crate::host::Host;
use crate::session::{Session, SessionId};
use crosslane_shm::peer::Opener;
use crosslane_wire::CircuitId;
use std::os::fd::AsFd;

/// Requests charged to the user for finding a lost session; and how many endpoints are checked for the charge of one request.
const SEARCH: u64 = 8;
const ENDS: u64 = 8;

impl Host {
    /// Handles the end of a session's connection, or a connection that is of no more use. Its endpoints live while a process holds
    /// one of their sockets, which the kernel knows: the program may connect again, or another process may have inherited them.
    pub fn lose_session(&mut self, id: SessionId) {
        self.forsake(id);
        let Some(session) = self.sessions.get(id) else { return };
        let Some(opener) = session.socket().map(|socket| Opener::of(socket.as_fd())) else { return };
        let is_held = |circuit: &CircuitId| match self.policy.circuits.get(*circuit) {
            Some(end) if end.scope.0 != 0 => !opener.has_ended(),
            _ => self.is_held(*circuit) == Some(true),
        };
        if !session.greeted || !session.held.iter().any(is_held) {
            return self.end_session(id);
        }
        tracing::debug!(session = id.0, program = %session.program, pid = session.pid, "session is lost");
        self.part(id, opener);
    }

    /// Takes the connection from a session.
    fn part(&mut self, id: SessionId, opener: Opener) {
        if let Some(engines) = &mut self.offload {
            engines.remove(id);
        }
        let Some(session) = self.sessions.lose(id, opener) else { return };
        let held: Vec<CircuitId> = session.held.iter().copied().collect();
        let now = self.now;
        held.into_iter().for_each(|circuit| self.policy.check_holders_soon(circuit, now));
    }

    /// The session `old` resumes over the connection of `new`, which the same process opened.
    pub(crate) fn go_on_by(&mut self, old: SessionId, new: SessionId) {
        self.forsake(old);
        if let Some(socket) = self.sessions.get(old).and_then(Session::socket) {
            // The program saw the old connection's end before the daemon did.
            let opener = Opener::of(socket.as_fd());
            self.part(old, opener);
        }
        let Some(session) = self.sessions.go_on(old, new) else { return };
        tracing::debug!(session = old.0, program = %session.program, pid = session.pid, "session goes on");
        // Requests that the program sent on the old connection may be lost: perhaps that it has closed an endpoint.
        let held: Vec<CircuitId> = session.held.iter().copied().collect();
        self.spend(old, SEARCH + held.len() as u64 / ENDS);
        for circuit in held {
            self.policy.check_holders_anew(circuit, self.now);
        }
    }

    /// Ends the sessions without a connection that hold no endpoint any more.
    pub(crate) fn end_empty_sessions(&mut self) {
        for id in self.sessions.take_emptied() {
            self.end_session(id);
        }
    }
}
