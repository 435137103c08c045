//! Ends of circuits: `Connect`, `Accept`, `Adopt`, `Close`, and what the neighbours say about them.

use crate::address::plain;
use crate::host::{Host, life_word};
use crate::proof;
use crate::random;
use crate::session::{ProgramArena, SessionId, Waiting};
use crate::source::source_of;
use crosslane_fabric::circuit::{End, Far, Output, Role, Scope, State};
use crosslane_port::PortError;
use crosslane_shm::arena::Snapshot;
use crosslane_shm::mem::new_slice;
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::local::{Plain, Reply};
use crosslane_wire::slice::{ring_max_ok, slice_len};
use crosslane_wire::{CircuitId, Epoch, PortId, SliceRange, Tuple};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// How long a neighbour may take to answer `Open`.
const ANSWER: Duration = Duration::from_millis(20);

/// What an end holds besides its state.
#[derive(Debug)]
pub struct Parts {
    /// Sessions that hold the end, the owner first, each with the end's word in its life page.
    pub holders: Vec<(SessionId, u32)>,
    /// Name of the owner's program.
    pub program: String,
    /// The owner's process.
    pub pid: i32,
    /// Slot in the arena.
    pub slot: u32,
    /// The owner's arena.
    pub arena: Option<Rc<ProgramArena>>,
    /// Memory that the far side writes.
    pub inbound: Option<OwnedFd>,
    /// Memory of the far side.
    pub outbound: Option<OwnedFd>,
    /// Where in a window the inbound memory lies, and in which epoch.
    pub range: Option<(PortId, Epoch, SliceRange)>,
    /// Bytes of each ring.
    pub ring_max: u64,
    /// Key of the ring that is read.
    pub rx_key: u64,
    /// Key of the ring that is written.
    pub tx_key: u64,
    /// Proof for closing.
    pub token: u64,
}

impl Parts {
    fn new(ring_max: u64, rx_key: u64, tx_key: u64) -> Self {
        Self {
            holders: Vec::new(),
            program: String::new(),
            pid: 0,
            slot: 0,
            arena: None,
            inbound: None,
            outbound: None,
            range: None,
            ring_max,
            rx_key,
            tx_key,
            token: random::u64(),
        }
    }

    /// What the end has moved so far.
    pub fn traffic(&self) -> Snapshot {
        match &self.arena {
            Some(arena) if !self.holders.is_empty() => arena.view.counters(self.slot),
            _ => Snapshot::default(),
        }
    }
}

impl Host {
    /// `Connect`: an answer, or `None` if a neighbour must be asked first.
    pub fn connect(
        &mut self,
        session: SessionId,
        remote: SocketAddr,
        slot: u32,
        socket: BorrowedFd<'_>,
    ) -> Option<Plain> {
        let scope = self.scope_of(socket);
        let tuple = match self.tuple_of_connect(remote, socket, scope) {
            Ok(tuple) => tuple,
            Err(why) => return Some(why),
        };
        let outcome = if self.is_local(tuple.server, scope) {
            self.connect_here(session, tuple, slot, scope)
        } else if scope != Scope(0) {
            Err(Plain::NotFabric)
        } else {
            self.connect_there(session, tuple, slot)
        };
        outcome.err()
    }

    /// `Accept`: an answer if it stays plain TCP.
    pub fn accept(&mut self, session: SessionId, slot: u32, socket: BorrowedFd<'_>) -> Option<Plain> {
        let Ok(names) = proof::connected(socket) else { return Some(Plain::System) };
        let tuple = Tuple { client: names.remote, server: names.local };
        let Some(circuit) = self.circuits.accept(&tuple, self.scope_of(socket)) else {
            return Some(Plain::NotAnnounced);
        };
        self.own(session, circuit, slot);
        self.grant(session, circuit, false)
    }

    /// `Adopt`: an answer if there is no such stream.
    pub fn adopt(&mut self, session: SessionId, socket: BorrowedFd<'_>) -> Option<Plain> {
        let Ok(names) = proof::connected(socket) else { return Some(Plain::System) };
        let client = Tuple { client: names.local, server: names.remote };
        let server = Tuple { client: names.remote, server: names.local };
        let scope = self.scope_of(socket);
        let circuits = [
            self.circuits.find(&client, Role::Client, scope),
            self.circuits.find(&server, Role::Server, scope),
        ];
        let open = |circuit: &CircuitId| {
            self.circuits.get(*circuit).is_some_and(|end| end.state == State::Open)
                && self.parts.get(circuit).is_some_and(|parts| parts.arena.is_some())
        };
        match circuits.into_iter().flatten().find(open) {
            Some(circuit) => self.grant(session, circuit, true),
            None => Some(Plain::NotAnnounced),
        }
    }

    /// `Close`. A wrong token changes nothing.
    pub fn close(&mut self, circuit: CircuitId, token: u64, abort: bool) {
        if self.parts.get(&circuit).is_some_and(|parts| parts.token == token) {
            self.close_end(circuit, abort);
        }
    }

    /// A program says that the far end of its circuit broke the protocol. A wrong token changes nothing.
    pub fn violated(&mut self, circuit: CircuitId, token: u64, text: &str) {
        let Some(parts) = self.parts.get(&circuit).filter(|parts| parts.token == token) else { return };
        self.counters.violations += 1;
        let tuple = self.circuits.get(circuit).map(|end| end.tuple.to_string());
        let why: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        tracing::warn!(%circuit, tuple, program = %parts.program, %why, "stream broken off: far end broke the protocol");
    }

    /// An end is closed here, by its program or because there is none any more.
    pub fn close_end(&mut self, circuit: CircuitId, abort: bool) {
        self.settle_accounts(circuit, abort);
        if let Some(parts) = self.parts.get_mut(&circuit) {
            parts.inbound = None;
            parts.outbound = None;
            parts.arena = None;
            for (session, life) in std::mem::take(&mut parts.holders) {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.held.remove(&circuit);
                    if let Some(page) = &mut session.life {
                        page.release(life);
                    }
                }
            }
        }
        self.circuits.close(circuit, abort);
    }

    /// A session is gone: the ends that nobody else holds are broken off.
    pub fn release_held(&mut self, session: SessionId, held: impl IntoIterator<Item = CircuitId>) {
        for circuit in held {
            let Some(parts) = self.parts.get_mut(&circuit) else { continue };
            if parts.holders.iter().all(|(holder, _)| *holder == session) {
                self.close_end(circuit, true);
            } else {
                parts.holders.retain(|(holder, _)| *holder != session);
            }
        }
    }

    /// Breaks off ends that no listener will ever accept.
    pub fn abort_unheard(&mut self) {
        if self.circuits.pending() == 0 {
            return;
        }
        let unheard: Vec<CircuitId> = self
            .circuits
            .iter()
            .filter(|(_, end)| end.state == State::Pending)
            .filter(|(_, end)| !self.listeners.hears(end.tuple.server, end.scope))
            .map(|(circuit, _)| circuit)
            .collect();
        for circuit in unheard {
            self.close_end(circuit, true);
        }
    }

    /// A neighbour asks for a circuit.
    pub fn handle_open(
        &mut self,
        port: PortId,
        name: CircuitId,
        tuple: Tuple,
        slice: SliceRange,
        key: u64,
        transit: bool,
    ) {
        let answer = match self.open_for(port, name, tuple, slice, key, transit) {
            Ok(opened) => opened,
            Err(why) => {
                tracing::debug!(%tuple, ?why, "circuit refused");
                Control::Refused { circuit: name, why }
            }
        };
        if let Some(cable) = self.cable(port) {
            cable.send(&answer);
        }
    }

    /// Does what the circuits' state machine wants.
    pub fn run_circuits(&mut self) {
        while let Some(output) = self.circuits.poll_output() {
            match output {
                Output::Send { port, message } => {
                    if let Some(cable) = self.cable(port) {
                        cable.send(&message);
                    }
                }
                Output::Opened { circuit, slice, key } => self.opened(circuit, slice, key),
                Output::Failed { circuit, why } => {
                    if why == Refusal::NoMemory {
                        tracing::warn!("a neighbour has no window memory left; the connection uses TCP");
                    }
                    self.answer_dial(circuit, Plain::Refused(why));
                }
                Output::Died { circuit, death } => self.mark_dead(circuit, life_word(death)),
                Output::Doubt { circuit } => self.doubt(circuit),
                Output::Free { circuit, end } => self.free(circuit, &end),
            }
        }
    }

    fn tuple_of_connect(
        &self,
        remote: SocketAddr,
        socket: BorrowedFd<'_>,
        scope: Scope,
    ) -> Result<Tuple, Plain> {
        let local = proof::bound(socket).map_err(|_| Plain::System)?;
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
        slot: u32,
        scope: Scope,
    ) -> Result<(), Plain> {
        if !self.listeners.hears(tuple.server, scope) {
            return Err(Plain::Refused(Refusal::NoListener));
        }
        self.replace(&tuple, scope);
        let ring_max = self.config.ring_max;
        let slice = || new_slice("crosslane-slice", slice_len(ring_max)).map_err(|_| Plain::System);
        let (forth, back) = (slice()?, slice()?);
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(|_| Plain::System);
        let (forth_copy, back_copy) = (copy(&forth)?, copy(&back)?);
        let (client, server) = self.circuits.local(tuple, scope).map_err(Plain::Refused)?;
        let (key_forth, key_back) = (random::u64(), random::u64());
        let mut parts = Parts::new(ring_max, key_back, key_forth);
        (parts.inbound, parts.outbound) = (Some(back), Some(forth));
        self.parts.insert(client, parts);
        let mut parts = Parts::new(ring_max, key_forth, key_back);
        (parts.inbound, parts.outbound) = (Some(forth_copy), Some(back_copy));
        self.parts.insert(server, parts);
        self.own(session, client, slot);
        self.grant(session, client, false).map_or(Ok(()), Err)
    }

    /// Asks a neighbour; the answer comes later.
    fn connect_there(&mut self, session: SessionId, tuple: Tuple, slot: u32) -> Result<(), Plain> {
        let host = self.config.addresses.host_of(tuple.server.ip()).ok_or(Plain::NotFabric)?;
        let way = self.links.next_hop(host).filter(|way| way.hops == 1);
        let port = way.ok_or(Plain::Refused(Refusal::NoRoute))?.port;
        let (ring_max, deadline) = (self.config.ring_max, self.now + ANSWER);
        let cable = self.cable(port).ok_or(Plain::Refused(Refusal::NoRoute))?;
        let epoch = cable.agreement().ok_or(Plain::Refused(Refusal::NoRoute))?.epoch;
        let (range, inbound) = cable.carve_inbound(slice_len(ring_max)).map_err(|error| no_slice(&error))?;
        let circuit = self.circuits.dial(tuple, port, epoch, host, deadline);
        let mut parts = Parts::new(ring_max, random::u64(), 0);
        parts.inbound = Some(inbound);
        parts.range = Some((port, epoch, range));
        let key = parts.rx_key;
        self.parts.insert(circuit, parts);
        self.own(session, circuit, slot);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.waiting = Some(Waiting::Circuit(circuit));
        }
        if let Some(cable) = self.cable(port) {
            cable.send(&Control::Open { circuit, tuple, slice: range, key, route: vec![] });
        }
        Ok(())
    }

    fn open_for(
        &mut self,
        port: PortId,
        name: CircuitId,
        tuple: Tuple,
        slice: SliceRange,
        key: u64,
        transit: bool,
    ) -> Result<Control, Refusal> {
        if transit {
            return Err(Refusal::NoRoute);
        }
        let tuple = crate::address::plain_tuple(tuple);
        let agreement =
            self.cable(port).and_then(|cable| cable.agreement().copied()).ok_or(Refusal::Protocol)?;
        let ring_max = slice.len.checked_sub(slice_len(0)).filter(|ring| ring_max_ok(*ring));
        let ring_max = ring_max.filter(|_| slice.fits(agreement.peer_window)).ok_or(Refusal::Protocol)?;
        if self.config.addresses.host_of(tuple.client.ip()) != Some(agreement.peer) {
            return Err(Refusal::Protocol);
        }
        let mine = self.config.addresses.host_of(tuple.server.ip()) == Some(self.me());
        if !mine || !self.listeners.hears(tuple.server, Scope(0)) {
            return Err(Refusal::NoListener);
        }
        self.replace(&tuple, Scope(0));
        let cable = self.cable(port).ok_or(Refusal::Protocol)?;
        let outbound = cable.carve_outbound(slice).map_err(|_| Refusal::Protocol)?;
        let (range, inbound) = cable.carve_inbound(slice.len).map_err(|_| Refusal::NoMemory)?;
        let circuit = match self.circuits.handle_open(tuple, port, agreement.epoch, agreement.peer, name) {
            Ok(circuit) => circuit,
            Err(why) => {
                if let Some(cable) = self.cable(port) {
                    cable.free_inbound(range);
                }
                return Err(why);
            }
        };
        let mut parts = Parts::new(ring_max, random::u64(), key);
        (parts.inbound, parts.outbound) = (Some(inbound), Some(outbound));
        parts.range = Some((port, agreement.epoch, range));
        let key = parts.rx_key;
        self.parts.insert(circuit, parts);
        Ok(Control::Opened { circuit: name, peer: circuit, slice: range, key })
    }

    /// An end of the same connection that nobody ever accepted belongs to an earlier use of the ports.
    fn replace(&mut self, tuple: &Tuple, scope: Scope) {
        if let Some(old) = self.circuits.find(tuple, Role::Server, scope) {
            if self.circuits.get(old).is_some_and(|end| end.state == State::Pending) {
                self.close_end(old, true);
            }
        }
    }

    /// A neighbour made the circuit that a session asked for.
    fn opened(&mut self, circuit: CircuitId, slice: SliceRange, key: u64) {
        let outbound = self.outbound_of(circuit, slice);
        let Some(parts) = self.parts.get_mut(&circuit) else { return };
        let session = parts.holders.first().map(|(session, _)| *session);
        match (outbound, session) {
            (Ok(outbound), Some(session)) => {
                parts.outbound = Some(outbound);
                parts.tx_key = key;
                self.wake_session(session);
                if let Some(why) = self.grant(session, circuit, false) {
                    self.refuse(session, why);
                }
            }
            (Err(why), Some(session)) => {
                self.close_end(circuit, true);
                self.wake_session(session);
                self.refuse(session, why);
            }
            (_, None) => self.close_end(circuit, true),
        }
    }

    /// Checks and carves the slice that a neighbour allotted.
    fn outbound_of(&mut self, circuit: CircuitId, slice: SliceRange) -> Result<OwnedFd, Plain> {
        let parts = self.parts.get(&circuit).ok_or(Plain::System)?;
        let (port, ..) = parts.range.ok_or(Plain::System)?;
        let len = slice_len(parts.ring_max);
        let cable = self.cable(port).ok_or(Plain::System)?;
        let window = cable.agreement().map_or(0, |agreement| agreement.peer_window);
        if slice.len != len || !slice.fits(window) {
            self.counters.violations += 1;
            tracing::warn!(%circuit, "neighbour allotted a slice that cannot be");
            return Err(Plain::Refused(Refusal::Protocol));
        }
        cable.carve_outbound(slice).map_err(|error| {
            tracing::warn!(%circuit, %error, "neighbour's slice is not there");
            Plain::Refused(Refusal::Protocol)
        })
    }

    fn answer_dial(&mut self, circuit: CircuitId, why: Plain) {
        let Some(parts) = self.parts.get(&circuit) else { return };
        let holders: Vec<SessionId> = parts.holders.iter().map(|(session, _)| *session).collect();
        self.drop_holders(circuit);
        for session in holders {
            self.wake_session(session);
            self.refuse(session, why);
        }
    }

    /// Nobody holds the end any more; it was never used.
    fn drop_holders(&mut self, circuit: CircuitId) {
        let Some(parts) = self.parts.get_mut(&circuit) else { return };
        for (session, life) in std::mem::take(&mut parts.holders) {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.held.remove(&circuit);
                if let Some(page) = &mut session.life {
                    page.release(life);
                }
            }
        }
    }

    /// The session is the one whose arena has the end.
    fn own(&mut self, session: SessionId, circuit: CircuitId, slot: u32) {
        let Some(owner) = self.sessions.get(&session) else { return };
        let Some(parts) = self.parts.get_mut(&circuit) else { return };
        parts.slot = slot;
        parts.pid = owner.pid;
        parts.program.clone_from(&owner.program);
        parts.arena.clone_from(&owner.arena);
        self.hold(session, circuit);
    }

    /// Enters the session among the holders of the end; its word in the session's life page.
    fn hold(&mut self, session: SessionId, circuit: CircuitId) -> Option<u32> {
        let holder = self.sessions.get_mut(&session)?;
        let parts = self.parts.get_mut(&circuit)?;
        if let Some((_, life)) = parts.holders.iter().find(|(holder, _)| *holder == session) {
            return Some(*life);
        }
        let page = holder.life.as_mut()?;
        let life = page.allot()?;
        if let Some(death) = self.circuits.get(circuit).and_then(|end| end.death) {
            page.set(life, life_word(death));
        }
        holder.held.insert(circuit);
        parts.holders.push((session, life));
        Some(life)
    }

    /// Hands an end to a session, with the owner's arena if it is `adopted`; the reason if that cannot be.
    fn grant(&mut self, session: SessionId, circuit: CircuitId, adopted: bool) -> Option<Plain> {
        let Some(life) = self.hold(session, circuit) else {
            if !adopted {
                self.close_end(circuit, true);
            }
            return Some(Plain::NoSlot);
        };
        let (Some(end), Some(parts), Some(holder)) =
            (self.circuits.get(circuit), self.parts.get(&circuit), self.sessions.get_mut(&session))
        else {
            return Some(Plain::System);
        };
        let (Some(inbound), Some(outbound)) = (&parts.inbound, &parts.outbound) else {
            return Some(Plain::System);
        };
        let reply = Reply::Circuit {
            circuit,
            token: parts.token,
            tuple: end.tuple,
            client: end.role == Role::Client,
            ring_max: parts.ring_max,
            rx_key: parts.rx_key,
            tx_key: parts.tx_key,
            life,
            slot: parts.slot,
        };
        let mut fds = vec![inbound.as_fd(), outbound.as_fd()];
        if let (true, Some(arena)) = (adopted, &parts.arena) {
            fds.push(arena.fd.as_fd());
        }
        holder.reply(&reply, &fds);
        if !adopted {
            self.counters.streams_opened += 1;
        }
        None
    }

    /// Programs that hold the end see that it is dead, and are woken.
    fn mark_dead(&mut self, circuit: CircuitId, word: u32) {
        let Some(parts) = self.parts.get(&circuit) else { return };
        let holders = parts.holders.clone();
        for (session, life) in holders {
            if let Some(page) = self.sessions.get(&session).and_then(|session| session.life.as_ref()) {
                page.set(life, word);
            }
            self.ring_session(session);
        }
    }

    /// Adds what an end has moved to the totals, before its slot is used for another.
    fn settle_accounts(&mut self, circuit: CircuitId, abort: bool) {
        let Some(parts) = self.parts.get(&circuit) else { return };
        let open = self.circuits.get(circuit).is_some_and(|end| end.state == State::Open);
        if !open || parts.holders.is_empty() {
            return;
        }
        let moved = parts.traffic();
        let range = parts.range;
        self.counters.closed_tx_bytes += moved.tx_bytes;
        self.counters.closed_rx_bytes += moved.rx_bytes;
        self.counters.closed_bells += moved.bells;
        if abort {
            self.counters.streams_aborted += 1;
        } else {
            self.counters.streams_closed += 1;
        }
        if let Some(cable) = range.and_then(|(port, ..)| self.cable(port)) {
            cable.traffic.closed_tx_bytes += moved.tx_bytes;
            cable.traffic.closed_rx_bytes += moved.rx_bytes;
        }
    }

    fn free(&mut self, circuit: CircuitId, end: &End) {
        self.doubts.remove(&circuit);
        self.drop_holders(circuit);
        let Some(parts) = self.parts.remove(&circuit) else { return };
        let Some((port, epoch, range)) = parts.range else { return };
        debug_assert!(matches!(end.far, Far::Cable { .. }));
        if let Some(cable) = self.cable(port) {
            if cable.agreement().is_some_and(|agreement| agreement.epoch == epoch) {
                cable.free_inbound(range);
            }
        }
    }
}

/// Why there is no slice, for the program; for people it is logged.
fn no_slice(error: &PortError) -> Plain {
    match error {
        PortError::Full(_) => {
            tracing::warn!(
                "no window memory left: connections use TCP; make `window` larger or `ring_max` smaller"
            );
            Plain::Refused(Refusal::NoMemory)
        }
        PortError::Down => Plain::Refused(Refusal::NoRoute),
        other => {
            tracing::warn!(error = %other, "no slice");
            Plain::System
        }
    }
}
