//! Circuits that programs of this host ask for: `Connect`, `Adopt`, `Close`, and what becomes of them.

use crate::address::plain;
use crate::end_resources::{EndResources, Segments};
use crate::host::Host;
use crate::inside;
use crate::proof::{Cookie, Proof};
use crate::quota::Purpose;
use crate::random;
use crate::session::SessionId;
use crate::shelves::KeptSegment;
use crate::source::source_of;
use crosslane_fabric::circuit::{Role, Scope, State};
use crosslane_policy::Output;
use crosslane_wire::local::Plain;
use crosslane_wire::segment::segment_len;
use crosslane_wire::{CircuitId, Tuple};
use std::net::{IpAddr, SocketAddr};

impl Host {
    /// `Connect`: an answer, or `None` if a neighbour must be asked first.
    pub fn connect(
        &mut self,
        session: SessionId,
        remote: SocketAddr,
        socket: Option<Proof>,
    ) -> Option<Plain> {
        let Some(socket) = socket else { return Some(Plain::System) };
        let scope = self.scope_of(&socket);
        let tuple = match self.tuple_of_connect(remote, &socket, scope) {
            Ok(tuple) => tuple,
            Err(why) => return Some(why),
        };
        let (cookie, uid) = (socket.cookie, self.sessions.get(session)?.uid);
        self.forget_earlier(&tuple, scope, uid);
        let outcome = if self.is_local(tuple.server, scope) {
            self.connect_here(session, tuple, cookie, scope)
        } else if scope != Scope(0) {
            Err(Plain::NotFabric)
        } else {
            self.connect_there(session, tuple, cookie, socket.nonblocking)
        };
        outcome.err()
    }

    /// `Adopt`: an answer if there is no such stream.
    pub fn adopt(&mut self, session: SessionId, socket: Option<Proof>) -> Option<Plain> {
        let Some((names, scope)) = self.connected(socket) else { return Some(Plain::System) };
        let client = Tuple { client: names.local, server: names.remote };
        let server = Tuple { client: names.remote, server: names.local };
        let clients = self.policy.circuits.ends_of(&client, Role::Client, scope);
        let mut circuits = clients.chain(self.policy.circuits.ends_of(&server, Role::Server, scope));
        let is_its = |circuit: &CircuitId| {
            self.policy.circuits.get(*circuit).is_some_and(|end| end.state == State::Open)
                && self.ends.get(*circuit).is_some_and(|resources| {
                    resources.state.is_some() && resources.cookie == Some(names.cookie)
                })
        };
        let found = circuits.find(is_its);
        drop(circuits);
        match found {
            Some(circuit) => self.grant(session, circuit, true),
            None => Some(Plain::NotAnnounced),
        }
    }

    /// `Close`. A wrong token changes nothing.
    pub fn close(&mut self, circuit: CircuitId, token: u64, abort: bool) {
        if self.ends.proves(circuit, token) {
            self.close_end(circuit, abort);
        }
    }

    /// A program has broken its end off: the far end hears of it. A wrong token changes nothing.
    pub fn violated(&mut self, circuit: CircuitId, token: u64, text: &str) {
        let (Some(resources), Some(end)) = (self.ends.get(circuit), self.policy.circuits.get(circuit)) else {
            return;
        };
        if resources.token != token || matches!(end.state, State::Closing(_)) {
            return;
        }
        self.counters.violations += 1;
        let tuple = end.tuple.to_string();
        let why: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        tracing::warn!(uid = resources.uid, %circuit, tuple, program = %resources.program, %why, "stream broken off");
        self.close_end(circuit, true);
    }

    /// Breaks off ends that no listener will ever accept.
    pub fn abort_unheard(&mut self) {
        if self.policy.circuits.pending() == 0 {
            return;
        }
        let unheard: Vec<CircuitId> = self
            .policy
            .circuits
            .iter()
            .filter(|(_, end)| end.state == State::Pending && !self.is_twin_of_accepted(end))
            .filter(|(_, end)| !self.listeners.hears(end.tuple.server, end.scope))
            .map(|(circuit, _)| circuit)
            .collect();
        for circuit in unheard {
            self.close_end(circuit, true);
        }
    }

    /// Does what the policy wants.
    pub fn run_circuits(&mut self) {
        loop {
            let now = self.now;
            let (policy, mut provider) = self.split();
            let Some(output) = policy.poll_output(now, &mut provider) else { return };
            self.execute(output);
        }
    }

    fn execute(&mut self, output: Output) {
        match output {
            Output::Send { port, message } => self.cables.send(port, &message),
            Output::BreakOff { port, death, why } => {
                if let Some(cable) = self.cables.get_mut(port) {
                    cable.break_off(death, why);
                }
            }
            Output::Granted { circuit } => self.granted(circuit),
            Output::Refused { circuit, why } => self.answer_dial(circuit, why),
            Output::Unusable { circuit, why } => self.unusable(circuit, why),
            Output::Moving { circuit } => self.moving(circuit),
            Output::GoesOn { circuit, arrived } => self.goes_on(circuit, arrived),
            Output::Freed { channel, port, epoch } => self.free_memory(channel, port, epoch),
            Output::Drain { transit, side } => self.drain(transit, side),
            Output::Stop { transit } => self.stop_transit(transit),
            Output::Died { circuit, .. } => self.died(circuit),
            Output::FarClosed { circuit } => self.note_closed(circuit),
            Output::NobodyHolds { circuit, late } => self.nobody_holds(circuit, late),
            Output::Prove { circuit } => self.prove(circuit),
            Output::Proven { circuit, is_so } => self.proven(circuit, is_so),
            Output::Free { circuit } => self.free(circuit),
            Output::Notice(notice) => self.say_notice(notice),
        }
    }

    fn tuple_of_connect(&self, remote: SocketAddr, socket: &Proof, scope: Scope) -> Result<Tuple, Plain> {
        let local = socket.idle().ok_or(Plain::System)?;
        let mut server = plain(remote);
        if server.ip().is_unspecified() {
            let loopback = if server.is_ipv4() { "127.0.0.1" } else { "::1" };
            server.set_ip(loopback.parse().map_err(|_| Plain::System)?);
        }
        if local.port() == 0 || server.port() == 0 {
            return Err(Plain::NoPort);
        }
        let ip = if local.ip().is_unspecified() {
            self.source_in(server.ip(), scope).ok_or(Plain::NotFabric)?
        } else {
            local.ip()
        };
        if ip.is_ipv4() != server.is_ipv4() {
            return Err(Plain::System);
        }
        if scope == Scope(0) && !self.is_own(ip) {
            return Err(Plain::NotFabric);
        }
        Ok(Tuple { client: SocketAddr::new(ip, local.port()), server })
    }

    /// The source address of an unbound socket. In another network namespace only its own addresses are of interest,
    /// and those are reached from themselves.
    fn source_in(&self, server: IpAddr, scope: Scope) -> Option<IpAddr> {
        if scope == Scope(0) || server.is_loopback() {
            source_of(server, &self.config.addresses)
        } else {
            Some(server)
        }
    }

    /// Whether a connection to `server` from a network namespace stays on this host. The fabric's addresses belong to
    /// the daemon's own namespace.
    fn is_local(&self, server: SocketAddr, scope: Scope) -> bool {
        match self.config.addresses.host_of(server.ip()) {
            Some(host) if scope == Scope(0) => host == self.me(),
            _ => server.ip().is_loopback() || self.listeners.hears_exactly(server, scope),
        }
    }

    /// Both ends of a connection inside this host.
    fn connect_here(
        &mut self,
        session: SessionId,
        tuple: Tuple,
        socket: Cookie,
        scope: Scope,
    ) -> Result<(), Plain> {
        let accepter = self.hearing().check_listener(&tuple, scope).map_err(Plain::Refused)?;
        self.check_accepter(accepter).map_err(Plain::Refused)?;
        let ends = self.make_ends_here(session, accepter)?;
        let (client, server) = self.policy.circuits.local(tuple, scope);
        self.add_ends_here((client, server), ends);
        self.own(session, client, socket);
        self.publish_announced();
        self.grant(session, client, false).map_or(Ok(()), Err)
    }

    /// Memory for both ends of a circuit inside this host, which the session pays for: the client's, and that of the user `accepter`.
    pub(crate) fn make_ends_here(
        &mut self,
        session: SessionId,
        accepter: u32,
    ) -> Result<(EndResources, EndResources), Plain> {
        let ring_max = self.config.ring_max;
        let payer = self.payer_of(session).ok_or(Plain::System)?;
        let mut end = |pending| {
            let segments = self.charge_segments(payer, segment_len(ring_max), Purpose::New)?;
            Ok((self.charge_end(payer, pending)?, segments))
        };
        let (client_end, client_segments) = end(false).map_err(Plain::Refused)?;
        let (server_end, server_segments) = end(true).map_err(Plain::Refused)?;
        let mut direction = || {
            let made = self.inside.direction(ring_max, &self.shelves);
            made.map_err(|error| {
                tracing::warn!(%error, "no memory for a stream inside this host");
                Plain::System
            })
        };
        let (forth, back) = (direction()?, direction()?);
        let (key_forth, key_back) = (random::u64(), random::u64());
        let segments =
            |inbound: KeptSegment, lane, outbound: KeptSegment, keys: (u64, u64), charges| Segments {
                generation: 0,
                port: None,
                way: inside::way(&inbound.info, &outbound.info),
                inbound,
                lane,
                outbound: Some(outbound),
                far_range: None,
                ring_max,
                rx_key: keys.0,
                tx_key: keys.1,
                before: 0,
                arrived: 0,
                charges,
            };
        let (of_client, of_server) = (
            segments(back.inbound, back.lane, forth.outbound, (key_back, key_forth), client_segments),
            segments(forth.inbound, forth.lane, back.outbound, (key_forth, key_back), server_segments),
        );
        let mut pending = EndResources::new(Some(of_server), payer, server_end);
        pending.uid = accepter;
        Ok((EndResources::new(Some(of_client), payer, client_end), pending))
    }

    /// These ends have this memory.
    pub(crate) fn add_ends_here(
        &mut self,
        (client, server): (CircuitId, CircuitId),
        (of_client, of_server): (EndResources, EndResources),
    ) {
        self.ends.add(client, of_client);
        self.ends.add(server, of_server);
    }

    /// Tells the programs with listeners how many announced connections wait. Must come before the announcer is
    /// answered, so that whoever accepts its connection sees it.
    pub(crate) fn publish_announced(&self) {
        let count = self.policy.circuits.pending();
        for session in self.listeners.sessions().filter_map(|id| self.sessions.get(id)) {
            if let Some(page) = &session.status_page {
                page.set_announced(count);
            }
        }
    }
}
