//! Whether anybody holds an end: what sessions and the kernel's table of sockets say.

use super::Host;
use super::hearing::Hearing;
use crate::session::{Session, SessionId};
use crate::socket_table::Fate;
use crosslane_fabric::circuit::{End, Role, Scope, State};
use crosslane_wire::CircuitId;

impl Host {
    /// Whether a process holds the end's socket, whatever sessions say; `None` if that cannot be told.
    pub(crate) fn is_held(&self, circuit: CircuitId) -> Option<bool> {
        self.hearing().holds_socket(self.policy.circuits.get(circuit)?, self.ends.holders(circuit))
    }

    /// An end is closed that nobody holds. `late`: some time ago, and nobody has said so.
    pub(crate) fn nobody_holds(&mut self, circuit: CircuitId, late: bool) {
        if late {
            let tuple = self.policy.circuits.get(circuit).map(|end| end.tuple.to_string());
            let uid = self.ends.uid(circuit);
            tracing::info!(uid, %circuit, tuple, "nobody holds this end any more");
        }
        self.close_end(circuit, false);
    }
}

impl Hearing<'_> {
    /// Whether a process holds the socket of an end, which is in this state, and is held by these sessions.
    pub(crate) fn holds_socket(&self, end: &End, holders: &[(SessionId, u32)]) -> Option<bool> {
        if end.scope != Scope(0) {
            // The kernel shows other network namespaces only to those who are in there.
            return self
                .are_all(holders, Session::is_lost)
                .then(|| !self.are_all(holders, Session::is_orphaned));
        }
        let (local, remote) = match end.role {
            Role::Client => (end.tuple.client, end.tuple.server),
            Role::Server => (end.tuple.server, end.tuple.client),
        };
        match self.sockets.fate(local, remote, self.interface_of(&end.tuple))? {
            Fate::Held => Some(true),
            Fate::Unheld => Some(end.state == State::Pending),
            Fate::Gone => Some(false),
        }
    }

    /// Whether there are such sessions, and all of them are like that.
    pub(crate) fn are_all(&self, holders: &[(SessionId, u32)], are: impl Fn(&Session) -> bool) -> bool {
        !holders.is_empty() && holders.iter().all(|(id, _)| self.sessions.get(*id).is_none_or(&are))
    }
}
