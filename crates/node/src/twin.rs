//! The second circuits of striped streams ([`crosslane_wire::stripe`]): who gets their ends.
//!
//! ```text
//!   client                    daemons                                    server
//!   Connect ----------------> Open ---------------------------------->   a pending end
//!           <---------------- Circuit
//!   Twin -------------------> Open, with the first stream's secret --->  a pending end, the twin of the first
//!           <---------------- Circuit
//!   SYN ........................ kernel TCP .........................>   Accept: Circuit { twin: true }
//!                                                                        Twin: the pending end
//! ```
//! Whoever knows the token of the first end gets the second one. Both are closed together.

use crate::host::Host;
use crate::proof::Announcer;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::circuit::{End, Far, Role, State};
use crosslane_wire::CircuitId;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;

impl Host {
    /// `Twin`: an answer if there is no such circuit; `None` if it was granted, or a neighbour must be asked first.
    pub(crate) fn twin(&mut self, session: SessionId, first: CircuitId, token: u64) -> Option<Plain> {
        let end = self.policy.circuits.get(first);
        let usable = |end: &&End| end.state == State::Open && end.death.is_none() && end.twin_of.is_none();
        let role = end.filter(usable).map(|end| end.role);
        let Some(role) = role.filter(|_| self.ends.proves(first, token)) else {
            return Some(Plain::NotAnnounced);
        };
        match (self.policy.circuits.twin(first), role) {
            (Some(twin), _) => self.hand_over(session, (first, twin)),
            (None, Role::Client) => self.make_twin(session, first).err(),
            (None, Role::Server) => Some(Plain::NotAnnounced),
        }
    }

    /// Grants the end to a program that accepts, or that adopts the stream.
    fn hand_over(&mut self, session: SessionId, (first, twin): (CircuitId, CircuitId)) -> Option<Plain> {
        if self.policy.circuits.accept(twin) {
            self.own_twin(session, (first, twin));
            return self.grant(session, twin, false);
        }
        let is_there = self.policy.circuits.get(twin).is_some_and(|end| end.state == State::Open);
        let has_state = self.ends.get(twin).is_some_and(|resources| resources.state.is_some());
        if is_there && has_state { self.grant(session, twin, true) } else { Some(Plain::NotAnnounced) }
    }

    fn make_twin(&mut self, session: SessionId, first: CircuitId) -> Result<(), Plain> {
        let far = self.policy.circuits.get(first).map(|end| end.far);
        match far {
            Some(Far::Here(far)) if self.config.inside_stripes => self.add_twin_here(session, (first, far)),
            Some(Far::Host { .. }) => self.dial_twin(session, first),
            _ => Err(Plain::Refused(Refusal::NoRoute)),
        }
    }

    /// Makes a second circuit inside this host.
    fn add_twin_here(
        &mut self,
        session: SessionId,
        (first, far): (CircuitId, CircuitId),
    ) -> Result<(), Plain> {
        let accepter = self.ends.uid(far).ok_or(Plain::System)?;
        let ends = self.make_ends_here(session, accepter)?;
        let twins = self.policy.circuits.local_twin(first).ok_or(Plain::NotAnnounced)?;
        self.add_ends_here(twins, ends);
        self.own_twin(session, (first, twins.0));
        self.grant(session, twins.0, false).map_or(Ok(()), Err)
    }

    /// Asks a neighbour for a second circuit; the answer comes later.
    fn dial_twin(&mut self, session: SessionId, first: CircuitId) -> Result<(), Plain> {
        if self.is_proven(first) {
            // The far program has accepted the connection, with one circuit.
            return Err(Plain::NotAnnounced);
        }
        let payer = self.payer_of(session).ok_or(Plain::System)?;
        let charges = self.charge_end(payer, false).map_err(Plain::Refused)?;
        let now = self.now;
        let (policy, mut provider) = self.split();
        let twin = policy.dial_twin(first, (payer, (payer, charges)), now, &mut provider)?;
        self.own_twin(session, (first, twin));
        self.sessions.wait_for(session, Waiting::Circuit(twin));
        self.run_circuits();
        Ok(())
    }

    /// The session has both ends; the second one belongs to the socket of the first, and whoever has that has shown whose it is.
    fn own_twin(&mut self, session: SessionId, (first, twin): (CircuitId, CircuitId)) {
        let Some(cookie) = self.ends.get(first).and_then(|resources| resources.cookie) else { return };
        self.own(session, twin, cookie);
    }

    fn is_proven(&self, circuit: CircuitId) -> bool {
        self.ends.get(circuit).is_some_and(|resources| resources.proof == Announcer::Proven)
    }

    /// Whether this is the end of a striped stream's second circuit.
    pub(crate) fn is_twin(&self, circuit: CircuitId) -> bool {
        self.policy.circuits.get(circuit).is_some_and(|end| end.twin_of.is_some())
    }

    /// Whether this is a second circuit's end that waits for the program that has accepted the first: no listener matters to it.
    pub(crate) fn is_twin_of_accepted(&self, end: &End) -> bool {
        let first = end.twin_of.and_then(|first| self.policy.circuits.get(first));
        first.is_some_and(|first| first.state == State::Open)
    }
}
