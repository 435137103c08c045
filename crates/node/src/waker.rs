//! Wake events: programs ring each other directly where they can, and through their daemons where they cannot.

use crate::host::Host;
use crate::quota::Kind;
use crate::session::{SessionId, Waiting};
use crate::waiters::Waiter;
use crosslane_fabric::circuit::{Far, Owner};
use crosslane_shm::wake::{FarWaker, Receiver};
use crosslane_wire::control::{Control, Doorbell};
use crosslane_wire::local::{Reply, WakeBy};
use crosslane_wire::{ChannelId, CircuitId, PortId, WaiterId};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a neighbour may take to say how its waiter is rung.
const WAKER_TIMEOUT: Duration = Duration::from_millis(500);

impl Host {
    /// `Waiter`: makes a wake event. It is made here, so that no program hands out something that blocks.
    pub fn add_waiter(&mut self, session: SessionId) {
        let made = self.charge_session(session, Kind::Descriptors, 1).and_then(|charge| {
            let event = Receiver::new().map_err(|errno| format!("no wake event: {errno}"))?;
            Ok(Waiter { session, event, charge })
        });
        let number = self.new_waiter();
        let Some(owner) = self.sessions.get_mut(session) else { return };
        match made {
            Ok(waiter) => {
                owner.reply(
                    &Reply::Waiter { waiter: number, word: waiter.event.word() },
                    &[waiter.event.as_fd()],
                );
                owner.waiters.insert(number);
                self.waiters.add(number, waiter);
            }
            Err(text) => owner.reply(&Reply::Error { text }, &[]),
        }
    }

    /// `Unwait`: forgets a wake event of this session's.
    pub fn unwait(&mut self, session: SessionId, waiter: WaiterId) {
        let owner = self.sessions.get_mut(session);
        if owner.is_some_and(|owner| owner.waiters.remove(&waiter)) {
            self.remove_waiters([waiter]);
        }
    }

    /// `WantWaker`: answers, now or when the neighbour has.
    pub fn want_waker(&mut self, session: SessionId, (circuit, token): (CircuitId, u64), waiter: WaiterId) {
        let far =
            self.policy.circuits.get(circuit).filter(|_| self.ends.proves(circuit, token)).map(|end| end.far);
        match far {
            None => self.answer_waker(session, None),
            Some(Far::Here(other)) => {
                let waker = self.waiter_of(other, waiter).and_then(|event| event.waker().ok());
                let waker = waker.and_then(|waker| self.inside.far_waker(waker));
                self.answer_waker(session, waker.as_ref());
            }
            Some(Far::Host { channel, .. }) => match channel.and_then(|channel| self.neighbour_of(channel)) {
                Some((port, peer)) => self.ask_waker(session, port, peer, waiter),
                None => self.answer_waker(session, None),
            },
        }
    }

    /// `Ring`: rings the far side's waiter for a program that cannot.
    pub fn wake_far(&mut self, circuit: CircuitId, token: u64, waiter: WaiterId) {
        if !self.ends.proves(circuit, token) {
            return;
        }
        match self.policy.circuits.get(circuit).map(|end| end.far) {
            Some(Far::Here(other)) => self.wake_inside(other, waiter),
            Some(Far::Host { channel: Some(channel), .. }) => self.wake_neighbour(channel, waiter),
            _ => {}
        }
    }

    /// `RingHere`: rings the waiter of another program that holds this end.
    pub fn wake_here(&mut self, circuit: CircuitId, token: u64, waiter: WaiterId) {
        if self.ends.proves(circuit, token) {
            self.wake_waiter(circuit, waiter);
        }
    }

    /// A neighbour's program wants to ring a waiter that sleeps on `circuit`: it gets a waker of its own.
    pub fn handle_want_waker(&mut self, port: PortId, channel: ChannelId, waiter: WaiterId) {
        let event = match self.policy.circuits.owner(port, channel) {
            Some(Owner::End(circuit)) => self.waiter_of(circuit, waiter),
            Some(Owner::Transit(transit, side)) => {
                if self.pass_want((transit, side), channel, waiter) {
                    return;
                }
                self.transits.waiter(transit, waiter)
            }
            None => None,
        };
        let waker = event.and_then(|event| event.waker().ok());
        let Some(cable) = self.cables.get_mut(port) else { return };
        let doorbell = waker.and_then(|waker| cable.export_waker(&waker));
        cable.send(&Control::Waker { channel, waiter, doorbell });
    }

    /// A neighbour says how a waiter at the far end of what it calls `channel` is rung: that is for one of those who asked.
    pub fn handle_waker(
        &mut self,
        port: PortId,
        (channel, waiter): (ChannelId, WaiterId),
        doorbell: Option<Doorbell>,
    ) {
        let mut waker = self.cables.get_mut(port).and_then(|cable| cable.import_waker(doorbell));
        let is_it = |waiting: &Waiting| matches!(waiting, Waiting::Waker { port: at, channel: there, waiter: which, .. } if (*at, *there, *which) == (port, channel, waiter));
        match self.sessions.waiting_for(is_it).first().copied() {
            Some(session) => {
                self.sessions.answered(session);
                self.answer_waker(session, waker.as_ref());
            }
            None => {
                if !self.answer_pump(port, (channel, waiter), &mut waker) {
                    self.pass_waker(port, (channel, waiter), waker.as_ref());
                }
            }
        }
    }

    /// A neighbour rings a waiter of ours.
    pub fn handle_ring(&mut self, port: PortId, channel: ChannelId, waiter: WaiterId) {
        match self.policy.circuits.owner(port, channel) {
            Some(Owner::End(circuit)) => self.wake_waiter(circuit, waiter),
            Some(Owner::Transit(transit, side)) => {
                if self.pass_wake((transit, side), waiter) {
                    return;
                }
                if let Some(event) = self.transits.waiter(transit, waiter) {
                    event.wake();
                    self.counters.wakes += 1;
                }
            }
            None => {}
        }
    }

    /// Rings all waiters of a session: something happened that all of its sleepers must look at.
    pub fn wake_program(&mut self, session: SessionId) {
        let Some(session) = self.sessions.get(session) else { return };
        for waiter in &session.waiters {
            if let Some(waiter) = self.waiters.get(*waiter) {
                waiter.event.wake();
                self.counters.wakes += 1;
            }
        }
    }

    /// A cable is down: nobody answers for its waiters.
    pub fn fail_wakers(&mut self, port: PortId) {
        self.fail_transit_wakes(port);
        let is_it = |waiting: &Waiting| matches!(waiting, Waiting::Waker { port: at, .. } if *at == port);
        for session in self.sessions.waiting_for(is_it) {
            self.sessions.answered(session);
            self.answer_waker(session, None);
        }
    }

    /// A session is gone, with its waiters.
    pub fn remove_waiters(&mut self, waiters: impl IntoIterator<Item = WaiterId>) {
        for waiter in waiters {
            if let Some(word) = self.waiters.remove(waiter) {
                self.cables.iter_mut().for_each(|cable| cable.forget_wakers(word));
            }
        }
    }

    /// Answers `WantWaker`.
    pub fn answer_waker(&mut self, session: SessionId, waker: Option<&FarWaker>) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let (by, descriptor) = match waker {
            None => (None, None),
            Some(FarWaker::Own(waker)) => {
                (Some(WakeBy::Descriptor { word: waker.word() }), Some(waker.as_fd()))
            }
            Some(FarWaker::Queued(number)) => (Some(WakeBy::Queue { number: *number }), None),
        };
        session.reply(&Reply::Waker { by }, descriptor.as_slice());
    }

    /// The neighbour that a channel leads to, and its name for it.
    pub(crate) fn neighbour_of(&self, channel: ChannelId) -> Option<(PortId, ChannelId)> {
        let found = self.policy.circuits.channel(channel)?;
        Some((found.port, found.peer?))
    }

    /// Has a waiter of the neighbour's rung that sleeps on this channel.
    pub(crate) fn wake_neighbour(&mut self, channel: ChannelId, waiter: WaiterId) {
        let Some((port, peer)) = self.neighbour_of(channel) else { return };
        self.cables.send(port, &Control::Wake { channel: peer, waiter });
    }

    fn ask_waker(&mut self, session: SessionId, port: PortId, channel: ChannelId, waiter: WaiterId) {
        let until = self.now + WAKER_TIMEOUT;
        self.sessions.wait_for(session, Waiting::Waker { port, channel, waiter, until });
        if let Some(cable) = self.cables.get_mut(port) {
            cable.want_waker(channel, waiter);
        }
    }

    /// The event of a waiter, if it belongs to a session that holds the end.
    fn waiter_of(&self, circuit: CircuitId, waiter: WaiterId) -> Option<&Receiver> {
        let waiter = self.waiters.get(waiter)?;
        self.ends.holds(waiter.session, circuit).then_some(&waiter.event)
    }

    /// Rings a waiter of an end inside this host for the program at its other end, behind what that one has stored.
    fn wake_inside(&mut self, circuit: CircuitId, waiter: WaiterId) {
        if !self.inside.delay_wake(circuit, waiter) {
            self.wake_waiter(circuit, waiter);
        }
    }

    /// Rings the waiters inside this host before whom everything has landed.
    pub(crate) fn wake_landed(&mut self) {
        for (circuit, waiter) in self.inside.take_due() {
            self.wake_waiter(circuit, waiter);
        }
    }

    fn wake_waiter(&mut self, circuit: CircuitId, waiter: WaiterId) {
        if let Some(event) = self.waiter_of(circuit, waiter) {
            event.wake();
            self.counters.wakes += 1;
        }
    }
}
