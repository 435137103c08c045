//! What the neighbours' daemons say, and what is owed to them.

use crate::answer::Asked;
use crate::echo::Probe;
use crate::host::Host;
use crosslane_fabric::channel::Contradiction;
use crosslane_fabric::circuit::Death;
use crosslane_wire::PortId;
use crosslane_wire::control::Control;
use std::time::Duration;

/// Most messages that are taken from one cable in one turn, so that none keeps the others waiting.
const BATCH: usize = 256;
/// So long messages of one cable are handled in one turn: a neighbour may send without end what costs most.
const TURN: Duration = Duration::from_micros(200);

/// Most messages without a circuit (link states, probes, questions whether we are there) in one turn from a neighbour that
/// is honest: the table of 254 hosts takes 8.
const TALK: usize = 32;

/// Whether a message is of no circuit.
fn is_talk(message: &Control) -> bool {
    matches!(message, Control::LinkStates(_) | Control::Echo { .. } | Control::Alive { .. })
}

impl Host {
    /// Handles the messages that wait on all cables; whether there were any.
    pub fn hear_neighbours(&mut self) -> bool {
        let mut heard = false;
        for index in 0..self.cables.len() {
            let mut buffer = std::mem::take(&mut self.buffer);
            let end = self.elapsed() + TURN;
            let mut talk = 0;
            for number in 0..BATCH {
                if number > 0 && self.elapsed() >= end {
                    break;
                }
                let cable = &mut self.cables[index];
                let port = cable.id;
                let Some(message) = cable.receive(&mut buffer) else { break };
                heard = true;
                talk += usize::from(is_talk(&message));
                if talk > TALK {
                    cable.rest(self.now);
                }
                self.heard_from(port);
                self.handle_message(port, message);
            }
            self.buffer = buffer;
        }
        heard
    }

    /// Sends the link states that are owed, as far as there is room, and rings neighbours that sleep.
    pub fn tell_neighbours(&mut self) {
        for cable in &mut self.cables {
            while cable.has_room() {
                let Some(records) = self.policy.links.poll_output(cable.id) else { break };
                cable.send(&Control::LinkStates(records));
            }
            cable.flush();
        }
        self.send_owed_wakes();
        self.charge_neighbours();
        while let Some(host) = self.policy.links.poll_new_life() {
            self.policy.circuits.handle_new_life(host);
        }
        if self.policy.links.may_have_changed() {
            self.ways_may_have_changed();
        }
        if !self.policy.links.refused().is_empty() {
            self.note_refused_records();
        }
    }

    /// Says that link states were not believed, if there were more of them.
    fn note_refused_records(&mut self) {
        let refused = self.policy.links.refused();
        let count = refused.values().map(|refused| refused.count).sum();
        let last = refused.iter().max_by_key(|(_, refused)| refused.count);
        if count > self.refused_records
            && let Some((host, refused)) = last
            && self.refused_records_said.take(self.now).is_some()
        {
            tracing::warn!(%host, why = %refused.why, count, "link states in that host's name are not believed");
            self.refused_records = count;
        }
    }

    fn handle_message(&mut self, port: PortId, message: Control) {
        match message {
            Control::LinkStates(records) => {
                if let Err(error) = self.policy.links.handle_link_states(port, records) {
                    self.distrust(port, error.to_string());
                }
            }
            Control::Open { channel, tuple, stream, segment, key, passed, pumps, route, resume } => {
                let asked = Asked { channel, tuple, stream, segment, key, passed, pumps, resume };
                self.handle_open(port, &asked, route);
            }
            Control::Opened { .. }
            | Control::Arrived { .. }
            | Control::Refused { .. }
            | Control::Prove { .. }
            | Control::Proven { .. }
            | Control::Closed { .. } => {
                let outcome = self.policy.circuits.handle_message(port, message);
                self.note_contradiction(port, outcome);
            }
            Control::WantWaker { channel, waiter } => self.handle_want_waker(port, channel, waiter),
            Control::Waker { channel, waiter, doorbell } => {
                self.handle_waker(port, (channel, waiter), doorbell);
            }
            Control::Wake { channel, waiter } => self.handle_ring(port, channel, waiter),
            Control::ImportBuffer { channel, buffer } => self.handle_import_buffer(port, channel, buffer),
            Control::Buffer { channel, buffer, handed } => {
                self.handle_buffer(port, channel, buffer, handed);
            }
            Control::Echo { from, to, token, ttl, stamp, reply } => {
                self.handle_echo(port, Probe { from, to, token, ttl, stamp, reply });
            }
            Control::Alive { reply: false } => {
                if let Some(cable) = self.cable(port) {
                    cable.send(&Control::Alive { reply: true });
                }
            }
            Control::Alive { reply: true } => {}
            Control::Goodbye => {
                if let Some(cable) = self.cable(port) {
                    cable.break_off(Death::Shutdown, "the neighbour shuts down".to_owned());
                }
            }
        }
        self.run_circuits();
    }

    /// The neighbour contradicts what was before: that circuit is left as it is, and it is counted.
    fn note_contradiction(&mut self, port: PortId, outcome: Result<(), Contradiction>) {
        if let Err(error) = outcome {
            self.counters.violations += 1;
            tracing::warn!(port = port.0, %error, "neighbour breaks the protocol");
        }
    }

    fn distrust(&mut self, port: PortId, why: String) {
        if let Some(cable) = self.cable(port) {
            cable.break_off(Death::Violation, why);
        }
    }
}
