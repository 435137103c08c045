//! Circuits over a cable: what is asked of a neighbour, and what a neighbour asks.
//!
//! ```text
//!   opener                                   answerer
//!   allots a slice, Open ------------------> is there a listener? allots a slice, keeps a pending end
//!   carves the far slice  <---------- Opened
//!   Reply::Circuit to the program            ... the program accepts the connection: Reply::Circuit
//! ```

use crate::host::Host;
use crate::part::Parts;
use crate::random;
use crate::session::{SessionId, Waiting};
use crosslane_fabric::circuit::{Far, Scope, State};
use crosslane_port::PortError;
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::local::Plain;
use crosslane_wire::slice::{ring_max_ok, slice_len};
use crosslane_wire::{CircuitId, PortId, SliceRange, Tuple};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a neighbour may take to answer `Open` for a program that waits for its connection. On a busy machine its
/// daemon may have to wait for a processor; and the program wins nothing by going on earlier, since the connection's SYN
/// takes the same way. But its other threads cannot ask us meanwhile.
const ANSWER: Duration = Duration::from_millis(500);
/// The same for a program that must not wait (`O_NONBLOCK`). A daemon that runs answers in 0.1 ms.
const PROMPT_ANSWER: Duration = Duration::from_millis(100);

impl Host {
    /// Asks a neighbour; the answer comes later. `hurried`: the program must not wait.
    pub(crate) fn connect_there(
        &mut self,
        session: SessionId,
        tuple: Tuple,
        slot: u32,
        hurried: bool,
    ) -> Result<(), Plain> {
        let host = self.config.addresses.host_of(tuple.server.ip()).ok_or(Plain::NotFabric)?;
        let way = self.links.next_hop(host).filter(|way| way.hops == 1);
        let port = way.ok_or(Plain::Refused(Refusal::NoRoute))?.port;
        if self.is_late(port) {
            return Err(Plain::Refused(Refusal::Timeout));
        }
        let patience = if hurried { PROMPT_ANSWER } else { ANSWER };
        let (ring_max, deadline) = (self.config.ring_max, self.now + patience);
        let said = self.counters.has_plain(Plain::Refused(Refusal::NoMemory));
        let cable = self.cable(port).ok_or(Plain::Refused(Refusal::NoRoute))?;
        let epoch = cable.agreement().ok_or(Plain::Refused(Refusal::NoRoute))?.epoch;
        let (range, inbound) =
            cable.carve_inbound(slice_len(ring_max)).map_err(|error| no_slice(&error, !said))?;
        let circuit = self.circuits.dial(tuple, port, epoch, host, deadline);
        let mut parts = Parts::new(ring_max, random::u64(), 0);
        parts.inbound = Some(inbound);
        parts.range = Some((port, epoch, range));
        let key = parts.rx_key;
        self.parts.insert(circuit, parts);
        self.own(session, circuit, slot);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.waiting = Some(Waiting::Circuit(circuit));
        }
        if let Some(cable) = self.cable(port) {
            cable.send(&Control::Open { circuit, tuple, slice: range, key, route: vec![] });
        }
        Ok(())
    }

    /// The neighbour did not answer in time. What counts is the oldest answer that it owes.
    pub(crate) fn note_late(&mut self, circuit: CircuitId) {
        if let Some(Far::Cable { port, .. }) = self.circuits.get(circuit).map(|end| end.far)
            && !self.owes(port)
        {
            self.late.insert(port, (circuit, self.now));
        }
    }

    /// Whether the neighbour owes us an answer for so long that it does not run: nobody is kept waiting for it.
    fn is_late(&mut self, port: PortId) -> bool {
        let owes = self.owes(port);
        if !owes {
            self.late.remove(&port);
        }
        owes && self.late.get(&port).is_some_and(|(_, since)| self.now.saturating_sub(*since) >= ANSWER)
    }

    fn owes(&self, port: PortId) -> bool {
        let end = self.late.get(&port).and_then(|(circuit, _)| self.circuits.get(*circuit));
        end.is_some_and(|end| end.state == State::Abandoned)
    }

    /// A neighbour asks for a circuit.
    pub fn handle_open(
        &mut self,
        port: PortId,
        name: CircuitId,
        tuple: Tuple,
        slice: SliceRange,
        key: u64,
        transit: bool,
    ) {
        let answer = match self.open_for(port, name, tuple, slice, key, transit) {
            Ok(opened) => opened,
            Err(why) => {
                tracing::debug!(%tuple, ?why, "circuit refused");
                Control::Refused { circuit: name, why }
            }
        };
        if let Some(cable) = self.cable(port) {
            cable.send(&answer);
        }
    }

    /// A neighbour made the circuit that a session asked for.
    pub(crate) fn opened(&mut self, circuit: CircuitId, slice: SliceRange, key: u64) {
        let outbound = self.outbound_of(circuit, slice);
        let Some(parts) = self.parts.get_mut(&circuit) else { return };
        let session = parts.holders.first().map(|(session, _)| *session);
        match (outbound, session) {
            (Ok(outbound), Some(session)) => {
                parts.outbound = Some(outbound);
                parts.tx_key = key;
                self.wake_session(session);
                if let Some(why) = self.grant(session, circuit, false) {
                    self.refuse(session, why);
                }
            }
            (Err(why), Some(session)) => {
                self.close_end(circuit, true);
                self.wake_session(session);
                self.refuse(session, why);
            }
            (_, None) => self.close_end(circuit, true),
        }
    }

    pub(crate) fn answer_dial(&mut self, circuit: CircuitId, why: Plain) {
        let Some(parts) = self.parts.get(&circuit) else { return };
        let holders: Vec<SessionId> = parts.holders.iter().map(|(session, _)| *session).collect();
        self.drop_holders(circuit);
        for session in holders {
            self.wake_session(session);
            self.refuse(session, why);
        }
    }

    fn open_for(
        &mut self,
        port: PortId,
        name: CircuitId,
        tuple: Tuple,
        slice: SliceRange,
        key: u64,
        transit: bool,
    ) -> Result<Control, Refusal> {
        if transit {
            return Err(Refusal::NoRoute);
        }
        let tuple = crate::address::plain_tuple(tuple);
        let agreement =
            self.cable(port).and_then(|cable| cable.agreement().copied()).ok_or(Refusal::Protocol)?;
        let ring_max = slice.len.checked_sub(slice_len(0)).filter(|ring| ring_max_ok(*ring));
        let ring_max = ring_max.filter(|_| slice.fits(agreement.peer_window)).ok_or(Refusal::Protocol)?;
        if self.config.addresses.host_of(tuple.client.ip()) != Some(agreement.peer) {
            return Err(Refusal::Protocol);
        }
        let mine = self.config.addresses.host_of(tuple.server.ip()) == Some(self.me());
        if !mine {
            return Err(Refusal::NoListener);
        }
        self.check_listener(tuple.server, Scope(0))?;
        self.replace(&tuple, Scope(0));
        let cable = self.cable(port).ok_or(Refusal::Protocol)?;
        let outbound = cable.carve_outbound(slice).map_err(|_| Refusal::Protocol)?;
        let (range, inbound) = cable.carve_inbound(slice.len).map_err(|_| Refusal::NoMemory)?;
        let circuit = match self.circuits.handle_open(tuple, port, agreement.epoch, agreement.peer, name) {
            Ok(circuit) => circuit,
            Err(why) => {
                if let Some(cable) = self.cable(port) {
                    cable.free_inbound(range);
                }
                return Err(why);
            }
        };
        let mut parts = Parts::new(ring_max, random::u64(), key);
        (parts.inbound, parts.outbound) = (Some(inbound), Some(outbound));
        parts.range = Some((port, agreement.epoch, range));
        let key = parts.rx_key;
        self.parts.insert(circuit, parts);
        self.publish_announced();
        Ok(Control::Opened { circuit: name, peer: circuit, slice: range, key })
    }

    /// Checks and carves the slice that a neighbour allotted.
    fn outbound_of(&mut self, circuit: CircuitId, slice: SliceRange) -> Result<OwnedFd, Plain> {
        let parts = self.parts.get(&circuit).ok_or(Plain::System)?;
        let (port, ..) = parts.range.ok_or(Plain::System)?;
        let len = slice_len(parts.ring_max);
        let cable = self.cable(port).ok_or(Plain::System)?;
        let window = cable.agreement().map_or(0, |agreement| agreement.peer_window);
        if slice.len != len || !slice.fits(window) {
            self.counters.violations += 1;
            tracing::warn!(%circuit, "neighbour allotted a slice that cannot be");
            return Err(Plain::Refused(Refusal::Protocol));
        }
        cable.carve_outbound(slice).map_err(|error| {
            tracing::warn!(%circuit, %error, "neighbour's slice is not there");
            Plain::Refused(Refusal::Protocol)
        })
    }
}

/// Why there is no slice, for the program; for people it is logged, of a full window only the `first` time: the
/// counters tell how often.
fn no_slice(error: &PortError, first: bool) -> Plain {
    match error {
        PortError::Full(_) => {
            if first {
                tracing::warn!(
                    "no window memory left: connections use TCP; make `window` larger or `ring_max` smaller"
                );
            }
            Plain::Refused(Refusal::NoMemory)
        }
        PortError::Down => Plain::Refused(Refusal::NoRoute),
        other => {
            tracing::warn!(error = %other, "no slice");
            Plain::System
        }
    }
}
