//! What an end of a circuit holds: slices, a slot in its program's arena, the sessions that it was given to.

use crate::host::{Host, life_word};
use crate::random;
use crate::session::{ProgramArena, SessionId};
use crosslane_fabric::circuit::{Role, State};
use crosslane_shm::arena::Snapshot;
use crosslane_wire::local::{Plain, Reply};
use crosslane_wire::{CircuitId, Epoch, PortId, SliceRange};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

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
    /// Nothing yet but keys, and a new token.
    pub(crate) fn new(ring_max: u64, rx_key: u64, tx_key: u64) -> Self {
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
        self.publish_announced();
    }

    /// A session is gone: the ends that nobody else holds are closed. Not broken off: the kernel closes the sockets of
    /// a dead process, and the far side learns by FIN or RST as it would with TCP.
    pub fn release_held(&mut self, session: SessionId, held: impl IntoIterator<Item = CircuitId>) {
        for circuit in held {
            let Some(parts) = self.parts.get_mut(&circuit) else { continue };
            if parts.holders.iter().all(|(holder, _)| *holder == session) {
                self.close_end(circuit, false);
            } else {
                parts.holders.retain(|(holder, _)| *holder != session);
            }
        }
    }

    /// The session is the one whose arena has the end.
    pub(crate) fn own(&mut self, session: SessionId, circuit: CircuitId, slot: u32) {
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
    pub(crate) fn grant(&mut self, session: SessionId, circuit: CircuitId, adopted: bool) -> Option<Plain> {
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
            generation: 0,
            retained: false,
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

    /// Nobody holds the end any more; it was never used.
    pub(crate) fn drop_holders(&mut self, circuit: CircuitId) {
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

    /// Whether the session is of a program that holds the end: the end was given to it, or to a process that it was
    /// forked from, whose arena it has.
    pub(crate) fn shares(&self, session: SessionId, circuit: CircuitId) -> bool {
        let (Some(asking), Some(parts)) = (self.sessions.get(&session), self.parts.get(&circuit)) else {
            return false;
        };
        let arena = asking.arena.as_ref().map(|arena| arena.identity);
        parts.holders.iter().any(|(holder, _)| {
            let holder_arena = self.sessions.get(holder).and_then(|holder| holder.arena.as_ref());
            *holder == session || (arena.is_some() && holder_arena.map(|arena| arena.identity) == arena)
        })
    }

    /// Programs that hold the end see that it is dead, and are woken.
    pub(crate) fn mark_dead(&mut self, circuit: CircuitId, word: u32) {
        let Some(parts) = self.parts.get(&circuit) else { return };
        let holders = parts.holders.clone();
        for (session, life) in holders {
            if let Some(page) = self.sessions.get(&session).and_then(|session| session.life.as_ref()) {
                page.set(life, word);
            }
        }
        let sharers: Vec<SessionId> =
            self.sessions.keys().copied().filter(|session| self.shares(*session, circuit)).collect();
        for session in sharers {
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

    pub(crate) fn free(&mut self, circuit: CircuitId) {
        self.doubts.remove(&circuit);
        self.drop_holders(circuit);
        let Some(parts) = self.parts.remove(&circuit) else { return };
        let Some((port, epoch, range)) = parts.range else { return };
        if let Some(cable) = self.cable(port)
            && cable.agreement().is_some_and(|agreement| agreement.epoch == epoch)
        {
            cable.free_inbound(range);
        }
    }
}
