//! The sessions that an end was given to: who gets its segments, sees its status word, and is woken.

use crate::host::{Host, Provider};
use crate::proof::Cookie;
use crate::session::{Session, SessionId};
use crate::status_page::status_of;
use crosslane_fabric::circuit::{End, Role};
use crosslane_wire::CircuitId;
use crosslane_wire::local::{HOLD_MAX, Plain, Reply};
use std::os::fd::AsFd;

impl Host {
    /// A session is gone: the ends that nobody else holds are closed. Not broken off: the kernel closes the sockets of
    /// a dead process, and the far side learns by FIN or RST as it would with TCP.
    pub fn release_held(&mut self, session: SessionId, held: impl IntoIterator<Item = CircuitId>) {
        for circuit in held {
            if self.ends.release(session, circuit) {
                self.close_end(circuit, false);
            } else if self.hearing().are_all(self.ends.holders(circuit), Session::is_lost) {
                // Looks at the end stopped while this session lived.
                self.policy.check_holders_soon(circuit, self.now);
            }
        }
    }

    /// The session is the one whose program asked for the end, which belongs to this socket, and handed over the memory for
    /// its state.
    pub(crate) fn own(&mut self, session: SessionId, circuit: CircuitId, socket: Cookie) {
        let Some(owner) = self.sessions.get_mut(session) else { return };
        let Some(resources) = self.ends.get_mut(circuit) else { return };
        (resources.pid, resources.uid, resources.cookie) = (owner.pid, owner.uid, Some(socket));
        resources.program.clone_from(&owner.program);
        resources.state = owner.offered.take();
        self.pay_for(session, circuit);
        self.hold(session, circuit);
    }

    /// Enters the session among the holders of the end; its word in the session's status page.
    fn hold(&mut self, session: SessionId, circuit: CircuitId) -> Option<u32> {
        let holder = self.sessions.get_mut(session)?;
        let resources = self.ends.get_mut(circuit)?;
        if let Some((_, status)) = resources.holders.iter().find(|(holder, _)| *holder == session) {
            return Some(*status);
        }
        let page = holder.status_page.as_mut()?;
        let status = page.allot()?;
        if let Some(end) = self.policy.circuits.get(circuit) {
            page.set(status, status_of(end, resources.published));
        }
        holder.held.insert(circuit);
        resources.holders.push((session, status));
        Some(status)
    }

    /// Hands an end to a session, from its oldest segments that still count on, with its state if it is `adopted`; the reason
    /// if that cannot be.
    pub(crate) fn grant(&mut self, session: SessionId, circuit: CircuitId, adopted: bool) -> Option<Plain> {
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.trim();
        }
        let Some(status) = self.hold(session, circuit) else {
            if !adopted {
                self.close_end(circuit, true);
            }
            return Some(Plain::NoSlot);
        };
        let (Some(end), Some(resources), Some(holder)) =
            (self.policy.circuits.get(circuit), self.ends.get(circuit), self.sessions.get_mut(session))
        else {
            return Some(Plain::System);
        };
        let Some((segments, outbound)) =
            resources.segments.front().and_then(|segments| Some((segments, segments.outbound.as_ref()?)))
        else {
            return Some(Plain::System);
        };
        let retention = resources.retention.as_ref();
        let reply = Reply::Circuit {
            circuit,
            token: resources.token,
            tuple: end.tuple,
            client: end.role == Role::Client,
            rx_key: segments.rx_key,
            tx_key: segments.tx_key,
            status,
            generation: segments.generation,
            channel: Box::new(segments.channel_info(outbound)),
            retained: retention.is_some(),
            twin: self.policy.circuits.twin(circuit).is_some(),
        };
        let state = resources.state.as_ref().filter(|_| adopted).map(|state| &state.memory);
        let Some(fds) = segments.lend(outbound, retention.into_iter().chain(state)) else {
            return Some(Plain::System);
        };
        holder.reply(&reply, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        if !adopted && end.twin_of.is_none() {
            self.counters.streams_opened += 1;
        }
        None
    }

    /// Nobody holds the end any more; it was never used.
    pub(crate) fn drop_holders(&mut self, circuit: CircuitId) {
        let Some(resources) = self.ends.get_mut(circuit) else { return };
        for (holder, status) in std::mem::take(&mut resources.holders) {
            if let Some(session) = self.sessions.get_mut(holder) {
                session.held.remove(&circuit);
                if let Some(page) = &mut session.status_page {
                    page.release(status);
                }
            }
            self.sessions.note_released(holder);
        }
    }

    /// `Hold`: the session's program has these ends by a `fork`, or from before the session.
    pub(crate) fn hold_all(&mut self, session: SessionId, ends: &[(CircuitId, u64)]) {
        for &(circuit, token) in ends.iter().take(HOLD_MAX) {
            if self.ends.proves(circuit, token) {
                self.hold(session, circuit);
            }
        }
    }

    /// Programs that hold the end see how it is.
    pub(crate) fn show_life(&mut self, circuit: CircuitId) {
        let (policy, provider) = self.split();
        if let Some(end) = policy.circuits.get(circuit) {
            provider.show_life(circuit, end);
        }
    }

    /// Programs that hold the end see how it is, and are woken.
    pub(crate) fn wake_holders(&mut self, circuit: CircuitId) {
        self.show_life(circuit);
        let holders: Vec<SessionId> = self.ends.holders(circuit).iter().map(|(holder, _)| *holder).collect();
        for session in holders {
            self.wake_program(session);
        }
    }
}

impl Provider<'_> {
    /// Programs that hold the end, which is in this state, see how it is.
    pub(crate) fn show_life(&self, circuit: CircuitId, end: &End) {
        let Some(resources) = self.ends.get(circuit) else { return };
        let word = status_of(end, resources.published);
        if let Some(engines) = self.offload {
            engines.show(circuit, word);
        }
        for (session, status) in &resources.holders {
            if let Some(page) = self.sessions.get(*session).and_then(|session| session.status_page.as_ref()) {
                page.set(*status, word);
            }
        }
    }
}
