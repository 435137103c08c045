//! Whose a connection is: decision 19. A program shows a bound socket and says where it will connect; others may say the
//! same of the same addresses. The kernel gives the connection to one socket, and knows sockets by numbers that nobody
//! chooses ([`Cookie`]). So an announced end counts only if the socket that announced it became the connection, and a
//! listener only if the kernel would give it this very connection. The proof of an end is of one connection, whose socket on the
//! accepting side is noted with it: the addresses may be used again before a program accepts.
//!
//! ```text
//!   client's daemon                                     server's daemon
//!   Connect: the socket's number is kept
//!        Open ------------------------------------>     which listener gets it? is it one of ours?
//!                 ... SYN, accept ...                   Accept: whose is it?
//!   which socket has the connection? <---- Prove
//!   the one that was kept: Proven ---------------->     the end is this connection's
//! ```

use super::Host;
use crate::proof::{Announcer, Cookie};
use crate::session::{SessionId, Waiting};
use crate::socket_table::SocketTable;
use crosslane_fabric::circuit::{Death, Far, Role, Scope, State};
use crosslane_wire::{CircuitId, Tuple};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// What is known of a pending end when its connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is the connection's.
    Proven,
    /// The connecting side has not said so yet.
    Unknown,
    /// It is not.
    No,
}

/// Which pending end an accepted connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None.
    None,
    /// That is not known yet.
    Wait,
    /// This one.
    End(CircuitId),
}

impl Host {
    /// Whether a socket of the daemon's own namespace may announce connections from this address: fabric addresses of
    /// others may be bound to by anybody (`IP_FREEBIND`), and mean nothing.
    pub(crate) fn is_own(&self, ip: IpAddr) -> bool {
        match self.config.addresses.host_of(ip) {
            Some(host) => host == self.me(),
            None => ip.is_loopback() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok(),
        }
    }

    /// Which of the ends that wait for an accepted connection is its own; the others are broken off once that is known.
    pub(crate) fn choose(
        &mut self,
        session: SessionId,
        (tuple, socket): (&Tuple, Cookie),
        scope: Scope,
        is_late: bool,
    ) -> Choice {
        let pending: Vec<CircuitId> = self.pending_of(tuple, scope).collect();
        if pending.is_empty() {
            return Choice::None;
        }
        let here = self.connected_here(session, tuple, scope);
        let known: Vec<(CircuitId, Verdict)> =
            pending.iter().map(|circuit| (*circuit, self.judge(*circuit, socket, here, is_late))).collect();
        let first = |wanted| known.iter().find(|(_, is)| *is == wanted).map(|(circuit, _)| *circuit);
        let chosen = first(Verdict::Proven);
        if chosen.is_none() && first(Verdict::Unknown).is_some() {
            return Choice::Wait;
        }
        for circuit in pending.into_iter().filter(|circuit| Some(*circuit) != chosen) {
            self.close_end(circuit, true);
        }
        self.run_circuits();
        chosen.map_or(Choice::None, Choice::End)
    }

    /// The accepting side asks whether the socket of this end became its connection.
    pub(crate) fn prove(&mut self, circuit: CircuitId) {
        let is_so = self.is_connection(circuit);
        if let Some(resources) = self.ends.get_mut(circuit)
            && is_so
        {
            resources.proof = Announcer::Proven;
        }
        self.policy.circuits.tell_proof(circuit, is_so);
    }

    /// The connecting side says whether the socket of its end is the connection: whoever accepts it is answered.
    pub(crate) fn proven(&mut self, circuit: CircuitId, is_so: bool) {
        let Some(tuple) = self.policy.circuits.get(circuit).map(|end| end.tuple) else { return };
        if self.policy.circuits.get(circuit).is_none_or(|end| end.state != State::Pending) {
            return;
        }
        if !(is_so && self.note_accepting(circuit)) {
            self.close_end(circuit, true);
        }
        let now = self.now;
        for session in self.sessions.values_mut() {
            if let Some(Waiting::Accept(accepting)) = &mut session.waiting
                && accepting.tuple == tuple
            {
                accepting.until = now;
            }
        }
    }

    /// The far side has closed this end, perhaps in order before a program here accepted it: its socket had become the
    /// connection then ([`Self::is_unproven`]).
    pub(crate) fn note_closed(&mut self, circuit: CircuitId) {
        let Some(end) = self.policy.circuits.get(circuit) else { return };
        if end.state == State::Pending && end.far_closed && end.death.is_none() {
            self.note_accepting(circuit);
        }
    }

    /// The announcing socket is the connection: notes which socket that is on this side. `false` if it is none any more.
    fn note_accepting(&mut self, circuit: CircuitId) -> bool {
        let Some(end) = self.policy.circuits.get(circuit) else { return false };
        let (Tuple { client, server }, interface) = (end.tuple, self.interface_of(&end.tuple));
        let socket = |table: &SocketTable| table.accepting(server, client, interface);
        let accepting = self.hearing().ask_kernel(end.scope, None, socket);
        let Some(resources) = self.ends.get_mut(circuit) else { return false };
        resources.accepting = resources.accepting.or(accepting);
        resources.accepting.is_some()
    }

    /// Whether a connecting end that is closed now was never shown to be its connection: nobody may read what came by it.
    pub(crate) fn is_unproven(&self, circuit: CircuitId) -> bool {
        // The second circuit of a striped stream is whose the first one is.
        let circuit = self.policy.circuits.get(circuit).and_then(|end| end.twin_of).unwrap_or(circuit);
        let Some(end) = self.policy.circuits.get(circuit).filter(|end| end.role == Role::Client) else {
            return false;
        };
        let is_accepted = match end.far {
            Far::Here(far) => self.policy.circuits.get(far).is_none_or(|far| far.state != State::Pending),
            Far::Host { .. } => {
                self.ends.get(circuit).is_some_and(|resources| resources.proof == Announcer::Proven)
            }
        };
        end.state == State::Open && end.death.is_none() && !is_accepted && !self.is_connection(circuit)
    }

    /// A user announces a connection again: what its earlier sockets announced for these addresses and nobody accepted is
    /// over. What other users announced is not touched.
    pub(crate) fn forget_earlier(&mut self, tuple: &Tuple, scope: Scope, uid: u32) {
        let of_user =
            |circuit: &CircuitId| self.ends.get(*circuit).is_some_and(|resources| resources.uid == uid);
        let is_unaccepted = |circuit: &CircuitId| match self.policy.circuits.get(*circuit).map(|end| end.far)
        {
            Some(Far::Here(far)) => {
                self.policy.circuits.get(far).is_some_and(|far| far.state == State::Pending)
            }
            _ => self.ends.get(*circuit).is_some_and(|resources| resources.proof != Announcer::Proven),
        };
        let ends = self.policy.circuits.ends_of(tuple, Role::Client, scope);
        let earlier: Vec<CircuitId> = ends.filter(of_user).filter(is_unaccepted).collect();
        for circuit in earlier {
            self.close_end(circuit, true);
        }
    }

    fn pending_of(&self, tuple: &Tuple, scope: Scope) -> impl Iterator<Item = CircuitId> + '_ {
        let ends = self.policy.circuits.ends_of(tuple, Role::Server, scope);
        ends.filter(|circuit| {
            self.policy.circuits.get(*circuit).is_some_and(|end| end.state == State::Pending)
        })
    }

    /// Whether a pending end is that of the connection which this `socket` is on the accepting side, and the one from `here` on the
    /// connecting side if that is on this host.
    fn judge(&mut self, circuit: CircuitId, socket: Cookie, here: Option<Cookie>, is_late: bool) -> Verdict {
        let Some(end) = self.policy.circuits.get(circuit) else { return Verdict::No };
        let (far, is_over) = (end.far, end.far_closed || end.death.is_some());
        let Some(resources) = self.ends.get(circuit) else { return Verdict::No };
        let (accepting, asked) = (resources.accepting, resources.proof);
        if end.death == Some(Death::Abort) {
            return Verdict::No;
        }
        if let Far::Here(client) = far
            && here.is_some()
            && here == self.ends.get(client).and_then(|resources| resources.cookie)
        {
            return Verdict::Proven;
        }
        match (accepting, far) {
            (Some(accepting), _) if accepting == socket => Verdict::Proven,
            (None, Far::Host { .. }) if !is_over && !is_late => self.ask_far(circuit, asked),
            _ => Verdict::No,
        }
    }

    /// Asks the connecting side, once for each channel.
    fn ask_far(&mut self, circuit: CircuitId, proof: Announcer) -> Verdict {
        let channel = self.policy.circuits.get(circuit).and_then(|end| end.channel());
        if channel.is_some_and(|channel| proof != Announcer::Asked(channel))
            && let Some(channel) = self.policy.circuits.ask_for_proof(circuit)
            && let Some(resources) = self.ends.get_mut(circuit)
        {
            resources.proof = Announcer::Asked(channel);
            self.run_circuits();
        }
        Verdict::Unknown
    }

    /// The socket that has this connection's client side, if that is on this host. In another namespace the accepting
    /// session's table is asked first.
    fn connected_here(&self, session: SessionId, tuple: &Tuple, scope: Scope) -> Option<Cookie> {
        let is_here =
            |circuit| self.policy.circuits.get(circuit).is_some_and(|end| matches!(end.far, Far::Here(_)));
        if !self.pending_of(tuple, scope).any(is_here) {
            return None;
        }
        let interface = self.interface_of(tuple);
        let connected = |table: &SocketTable| table.connected(tuple.client, tuple.server, interface);
        self.hearing().ask_kernel(scope, Some(session), connected)
    }

    /// Whether the socket that announced this end has the connection, or had it until it was closed.
    fn is_connection(&self, circuit: CircuitId) -> bool {
        let Some(end) = self.policy.circuits.get(circuit) else { return false };
        let Some(announced) = self.ends.get(circuit).and_then(|resources| resources.cookie) else {
            return false;
        };
        let (Tuple { client, server }, interface) = (end.tuple, self.interface_of(&end.tuple));
        let connected = |table: &SocketTable| table.connected(client, server, interface);
        self.hearing().ask_kernel(end.scope, None, connected) == Some(announced)
    }
}
