//! `Accept`: the stream that an accepted connection is, if its far program took it for one.
//!
//! The far program gets its circuit before it sends its SYN, or goes by plain TCP; its handshake, the first unit of the
//! stream, says that it has the circuit. The SYN may be here first: a host between may be slow, or a cable was cut and the
//! handshake is sent again by another way. Nobody can tell then which of the two it is, so the answer waits: until the
//! handshake comes, or the far daemon breaks off a circuit that its program never had. Before that, it waits for the far
//! daemon's word that the socket which announced the connection became it (decision 19).

use super::Host;
use super::proving::Choice;
use crate::accept::Accepting;
use crate::proof::Proof;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::circuit::State;
use crosslane_wire::local::Plain;
use crosslane_wire::{CircuitId, Tuple};
use std::time::Duration;

/// Longest that an answer waits for a circuit that was lost, if streams may look for another so long: less than a program
/// waits for its daemon.
const LOST: Duration = Duration::from_millis(1500);
/// Longest that an answer waits for a handshake on a circuit that lives.
const SLOW: Duration = Duration::from_millis(200);
impl Host {
    /// `Accept`: an answer if it stays plain TCP.
    pub fn accept(&mut self, session: SessionId, socket: Option<Proof>) -> Option<Plain> {
        let Some((names, scope)) = self.connected(socket) else { return Some(Plain::System) };
        let tuple = Tuple { client: names.remote, server: names.local };
        self.try_accept(session, Accepting::new(tuple, names.cookie, scope, self.now))
    }

    /// Answers, or waits.
    pub(crate) fn try_accept(&mut self, session: SessionId, accepting: Accepting) -> Option<Plain> {
        let Accepting { tuple, socket, scope, since, .. } = accepting;
        let waited = self.now.saturating_sub(since);
        let circuit = match self.choose(session, (&tuple, socket), scope, waited >= LOST) {
            Choice::None => return Some(Plain::NotAnnounced),
            Choice::Wait => return self.accept_later(session, accepting),
            Choice::End(circuit) => circuit,
        };
        match self.is_taken(circuit, waited) {
            None => return self.accept_later(session, accepting),
            Some(false) => {
                self.close_end(circuit, true);
                self.run_circuits();
                return Some(Plain::NotAnnounced);
            }
            Some(true) => {}
        }
        if !self.policy.circuits.accept(circuit) {
            return Some(Plain::NotAnnounced);
        }
        self.own(session, circuit, socket);
        self.grant(session, circuit, false)
    }

    fn accept_later(&mut self, session: SessionId, accepting: Accepting) -> Option<Plain> {
        let waiting = Waiting::Accept(accepting.later(self.now));
        self.sessions.wait_for(session, waiting);
        None
    }

    /// Whether the far program took the announced circuit, after the connection has been here for so long; `None` if that
    /// cannot be told yet. Where the circuit is one cable and has never moved, the program can tell by itself.
    fn is_taken(&mut self, circuit: CircuitId, waited: Duration) -> Option<bool> {
        let Some(end) = self.policy.circuits.get(circuit).filter(|end| end.state == State::Pending) else {
            return Some(true);
        };
        let (moves, is_over) = (end.moving.is_some(), end.death.is_some() || end.far_closed);
        let is_plain = end.hops <= 1 && end.generation == 0 && !moves;
        if is_plain || self.count_arrived(circuit).is_none_or(|units| units > 0) {
            return Some(true);
        }
        if is_over {
            return Some(false);
        }
        let (longest, otherwise) = if moves { (LOST, false) } else { (SLOW, true) };
        (waited >= longest).then_some(otherwise)
    }
}
