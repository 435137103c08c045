//! Proof that a connection is that of the socket with which a circuit was announced: the accepting side asks, the
//! connecting side's daemon asks its kernel and answers. Hosts between forward both messages.

use crate::channel::{self, Contradiction};
use crate::end::{End, Role};
use crate::output::Output;
use crate::table::{BEFORE, BEHIND, Circuits, Owner};
use crosslane_wire::control::Control;
use crosslane_wire::{ChannelId, CircuitId, PortId};

/// A neighbour's message about the socket of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The accepting side asks.
    Asked,
    /// The connecting side answers.
    Answered(bool),
}

impl Circuits {
    /// Asks the connecting side of an end whether the connection is that of its socket; returns the channel that was
    /// used. [`Output::Proven`] follows. `None` while the end has no channel.
    pub fn ask_for_proof(&mut self, circuit: CircuitId) -> Option<ChannelId> {
        let channel = self.ends.get(&circuit).and_then(End::channel)?;
        self.channels.tell(channel, |peer| Control::Prove { channel: peer }).then_some(channel)
    }

    /// Answers an [`Output::Prove`], or sends the same without it.
    pub fn tell_proof(&mut self, circuit: CircuitId, is_so: bool) {
        if let Some(channel) = self.ends.get(&circuit).and_then(End::channel) {
            self.channels.tell(channel, |peer| Control::Proven { channel: peer, is_so });
        }
    }

    pub(crate) fn handle_claim(
        &mut self,
        port: PortId,
        channel: ChannelId,
        claim: Claim,
    ) -> Result<(), Contradiction> {
        if self.channels.on_port(port, channel)?.state == channel::State::Closing {
            // The message crossed this host's `Closed`.
            return Ok(());
        }
        let role = if claim == Claim::Asked { Role::Client } else { Role::Server };
        match self.owners.get(&channel).copied() {
            Some(Owner::End(circuit)) => {
                self.ends.get(&circuit).filter(|end| end.role == role).ok_or(Contradiction(channel))?;
                self.outputs.push_back(match claim {
                    Claim::Asked => Output::Prove { circuit },
                    Claim::Answered(is_so) => Output::Proven { circuit, is_so },
                });
                Ok(())
            }
            Some(Owner::Transit(transit, side)) => {
                let (from, to) = if claim == Claim::Asked { (BEHIND, BEFORE) } else { (BEFORE, BEHIND) };
                let onward = self.channel_of(transit, to).filter(|_| side == from);
                self.channels.tell(onward.ok_or(Contradiction(channel))?, |channel| match claim {
                    Claim::Asked => Control::Prove { channel },
                    Claim::Answered(is_so) => Control::Proven { channel, is_so },
                });
                Ok(())
            }
            None => Err(Contradiction(channel)),
        }
    }
}
