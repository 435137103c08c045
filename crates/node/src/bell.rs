//! Wake events: programs ring each other directly where they can, and through their daemons where they cannot.

use crate::eventfd;
use crate::host::{Host, Waiter};
use crate::quota::Kind;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::circuit::{Far, Owner};
use crosslane_passing::Foreign;
use crosslane_wire::control::Control;
use crosslane_wire::local::Reply;
use crosslane_wire::{ChannelId, CircuitId, PortId, WaiterId};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a neighbour may take to say how its waiter is rung.
const ANSWER: Duration = Duration::from_millis(500);

impl Host {
    /// `Waiter`: registers a wake event.
    pub fn add_waiter(&mut self, session: SessionId, bell: Option<Foreign>) -> Reply {
        let error = |text: &str| Reply::Error { text: text.to_owned() };
        let Some(bell) = bell else { return error("a wake event must be an eventfd") };
        let charge = match self.charge_session(session, Kind::Descriptors, 1) {
            Ok(charge) => charge,
            Err(text) => return error(&text),
        };
        let number = self.new_waiter();
        let Some(owner) = self.sessions.get_mut(&session) else { return error("no session") };
        owner.waiters.insert(number);
        self.waiters.insert(number, Waiter { session, bell, charge });
        Reply::Waiter { waiter: number }
    }

    /// `WantBell`: answers, now or when the neighbour has.
    pub fn want_bell(&mut self, session: SessionId, (circuit, token): (CircuitId, u64), waiter: WaiterId) {
        let far = self.circuits.get(circuit).filter(|_| self.proves(circuit, token)).map(|end| end.far);
        match far {
            None => self.answer_bell(session, None),
            Some(Far::Here(other)) => {
                let bell = self.waiter_of(other, waiter).and_then(|bell| bell.try_clone_to_owned().ok());
                self.answer_bell(session, bell);
            }
            Some(Far::Host { channel, .. }) => {
                let Some((port, peer)) = channel.and_then(|channel| self.neighbour_of(channel)) else {
                    return self.answer_bell(session, None);
                };
                let known = self.cable(port).and_then(|cable| {
                    cable.bells.imported.get(&waiter).and_then(|bell| bell.try_clone().ok())
                });
                match known {
                    Some(bell) => self.answer_bell(session, Some(bell)),
                    None => self.ask_bell(session, port, peer, waiter),
                }
            }
        }
    }

    /// `Ring`: rings the far side's waiter for a program that cannot.
    pub fn ring_far(&mut self, circuit: CircuitId, token: u64, waiter: WaiterId) {
        if !self.proves(circuit, token) {
            return;
        }
        match self.circuits.get(circuit).map(|end| end.far) {
            Some(Far::Here(other)) => self.ring_waiter(other, waiter),
            Some(Far::Host { channel: Some(channel), .. }) => self.ring_neighbour(channel, waiter),
            _ => {}
        }
    }

    /// A neighbour's program wants to ring a waiter that sleeps on `circuit`.
    pub fn handle_want_bell(&mut self, port: PortId, channel: ChannelId, waiter: WaiterId) {
        let bell = match self.circuits.owner(port, channel) {
            Some(Owner::End(circuit)) => self.waiter_of(circuit, waiter),
            Some(Owner::Transit(transit, _)) => self.pump_waiter(transit, waiter),
            None => None,
        };
        let bell = bell.and_then(|bell| bell.try_clone_to_owned().ok());
        let Some(cable) = self.cable(port) else { return };
        let doorbell = bell.and_then(|bell| cable.export_bell(waiter, bell.as_fd()));
        cable.send(&Control::Bell { waiter, doorbell });
    }

    /// A neighbour says how its waiter is rung.
    pub fn handle_bell(&mut self, port: PortId, waiter: WaiterId, handle: Option<u64>) {
        let asked = |waiting: Option<Waiting>| matches!(waiting, Some(Waiting::Bell { port: at, waiter: which, .. }) if at == port && which == waiter);
        let sessions: Vec<SessionId> = self
            .sessions
            .values()
            .filter(|session| asked(session.waiting))
            .map(|session| session.id)
            .collect();
        if sessions.is_empty() && !self.pumps_ask_for(port, waiter) {
            return;
        }
        let bell = handle.and_then(|handle| {
            let cable = self.cable(port)?;
            cable.import_bell(waiter, handle)?.try_clone_to_owned().ok()
        });
        self.answer_pumps(port, waiter, bell.as_ref());
        for session in sessions {
            self.wake_session(session);
            self.answer_bell(session, bell.as_ref().and_then(|bell| bell.try_clone().ok()));
        }
    }

    /// A neighbour rings a waiter of ours.
    pub fn handle_ring(&mut self, port: PortId, channel: ChannelId, waiter: WaiterId) {
        match self.circuits.owner(port, channel) {
            Some(Owner::End(circuit)) => self.ring_waiter(circuit, waiter),
            Some(Owner::Transit(transit, _)) => {
                if let Some(bell) = self.pump_waiter(transit, waiter) {
                    eventfd::ring(bell);
                    self.counters.bells += 1;
                }
            }
            None => {}
        }
    }

    /// Rings all waiters of a session: something happened that all of its sleepers must look at.
    pub fn ring_session(&mut self, session: SessionId) {
        let Some(session) = self.sessions.get(&session) else { return };
        for waiter in &session.waiters {
            if let Some(waiter) = self.waiters.get(waiter) {
                eventfd::ring(waiter.bell.as_fd());
                self.counters.bells += 1;
            }
        }
    }

    /// A cable is down: nobody answers for its waiters.
    pub fn fail_bells(&mut self, port: PortId) {
        self.fail_pumps(port);
        let asked = |waiting: &Option<Waiting>| matches!(waiting, Some(Waiting::Bell { port: at, .. }) if *at == port);
        let sessions: Vec<SessionId> = self
            .sessions
            .values()
            .filter(|session| asked(&session.waiting))
            .map(|session| session.id)
            .collect();
        for session in sessions {
            self.wake_session(session);
            self.answer_bell(session, None);
        }
    }

    /// A session is gone, with its waiters.
    pub fn remove_waiters(&mut self, waiters: impl IntoIterator<Item = WaiterId>) {
        for waiter in waiters {
            self.waiters.remove(&waiter);
            for cable in &mut self.cables {
                cable.withdraw_bell(waiter);
            }
        }
    }

    /// Answers `WantBell`.
    pub fn answer_bell(&mut self, session: SessionId, bell: Option<OwnedFd>) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        let fds: Vec<BorrowedFd<'_>> = bell.iter().map(AsFd::as_fd).collect();
        session.reply(&Reply::Bell { found: bell.is_some() }, &fds);
    }

    /// The neighbour that a channel leads to, and its name for it.
    pub(crate) fn neighbour_of(&self, channel: ChannelId) -> Option<(PortId, ChannelId)> {
        let found = self.circuits.channel(channel)?;
        Some((found.port, found.peer?))
    }

    /// Has a waiter of the neighbour's rung that sleeps on this channel.
    pub(crate) fn ring_neighbour(&mut self, channel: ChannelId, waiter: WaiterId) {
        let Some((port, peer)) = self.neighbour_of(channel) else { return };
        if let Some(cable) = self.cable(port) {
            cable.send(&Control::Ring { channel: peer, waiter });
        }
    }

    fn ask_bell(&mut self, session: SessionId, port: PortId, channel: ChannelId, waiter: WaiterId) {
        let until = self.now + ANSWER;
        if let Some(session) = self.sessions.get_mut(&session) {
            session.waiting = Some(Waiting::Bell { port, waiter, until });
        }
        if let Some(cable) = self.cable(port) {
            cable.send(&Control::WantBell { channel, waiter });
        }
    }

    /// The bell of a waiter, if it belongs to a session that holds the end.
    fn waiter_of(&self, circuit: CircuitId, waiter: WaiterId) -> Option<BorrowedFd<'_>> {
        let waiter = self.waiters.get(&waiter)?;
        self.holds(waiter.session, circuit).then(|| waiter.bell.as_fd())
    }

    fn ring_waiter(&mut self, circuit: CircuitId, waiter: WaiterId) {
        if let Some(bell) = self.waiter_of(circuit, waiter) {
            eventfd::ring(bell);
            self.counters.bells += 1;
        }
    }
}
