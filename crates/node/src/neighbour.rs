//! What the neighbours' daemons say, and what is owed to them.

use crate::echo::Probe;
use crate::host::Host;
use crosslane_policy::Notice;
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
        for port in self.cables.ports() {
            let end = self.elapsed() + TURN;
            let mut talk = 0;
            for number in 0..BATCH {
                if number > 0 && self.elapsed() >= end {
                    break;
                }
                let Some(message) = self.cables.receive(port) else { break };
                heard = true;
                talk += usize::from(is_talk(&message));
                if talk > TALK
                    && let Some(cable) = self.cables.get_mut(port)
                {
                    cable.rest(self.now);
                }
                self.handle_message(port, message);
            }
        }
        heard
    }

    /// Sends the link states that are owed, as far as there is room, and rings neighbours that sleep.
    pub fn tell_neighbours(&mut self) {
        for cable in self.cables.iter_mut() {
            while cable.has_room() {
                let Some(records) = self.policy.poll_link_states(cable.id) else { break };
                cable.send(&records);
            }
            cable.flush();
        }
        self.send_owed_wakes();
        self.charge_neighbours();
        self.policy.follow_links(self.now);
        self.signing.note_refused(self.policy.links.refused(), self.now);
    }

    fn handle_message(&mut self, port: PortId, message: Control) {
        let (now, opens) = (self.now, matches!(message, Control::Open { .. }));
        let (policy, mut provider) = self.split();
        let left = policy.handle_message(port, message, now, &mut provider);
        if opens {
            // Before the opener is answered.
            self.publish_announced();
        }
        match left {
            Some(Control::WantWaker { channel, waiter }) => self.handle_want_waker(port, channel, waiter),
            Some(Control::Waker { channel, waiter, doorbell }) => {
                self.handle_waker(port, (channel, waiter), doorbell);
            }
            Some(Control::Wake { channel, waiter }) => self.handle_ring(port, channel, waiter),
            Some(Control::ImportBuffer { channel, buffer }) => {
                self.handle_import_buffer(port, channel, buffer);
            }
            Some(Control::Buffer { channel, buffer, handed }) => {
                self.handle_buffer(port, channel, buffer, handed);
            }
            Some(Control::Echo { from, to, token, ttl, stamp, reply }) => {
                self.handle_echo(port, Probe { from, to, token, ttl, stamp, reply });
            }
            _ => {}
        }
        self.run_circuits();
    }

    /// Tells people what the policy has to say.
    pub(crate) fn say_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Held { port, hold } => {
                let hold_ms = hold.as_millis();
                tracing::info!(port = port.0, hold_ms, "cable flaps; it is used once it has stayed up");
            }
            Notice::Used { .. } => {}
            Notice::Silent { port, peer } => {
                tracing::warn!(port = port.0, %peer, "the neighbour does not answer; streams through it take other ways");
            }
            Notice::Answers { port, peer } => {
                tracing::info!(port = port.0, %peer, "the neighbour answers again");
            }
            Notice::InReach { hosts, duplicate_id } => {
                let hosts: Vec<u16> = hosts.into_iter().map(|host| host.0).collect();
                tracing::info!(?hosts, "hosts in reach");
                if duplicate_id {
                    tracing::error!(host = %self.me(), "another host in the network has our id: give each its own");
                }
            }
            // That circuit is left as it is, and it is counted.
            Notice::Contradiction { port, why } => {
                self.counters.violations += 1;
                tracing::warn!(port = port.0, error = %why, "neighbour breaks the protocol");
            }
        }
    }
}
