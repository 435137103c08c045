//! Sessions whose connection has ended while their program may live: they wait for it.
//!
//! ```text
//!   connection ends --> does a process hold a socket of one of its ends?  --no-->  the session ends
//!                         | yes
//!                         v
//!                       lost: its ends live, their words in its status page go on being true, its wake events are rung
//!                         |                                  |
//!   Hello with its ticket, from its process           the kernel says that nobody holds a socket of them
//!                         v                                  v
//!                       goes on by the new connection      the end is closed; the session ends with its last one
//! ```
//! A lost session costs its user what it cost before, so nobody gains by losing sessions.

use crate::host::Host;
use crate::session::{Session, SessionId};
use crosslane_shm::peer::Opener;
use crosslane_wire::CircuitId;
use std::os::fd::AsFd;

/// What it costs its user, in requests, to find a lost session, and how many of its ends are checked for the cost of one.
const SEARCH: u64 = 8;
const ENDS: u64 = 8;

impl Host {
    /// The connection of a session has ended, or is of no more use. While a process holds a socket of its ends, which the
    /// kernel knows, they live: the program may come again, or another may have inherited them.
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

    /// The session has no connection any more.
    fn part(&mut self, id: SessionId, opener: Opener) {
        if let Some(engines) = &mut self.offload {
            engines.remove(id);
        }
        let Some(session) = self.sessions.lose(id, opener) else { return };
        let held: Vec<CircuitId> = session.held.iter().copied().collect();
        let now = self.now;
        held.into_iter().for_each(|circuit| self.policy.check_holders_soon(circuit, now));
    }

    /// The session `old` goes on by the connection of `new`, which was of the same process.
    pub(crate) fn go_on_by(&mut self, old: SessionId, new: SessionId) {
        self.forsake(old);
        if let Some(socket) = self.sessions.get(old).and_then(Session::socket) {
            // The program saw its end first.
            let opener = Opener::of(socket.as_fd());
            self.part(old, opener);
        }
        let Some(session) = self.sessions.go_on(old, new) else { return };
        tracing::debug!(session = old.0, program = %session.program, pid = session.pid, "session goes on");
        // What it said before its connection ended may not have been heard: perhaps that it has closed one.
        let held: Vec<CircuitId> = session.held.iter().copied().collect();
        self.spend(old, SEARCH + held.len() as u64 / ENDS);
        for circuit in held {
            self.policy.check_holders_anew(circuit, self.now);
        }
    }

    /// A session that waits for its program holds nothing any more.
    pub(crate) fn end_empty_sessions(&mut self) {
        for id in self.sessions.take_emptied() {
            self.end_session(id);
        }
    }
}
