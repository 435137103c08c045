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

/// Connections of a user above his quota at a time: they go on with an earlier session, or end.
const GUESTS: usize = 8;
/// What it costs its user, in requests, to find a lost session, and how many of its ends are checked for the cost of one.
const SEARCH: u64 = 8;
const ENDS: u64 = 8;

impl Host {
    /// The connection of a session has ended, or is of no more use. While a process holds a socket of its ends, which the
    /// kernel knows, they live: the program may come again, or another may have inherited them.
    pub fn lose_session(&mut self, id: SessionId) {
        self.forsake(id);
        let Some(session) = self.sessions.get(&id) else { return };
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
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let socket = session.lose(opener);
        self.unwatched.extend(socket.map(|socket| (id, socket)));
        self.lost.insert(id);
        let held: Vec<CircuitId> = session.held.iter().copied().collect();
        let now = self.now;
        held.into_iter().for_each(|circuit| self.policy.check_holders_soon(circuit, now));
    }

    /// The session that a new one of the same process goes on with, by its ticket. An error says that it must come later.
    pub(crate) fn session_of_ticket(&self, new: SessionId, ticket: u64) -> Result<Option<SessionId>, ()> {
        let Some(pid) = self.sessions.get(&new).map(|session| session.pid).filter(|_| ticket != 0) else {
            return Ok(None);
        };
        let is_it = |session: &&Session| session.id != new && session.ticket == ticket && session.pid == pid;
        match self.sessions.values().find(is_it) {
            Some(session) if session.aside => Err(()),
            session => Ok(session.map(|session| session.id)),
        }
    }

    /// The session `old` goes on by the connection of `new`, which was of the same process.
    pub(crate) fn go_on_by(&mut self, old: SessionId, new: SessionId) {
        self.forsake(old);
        if let Some(socket) = self.sessions.get(&old).and_then(Session::socket) {
            // The program saw its end first.
            let opener = Opener::of(socket.as_fd());
            self.part(old, opener);
        }
        let Some(fresh) = self.sessions.remove(&new) else { return };
        self.forget_lost(fresh.uid, new);
        let Some(uid) = self.sessions.get(&old).map(|session| session.uid) else { return };
        self.forget_lost(uid, old);
        let Some(session) = self.sessions.get_mut(&old) else { return };
        // It is watched under its own number from now on.
        self.unwatched.extend(session.go_on(fresh).map(|socket| (new, socket)));
        self.touched.insert(old);
        tracing::debug!(session = old.0, program = %session.program, pid = session.pid, "session goes on");
        // What it said before its connection ended may not have been heard: perhaps that it has closed one.
        let held: Vec<CircuitId> = session.held.iter().copied().collect();
        self.spend(old, SEARCH + held.len() as u64 / ENDS);
        for circuit in held {
            self.policy.check_holders_anew(circuit, self.now);
        }
    }

    /// Whether a connection of a user who has used up his quota is let in, since a session of his may wait for it, whose loss
    /// was perhaps not seen here yet.
    pub(crate) fn may_be_awaited(&self, uid: u32) -> bool {
        let of_user = (uid, SessionId(0))..=(uid, SessionId(u64::MAX));
        self.guests.range(of_user).take(GUESTS).count() < GUESTS
    }

    /// The session has ended, or goes on.
    pub(crate) fn forget_lost(&mut self, uid: u32, id: SessionId) {
        self.lost.remove(&id);
        self.guests.remove(&(uid, id));
    }

    /// A session that waits for its program holds nothing any more.
    pub(crate) fn end_empty_sessions(&mut self) {
        for id in std::mem::take(&mut self.emptied) {
            if self.sessions.get(&id).is_some_and(|session| session.is_lost() && session.held.is_empty()) {
                self.end_session(id);
            }
        }
    }
}
