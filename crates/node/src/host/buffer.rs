//! Buffers of programs that the far ends of their circuits may map: kept for each circuit, and handed on when asked for.
//!
//! ```text
//!   owner --Share--> its daemon                                its daemon <--WantBuffer-- far program
//!                    | keeps the memory with the circuit         |
//!                    |  <------------- WantBuffer (channel) -----+     same host: no cable between
//!                    +---- memory by the port, Buffer (channel) -> --- Buffer, memory ------> maps it
//! ```
//! Only the far end of that very circuit gets one, and only while the circuit is no longer than one cable.

use super::Host;
use crate::buffer::Opened;
use crate::quota::Kind;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::circuit::{Far, Owner};
use crosslane_passing::Foreign;
use crosslane_shm::far::check_buffer;
use crosslane_wire::control::{Control, Handed};
use crosslane_wire::local::Reply;
use crosslane_wire::{BufferId, ChannelId, CircuitId, PortId, Reach};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// Most buffers of one session; each is a descriptor of the daemon.
const SESSION_MAX: usize = 256;
/// Most buffers that a neighbour is asked for at a time; what it has handed over and we have not taken is never more.
const ASKED_MAX: usize = 32;
/// How long a neighbour may take to hand one over.
const BUFFER_TIMEOUT: Duration = Duration::from_millis(500);

/// Why there is no more room for a buffer.
const NO_MORE: &str =
    "this user's quota of descriptors is used up: see [quota] in the daemon's configuration";

impl Host {
    /// `ExportBuffer`: the far end of the circuit may have the buffer.
    pub fn export_buffer(
        &mut self,
        session: SessionId,
        (circuit, token): (CircuitId, u64),
        buffer: BufferId,
        (len, reach): (u64, Reach),
        memory: Foreign,
    ) -> Reply {
        match self.try_share(session, (circuit, token), buffer, (len, reach), memory) {
            Ok(()) => Reply::Done,
            Err(text) => Reply::Error { text: text.to_owned() },
        }
    }

    fn try_share(
        &mut self,
        session: SessionId,
        (circuit, token): (CircuitId, u64),
        buffer: BufferId,
        (len, reach): (u64, Reach),
        memory: Foreign,
    ) -> Result<(), &'static str> {
        if !self.ends.proves(circuit, token) || !self.is_short(circuit) {
            return Err("there is no such circuit, or it is longer than one cable");
        }
        let Some(owner) = self.sessions.get_mut(session) else { return Err("no session") };
        let known = owner.buffers.get(&buffer).cloned();
        let opened = match known {
            Some(known) if (known.len, known.reach) == (len, reach) => known,
            Some(_) => return Err("a buffer stays what it is"),
            None if owner.buffers.len() >= SESSION_MAX => return Err("this program has too many buffers"),
            None => {
                check_buffer(&memory, len, reach).map_err(|_| "this is no buffer")?;
                let charge = self.charge_session(session, Kind::Descriptors, 1).map_err(|_| NO_MORE)?;
                let opened = Rc::new(Opened { memory, len, reach, owner: session, charge });
                let Some(owner) = self.sessions.get_mut(session) else { return Err("no session") };
                owner.buffers.insert(buffer, opened.clone());
                opened
            }
        };
        let Some(resources) = self.ends.get_mut(circuit) else { return Err("no circuit") };
        resources.keep_buffer(buffer, opened);
        Ok(())
    }

    /// `WithdrawBuffer`: no circuit gives the buffer out any more, and the engine forgets it.
    pub fn withdraw_buffer(&mut self, session: SessionId, buffer: BufferId) {
        if let Some(engines) = &mut self.offload {
            engines.reclaim(session, buffer);
        }
        let Some(owner) = self.sessions.get_mut(session) else { return };
        if owner.buffers.remove(&buffer).is_some() {
            self.ends.forget_buffers(session, Some(buffer));
        }
    }

    /// `ImportBuffer`: answers, now or when the neighbour has.
    pub fn want_buffer(&mut self, session: SessionId, (circuit, token): (CircuitId, u64), buffer: BufferId) {
        let far =
            self.policy.circuits.get(circuit).filter(|_| self.ends.proves(circuit, token)).map(|end| end.far);
        match far {
            Some(Far::Here(other)) => {
                let opened = self.ends.buffer(other, buffer);
                self.answer_buffer(session, opened.as_ref().map(|opened| shape_of(opened)));
            }
            Some(Far::Host { channel: Some(channel), .. }) if self.is_short(circuit) => {
                self.ask_buffer(session, channel, buffer);
            }
            _ => self.answer_buffer(session, None),
        }
    }

    /// A neighbour's program wants a buffer of the program at the other end of this channel.
    pub fn handle_import_buffer(&mut self, port: PortId, channel: ChannelId, buffer: BufferId) {
        let opened = match self.policy.circuits.owner(port, channel) {
            Some(Owner::End(circuit)) if self.is_short(circuit) => self.ends.buffer(circuit, buffer),
            _ => None,
        };
        let peer = self
            .policy
            .circuits
            .channel(channel)
            .filter(|found| found.port == port)
            .and_then(|found| found.peer);
        let (Some(cable), Some(peer)) = (self.cables.get_mut(port), peer) else { return };
        let handed = opened.and_then(|opened| cable.hand_over(&opened));
        cable.send(&Control::Buffer { channel: peer, buffer, handed });
    }

    /// A neighbour hands over what it was asked for, or does not. What nobody waits for any more is taken all the same.
    pub fn handle_buffer(
        &mut self,
        port: PortId,
        channel: ChannelId,
        buffer: BufferId,
        handed: Option<Handed>,
    ) {
        let Some(cable) = self.cables.get_mut(port) else { return };
        if !cable.was_asked_buffer() {
            return;
        }
        let taken = handed.and_then(|handed| Some((cable.take_over(handed)?, handed.len, handed.reach)));
        let is_it = |waiting: &Waiting| matches!(waiting, Waiting::Buffer { channel: at, buffer: which, .. } if (*at, *which) == (channel, buffer));
        let asker = self.sessions.waiting_for(is_it).first().copied();
        if let Some(session) = asker.filter(|_| self.neighbour_of(channel).is_some_and(|(at, _)| at == port))
        {
            self.sessions.answered(session);
            self.answer_buffer(
                session,
                taken.as_ref().map(|(memory, len, reach)| (memory.as_fd(), *len, *reach)),
            );
        }
    }

    /// A cable is down: nobody answers for its buffers.
    pub fn fail_buffers(&mut self, port: PortId) {
        let is_it = |waiting: &Waiting| matches!(waiting, Waiting::Buffer { port: at, .. } if *at == port);
        for session in self.sessions.waiting_for(is_it) {
            self.sessions.answered(session);
            self.answer_buffer(session, None);
        }
    }

    /// Answers `ImportBuffer`.
    pub fn answer_buffer(&mut self, session: SessionId, found: Option<(BorrowedFd<'_>, u64, Reach)>) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let fds: Vec<BorrowedFd<'_>> = found.iter().map(|(memory, ..)| *memory).collect();
        session.reply(&Reply::Buffer { shape: found.map(|(_, len, reach)| (len, reach)) }, &fds);
    }

    fn ask_buffer(&mut self, session: SessionId, channel: ChannelId, buffer: BufferId) {
        let Some((port, peer)) = self.neighbour_of(channel) else { return self.answer_buffer(session, None) };
        let until = self.now + BUFFER_TIMEOUT;
        let Some(cable) = self.cables.get_mut(port).filter(|cable| cable.asked < ASKED_MAX) else {
            return self.answer_buffer(session, None);
        };
        cable.asked += 1;
        cable.send(&Control::ImportBuffer { channel: peer, buffer });
        self.sessions.wait_for(session, Waiting::Buffer { port, channel, buffer, until });
    }

    /// Whether the far end is on this host, or is the neighbour at the other end of one cable.
    fn is_short(&self, circuit: CircuitId) -> bool {
        let Some(end) = self.policy.circuits.get(circuit) else { return false };
        let Far::Host { host, channel: Some(channel) } = end.far else {
            return matches!(end.far, Far::Here(_));
        };
        let port = self.policy.circuits.channel(channel).map(|channel| channel.port);
        end.hops == 1 && port.and_then(|port| self.cables.neighbour(port)) == Some(host)
    }
}

fn shape_of(opened: &Opened) -> (BorrowedFd<'_>, u64, Reach) {
    (opened.memory.as_fd(), opened.len, opened.reach)
}
