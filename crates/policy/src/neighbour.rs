//! The cables of this host, and the messages of the neighbours' daemons.

use crate::answer::Asked;
use crate::{Notice, Output, Policy, Resources};
use crosslane_fabric::Damping;
use crosslane_fabric::circuit::Death;
use crosslane_fabric::setup::Agreement;
use crosslane_wire::control::{Control, LinkState};
use crosslane_wire::{ChannelId, PortId};
use std::time::Duration;

/// One of this host's ports.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// Damping by its earlier losses.
    pub(crate) damping: Damping,
    /// Its cable, while it is up.
    pub(crate) up: Option<Up>,
    /// The channel for which the neighbour has not answered in time, and since when.
    pub(crate) late: Option<(ChannelId, Duration)>,
}

/// A cable that is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Up {
    /// What both sides agreed on at set-up.
    pub(crate) agreement: Agreement,
    /// When it may be used, if it is not used yet.
    pub(crate) join_at: Option<Duration>,
    /// When the neighbour got a keepalive request that it has not answered.
    pub(crate) asked: Option<Duration>,
    /// The neighbour does not answer: no path leads through it.
    pub(crate) silent: bool,
}

impl Policy {
    /// The cable at `port` is up: it is used as soon as damping allows.
    pub fn handle_cable_up(&mut self, port: PortId, agreement: Agreement, now: Duration) {
        let is_only_way = self.links.next_hop(agreement.peer).is_none();
        let there = self.ports.entry(port).or_default();
        let hold = if is_only_way { Duration::ZERO } else { there.damping.hold() };
        let join_at = (!hold.is_zero()).then_some(now + hold);
        there.up = Some(Up { agreement, join_at, asked: None, silent: false });
        match join_at {
            None => self.join(port),
            Some(_) => self.push(Output::Notice(Notice::Held { port, hold })),
        }
    }

    /// The cable at `port` is down.
    pub fn handle_cable_down(&mut self, port: PortId, death: Death, now: Duration) {
        let Some(there) = self.ports.get_mut(&port) else { return };
        let Some(was) = there.up.take() else { return };
        there.damping.lost(now);
        self.links.handle_cable_down(port);
        self.circuits.handle_link_down(port, was.agreement.peer, death);
    }

    /// Handles a message of the neighbour at `port`; returns it if it is not for this state machine.
    pub fn handle_message(
        &mut self,
        port: PortId,
        message: Control,
        now: Duration,
        resources: &mut impl Resources,
    ) -> Option<Control> {
        self.heard_from(port);
        match message {
            Control::LinkStates(records) => self.handle_link_states(port, records),
            Control::Open { channel, tuple, stream, segment, key, passed, pumps, route, resume, twin_of } => {
                let asked = Asked { channel, tuple, stream, segment, key, passed, pumps, resume, twin_of };
                self.handle_open(port, &asked, route, now, resources);
            }
            Control::Opened { .. }
            | Control::Arrived { .. }
            | Control::Refused { .. }
            | Control::Prove { .. }
            | Control::Proven { .. }
            | Control::Closed { .. } => {
                if let Err(error) = self.circuits.handle_message(port, message) {
                    self.contradiction(port, error.to_string());
                }
            }
            Control::Alive { reply: false } => self.send(port, Control::Alive { reply: true }),
            Control::Alive { reply: true } => {}
            Control::Goodbye => {
                let why = "the neighbour shuts down".to_owned();
                self.push(Output::BreakOff { port, death: Death::Shutdown, why });
            }
            other => return Some(other),
        }
        None
    }

    /// The next message of link states for the neighbour at `port`; call this as long as there is room.
    pub fn poll_link_states(&mut self, port: PortId) -> Option<Control> {
        self.links.poll_output(port).map(Control::LinkStates)
    }

    /// Computes what follows from the link states that have arrived: once for many of them.
    pub fn follow_links(&mut self, now: Duration) {
        while let Some(host) = self.links.poll_new_life() {
            self.circuits.handle_new_life(host);
        }
        if self.links.may_have_changed() {
            self.ways_may_have_changed(now);
        }
    }

    /// Whether the neighbour at `port` has not answered for so long that no path leads through it.
    pub fn is_silent(&self, port: PortId) -> bool {
        self.up(port).is_some_and(|up| up.silent)
    }

    pub(crate) fn up(&self, port: PortId) -> Option<&Up> {
        self.ports.get(&port)?.up.as_ref()
    }

    pub(crate) fn agreement(&self, port: PortId) -> Option<Agreement> {
        self.up(port).map(|up| up.agreement)
    }

    pub(crate) fn send(&mut self, port: PortId, message: Control) {
        self.push(Output::Send { port, message });
    }

    pub(crate) fn contradiction(&mut self, port: PortId, why: String) {
        self.push(Output::Notice(Notice::Contradiction { port, why }));
    }

    fn handle_link_states(&mut self, port: PortId, records: Vec<LinkState>) {
        if let Err(error) = self.links.handle_link_states(port, records) {
            self.push(Output::BreakOff { port, death: Death::Violation, why: error.to_string() });
        }
    }
}
