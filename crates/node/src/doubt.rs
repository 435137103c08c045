//! Ends that perhaps nobody holds any more: a process that was killed says nothing, and its session may live on in
//! others. The kernel knows: a TCP connection without a socket file has no holder.

use crate::host::Host;
use crate::socket_table::Fate;
use crosslane_fabric::circuit::{Role, Scope, State};
use crosslane_wire::CircuitId;
use std::time::Duration;

/// How often doubtful ends are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often all ends are.
pub const SWEEP: Duration = Duration::from_secs(30);
/// Most ends that are looked at in one turn.
const BATCH: usize = 256;
/// So many looks in a row must say that nobody holds an end: a program may be about to say `Close`.
const PROOF: u32 = 2;

impl Host {
    /// Perhaps nobody holds this end.
    pub fn doubt(&mut self, circuit: CircuitId) {
        self.doubts.entry(circuit).or_insert(0);
        self.doubt_at.get_or_insert(self.now + LOOK);
    }

    /// Looks into doubts whose time has come, and frees ends that nobody holds.
    pub fn resolve_doubts(&mut self) {
        if self.now >= self.sweep_at {
            self.sweep_at = self.now + SWEEP;
            let held: Vec<CircuitId> = self.parts.keys().copied().collect();
            held.into_iter().for_each(|circuit| self.doubt(circuit));
        }
        if self.doubt_at.is_none_or(|at| at > self.now) {
            return;
        }
        let batch: Vec<CircuitId> = self.doubts.keys().copied().take(BATCH).collect();
        let mut later = Vec::new();
        for circuit in batch {
            let looks = self.doubts.remove(&circuit).unwrap_or(0);
            if let Some(looks) = self.look(circuit, looks) {
                later.push((circuit, looks));
            }
        }
        self.doubts.extend(later);
        self.doubt_at = (!self.doubts.is_empty()).then_some(self.now + LOOK);
        self.run_circuits();
    }

    /// Looks at one end; `Some` with the number of looks that found no holder if it must be looked at again.
    fn look(&mut self, circuit: CircuitId, looks: u32) -> Option<u32> {
        let end = self.circuits.get(circuit)?;
        let far_closed = end.far_closed;
        let (local, remote) = match end.role {
            Role::Client => (end.tuple.client, end.tuple.server),
            Role::Server => (end.tuple.server, end.tuple.client),
        };
        let pending = match end.state {
            State::Pending => true,
            State::Open => false,
            _ => return None,
        };
        if end.scope != Scope(0) {
            return None;
        }
        let gone = match self.sockets.fate(local, remote, self.interface_of(&end.tuple)) {
            Some(Fate::Held) => false,
            Some(Fate::Unheld) => !pending,
            Some(Fate::Gone) => true,
            None => return None,
        };
        if gone && looks + 1 >= PROOF {
            let uid = self.parts.get(&circuit).map(|parts| parts.uid);
            tracing::info!(uid, %circuit, %local, %remote, "nobody holds this end any more");
            self.close_end(circuit, false);
            return None;
        }
        if gone { Some(looks + 1) } else { far_closed.then_some(0) }
    }
}
