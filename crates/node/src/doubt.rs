//! Ends that perhaps nobody holds any more: a process that was killed says nothing, and its session may live on in
//! others, or its connection end while it lives. The kernel knows: a TCP connection without a socket file has no holder.

use crate::host::Host;
use crate::session::Session;
use crate::socket_table::Fate;
use crosslane_fabric::circuit::{Role, Scope, State};
use crosslane_wire::CircuitId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How often doubtful ends are looked at. So long must nobody hold an end whose program may be about to say `Close`.
const LOOK: Duration = Duration::from_secs(1);
/// The first look at an end whose session was lost; the pauses double from here on.
const SOON: Duration = Duration::from_millis(1);
/// How often all ends are.
pub const SWEEP: Duration = Duration::from_secs(30);
/// Most ends that are looked at in one turn: about half a millisecond.
const BATCH: usize = 256;

/// An end that perhaps nobody holds.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    at: Duration,
    /// Between the last look and this one.
    pause: Duration,
    /// Since when nobody holds it, as far as was looked.
    gone: Option<Duration>,
}

/// Ends that are to be looked at, in the order of time: no number of them keeps others from their turn.
#[derive(Debug, Default)]
pub struct Doubts {
    of: HashMap<CircuitId, Doubt>,
    due: BTreeSet<(Duration, CircuitId)>,
}

impl Doubts {
    /// When the next one is looked at.
    pub fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The end is gone.
    pub fn remove(&mut self, circuit: CircuitId) {
        if let Some(doubt) = self.of.remove(&circuit) {
            self.due.remove(&(doubt.at, circuit));
        }
    }

    /// Whether there is a doubt about this end.
    fn has(&self, circuit: CircuitId) -> bool {
        self.of.contains_key(&circuit)
    }

    fn add(&mut self, circuit: CircuitId, doubt: Doubt) {
        self.remove(circuit);
        self.due.insert((doubt.at, circuit));
        self.of.insert(circuit, doubt);
    }

    /// The next end whose time has come.
    fn take(&mut self, now: Duration) -> Option<(CircuitId, Doubt)> {
        let (_, circuit) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        let doubt = self.of.get(&circuit).copied();
        self.remove(circuit);
        doubt.map(|doubt| (circuit, doubt))
    }
}

/// What a look at an end has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// There is no doubt.
    Fine,
    /// A process holds it, but that may end without a word.
    Held,
    /// Nobody holds it.
    Gone,
    /// Nobody holds it, and no process lives that might say more about it.
    Over,
}

impl Host {
    /// Perhaps nobody holds this end.
    pub fn doubt(&mut self, circuit: CircuitId) {
        if !self.doubts.has(circuit) {
            self.doubts.add(circuit, Doubt { at: self.now + LOOK, pause: LOOK, gone: None });
        }
    }

    /// The same where a process has probably just ended.
    pub(crate) fn doubt_soon(&mut self, circuit: CircuitId) {
        self.doubts.add(circuit, Doubt { at: self.now + SOON, pause: SOON, gone: None });
    }

    /// Looks into doubts whose time has come, and frees ends that nobody holds.
    pub fn resolve_doubts(&mut self) {
        if self.now >= self.sweep_at {
            self.sweep_at = self.now + SWEEP;
            let held: Vec<CircuitId> = self.resources.keys().copied().collect();
            held.into_iter().for_each(|circuit| self.doubt(circuit));
        }
        for _ in 0..BATCH {
            let Some((circuit, doubt)) = self.doubts.take(self.now) else { break };
            let gone = match self.look(circuit) {
                Seen::Fine => continue,
                Seen::Held => None,
                Seen::Gone => Some(doubt.gone.unwrap_or(self.now)),
                Seen::Over => Some(Duration::ZERO),
            };
            if gone.is_some_and(|since| since.is_zero() || self.now >= since + LOOK) {
                self.nobody_holds(circuit, doubt.gone.is_some());
                continue;
            }
            let pause = (doubt.pause * 2).min(LOOK);
            self.doubts.add(circuit, Doubt { at: self.now + pause, pause, gone });
        }
        self.end_empty_sessions();
        self.run_circuits();
    }

    /// `late`: some time ago, and nobody has said so.
    fn nobody_holds(&mut self, circuit: CircuitId, late: bool) {
        if late {
            let tuple = self.policy.circuits.get(circuit).map(|end| end.tuple.to_string());
            let uid = self.resources.get(&circuit).map(|resources| resources.uid);
            tracing::info!(uid, %circuit, tuple, "nobody holds this end any more");
        }
        self.close_end(circuit, false);
    }

    fn look(&self, circuit: CircuitId) -> Seen {
        let Some(end) = self.policy.circuits.get(circuit) else { return Seen::Fine };
        if !matches!(end.state, State::Pending | State::Open) {
            return Seen::Fine;
        }
        let is_lost = self.is_lost(circuit);
        match self.is_held(circuit) {
            None => Seen::Fine,
            Some(true) if is_lost || end.far_closed => Seen::Held,
            Some(true) => Seen::Fine,
            Some(false) if is_lost && self.is_orphaned(circuit) => Seen::Over,
            Some(false) => Seen::Gone,
        }
    }

    /// Whether a process holds the end's socket, whatever sessions say; `None` if that cannot be told.
    pub(crate) fn is_held(&self, circuit: CircuitId) -> Option<bool> {
        let end = self.policy.circuits.get(circuit)?;
        if end.scope != Scope(0) {
            // The kernel shows other network namespaces only to those who are in there.
            return self.is_lost(circuit).then(|| !self.is_orphaned(circuit));
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

    /// Whether no session that holds the end has a connection.
    fn is_lost(&self, circuit: CircuitId) -> bool {
        self.all_holders(circuit, Session::is_lost)
    }

    /// Whether the processes of all sessions that hold the end have ended.
    fn is_orphaned(&self, circuit: CircuitId) -> bool {
        self.all_holders(circuit, Session::is_orphaned)
    }

    fn all_holders(&self, circuit: CircuitId, are: impl Fn(&Session) -> bool) -> bool {
        let holders =
            self.resources.get(&circuit).map(|resources| resources.holders.as_slice()).unwrap_or_default();
        !holders.is_empty() && holders.iter().all(|(id, _)| self.sessions.get(id).is_none_or(&are))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_are_looked_into_in_the_order_of_time_and_once() {
        let mut doubts = Doubts::default();
        let at = |ms| Doubt { at: Duration::from_millis(ms), pause: LOOK, gone: None };
        for (number, ms) in [(1, 30), (2, 10), (3, 20), (2, 40), (4, 20)] {
            doubts.add(CircuitId(number), at(ms));
        }
        doubts.remove(CircuitId(4));
        assert_eq!(doubts.deadline(), Some(Duration::from_millis(20)));
        let mut taken = Vec::new();
        while let Some((circuit, _)) = doubts.take(Duration::from_millis(35)) {
            taken.push(circuit.0);
        }
        assert_eq!(taken, [3, 1]);
        assert!(doubts.has(CircuitId(2)) && doubts.of.len() == doubts.due.len());
    }
}
