//! How ends of circuits end: closed here, closed or aborted at the far end, dead, and finally removed.

use crate::circuit::{Circuits, Output};
use crate::end::{Death, Far, State};
use crosslane_wire::control::{Closing, Refusal};
use crosslane_wire::{ChannelId, CircuitId};
use std::collections::hash_map::Entry;

impl Circuits {
    /// Closes the end on this side: by its program, or because its program has died (`abort`). Tells the far side.
    pub fn close(&mut self, circuit: CircuitId, abort: bool) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        match end.state {
            State::Opening => {
                let channel = end.channel();
                self.leave_channel(channel, Closing::Abort);
                self.remove(circuit);
            }
            State::Closing(_) => {}
            State::Pending | State::Open => {
                if end.state == State::Pending {
                    self.admitted_leaves(circuit);
                }
                self.close_here(circuit, if abort { Closing::Abort } else { Closing::Done });
            }
        }
    }

    /// The channel that was just opened for an end is lost before use: treats it as never opened.
    pub fn unopen(&mut self, circuit: CircuitId) {
        let Some(end) = self.ends.get_mut(&circuit).filter(|end| end.state == State::Open) else { return };
        end.state = State::Opening;
        let channel = end.take_channel();
        self.leave_channel(channel, Closing::Abort);
        self.fail(circuit, channel);
    }

    /// The circuit that an end requested cannot be made over this channel.
    fn fail(&mut self, circuit: CircuitId, channel: Option<ChannelId>) {
        let channel = channel.unwrap_or_default();
        self.outputs.push_back(Output::Failed { circuit, channel, why: Refusal::NoRoute });
    }

    /// An end that was closed before or during its move has a circuit, by which it can tell the far side; `broken`: a
    /// part of what it sent cannot be sent again.
    pub fn finish(&mut self, circuit: CircuitId, broken: bool) {
        let end = self.ends.get(&circuit);
        if let Some((State::Closing(how), Some(channel))) = end.map(|end| (end.state, end.channel())) {
            self.channels.close(channel, if broken { Closing::Abort } else { how });
        }
    }

    /// The end's ring or its neighbour broke the protocol: both sides get an error.
    pub fn kill(&mut self, circuit: CircuitId, death: Death) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        let (state, channel) = (end.state, end.take_channel());
        // An end that is only opening may still get a circuit over another path.
        end.far_closed |= state != State::Opening;
        self.leave_channel(channel, Closing::Abort);
        match state {
            State::Opening => self.fail(circuit, channel),
            State::Closing(_) => self.remove(circuit),
            State::Pending | State::Open => self.die(circuit, death),
        }
    }

    fn close_here(&mut self, circuit: CircuitId, how: Closing) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        end.state = State::Closing(how);
        let (far, far_closed, moving) = (end.far, end.far_closed, end.moving.is_some());
        match far {
            Far::Here(other) => {
                self.far_close(other, how == Closing::Abort);
                if far_closed {
                    self.remove(circuit);
                }
            }
            // The bytes that it sent count: the far end must be able to get them, and to learn of the close.
            _ if moving => {}
            Far::Host { channel: Some(channel), .. } => self.channels.close(channel, how),
            Far::Host { channel: None, .. } => self.remove(circuit),
        }
    }

    pub(crate) fn far_close(&mut self, circuit: CircuitId, abort: bool) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        end.far_closed = true;
        match end.state {
            State::Closing(_) => {
                if end.channel().is_none() {
                    self.remove(circuit);
                }
            }
            _ if abort => self.die(circuit, Death::Abort),
            _ => self.outputs.push_back(Output::CheckHolders { circuit }),
        }
    }

    pub(crate) fn die(&mut self, circuit: CircuitId, death: Death) {
        self.search(circuit, None);
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        if end.death.is_none() {
            end.death = Some(death);
            self.outputs.push_back(Output::Died { circuit, death });
            self.outputs.push_back(Output::CheckHolders { circuit });
        }
    }

    /// The channel of the end is gone.
    pub(crate) fn channel_gone(&mut self, circuit: CircuitId) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        end.take_channel();
        if matches!(end.state, State::Closing(_)) && end.moving.is_none() {
            self.remove(circuit);
        }
    }

    /// The channel does not serve its end any more.
    pub(crate) fn leave_channel(&mut self, channel: Option<ChannelId>, how: Closing) {
        if let Some(channel) = channel {
            self.owners.remove(&channel);
            self.channels.close(channel, how);
        }
    }

    pub(crate) fn remove(&mut self, circuit: CircuitId) {
        self.search(circuit, None);
        if self.ends.get(&circuit).is_some_and(|end| end.state == State::Pending) {
            self.admitted_leaves(circuit);
        }
        let Some(end) = self.ends.remove(&circuit) else { return };
        let key = (end.tuple, end.role, end.scope);
        if let Entry::Occupied(mut ends) = self.by_tuple.entry(key) {
            ends.get_mut().retain(|other| *other != circuit);
            if ends.get().is_empty() {
                ends.remove();
            }
        }
        if self.by_stream.get(&end.stream) == Some(&circuit) {
            self.by_stream.remove(&end.stream);
        }
        if let Some(first) = end.twin_of {
            self.twins.remove(&first);
        }
        self.twins.remove(&circuit);
        self.outputs.push_back(Output::Free { circuit, end: Box::new(end) });
    }
}
