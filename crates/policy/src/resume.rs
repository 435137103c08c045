//! Streams that move to another circuit: decision 11. The state machine is `crosslane_fabric::moving`; this module
//! chooses the paths to try, and exchanges the stream offsets that have arrived on both sides.

use crate::answer::{Asked, path_of};
use crate::dial::{DIAL_TIMEOUT, Wanted, attempt};
use crate::resources::{Purpose, Resources, Ring, Size};
use crate::tuple::plain_tuple;
use crate::{Output, Policy};
use crosslane_fabric::circuit::{Death, State};
use crosslane_wire::control::{ARRIVED_ALL, Refusal, Resumption};
use crosslane_wire::{CircuitId, PortId};
use std::time::Duration;

impl Policy {
    /// Tries the next path for an end that moves.
    pub(crate) fn seek(&mut self, circuit: CircuitId, now: Duration, resources: &mut impl Resources) {
        if self.try_path(circuit, now, resources).is_none() {
            if let Some(state) = self.ends.get_mut(&circuit) {
                state.tried.clear();
            }
            self.circuits.no_way(circuit);
        }
    }

    fn try_path<R: Resources>(&mut self, circuit: CircuitId, now: Duration, resources: &mut R) -> Option<()> {
        let end = self.circuits.get(circuit).filter(|end| end.moving.is_some() && end.channel().is_none())?;
        let host = end.far_host();
        let payer = resources.payer(circuit)?;
        let state = self.ends.get(&circuit)?;
        let (mut tried, size) = (state.tried.clone(), Size::Moved { refused: state.refused });
        let apart_from = self.port_of_other(circuit);
        let attempt = loop {
            let wanted = Wanted { host, tried: &tried, apart_from };
            let (path, route) = self.path_to(wanted, now, resources).ok()?;
            tried.push(path.port);
            if let Ok(attempt) = attempt((path, route), payer, (Purpose::Move, size), resources) {
                break attempt;
            }
        };
        let found = self.circuits.redial(circuit, attempt.path(), now + DIAL_TIMEOUT);
        let Some((channel, generation)) = found else {
            attempt.forgo(resources);
            return None;
        };
        self.ends.get_mut(&circuit)?.tried = tried;
        self.ask_for((circuit, channel), attempt, Some(Resumption { generation }), resources);
        Some(())
    }

    /// A try failed. The far program has not sent anything on that circuit: it waits for this side's report of what has arrived.
    pub(crate) fn try_failed(&mut self, circuit: CircuitId, why: Refusal) {
        if matches!(why, Refusal::NoMemory | Refusal::Quota)
            && let Some(state) = self.ends.get_mut(&circuit)
        {
            state.refused = Some(state.len);
        }
        self.circuits.try_failed(circuit, why);
    }

    /// A path was found, and the far program has stopped: counts the bytes that it sent before, and lets this host's programs go on.
    pub(crate) fn resumed(
        &mut self,
        circuit: CircuitId,
        ring: Ring,
        arrived: u64,
        resources: &mut impl Resources,
    ) {
        let here = if self.is_read(circuit) { resources.arrived(circuit) } else { None };
        let here = here.unwrap_or(ARRIVED_ALL);
        if self.complete(circuit, ring, (here, arrived), resources).is_err() {
            // The cable of that path is lost already: the search goes on.
            return self.circuits.lose(circuit, Death::Cable);
        }
        self.circuits.tell_arrived(circuit, here);
        self.go_on(circuit, arrived);
    }

    /// The connecting side's daemon seeks another circuit for a stream.
    pub(crate) fn resume_for(
        &mut self,
        port: PortId,
        asked: &Asked,
        resume: Resumption,
        resources: &mut impl Resources,
    ) -> Result<(), Refusal> {
        let tuple = plain_tuple(asked.tuple);
        let agreement = self.check_segment(port, asked.segment)?;
        self.check_origin(&tuple, &agreement, asked.passed, resources)?;
        let path = path_of(port, &agreement, asked)?;
        let (circuit, channel) =
            self.circuits.handle_resume(&tuple, asked.stream, resume, path, asked.channel)?;
        let end = self.circuits.get(circuit).ok_or(Refusal::Unknown)?;
        let is_read = !matches!(end.state, State::Closing(_));
        let counted = if is_read { resources.stop_and_count(circuit, end) } else { None };
        let arrived = counted.unwrap_or(ARRIVED_ALL);
        match resources.answer_move((circuit, end), channel, (port, asked), arrived) {
            Ok(ring) => {
                self.ways.relies |= asked.passed > 0;
                if let Some(state) = self.ends.get_mut(&circuit) {
                    state.waiting = Some(resume.generation);
                }
                self.circuits.answer(channel, ring.segment, ring.key, arrived);
                Ok(())
            }
            Err(why) => {
                self.circuits.unresume(circuit);
                Err(why)
            }
        }
    }

    /// The connecting side reports what has arrived there, after this host's programs had stopped: they go on.
    pub(crate) fn arrived_there(&mut self, circuit: CircuitId, units: u64) {
        let generation = self.circuits.get(circuit).map(|end| end.generation);
        let waiting = self.ends.get_mut(&circuit).and_then(|state| state.waiting.take());
        if waiting.is_some() && waiting == generation {
            self.go_on(circuit, units);
        }
    }

    /// Lets programs go on over the newest circuit.
    fn go_on(&mut self, circuit: CircuitId, arrived: u64) {
        if let Some(state) = self.ends.get_mut(&circuit) {
            state.refused = None;
            state.tried.clear();
        }
        self.push(Output::GoesOn { circuit, arrived });
    }

    /// Whether a program still reads the bytes that arrive.
    fn is_read(&self, circuit: CircuitId) -> bool {
        self.circuits.get(circuit).is_some_and(|end| !matches!(end.state, State::Closing(_)))
    }
}
