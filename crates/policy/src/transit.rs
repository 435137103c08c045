//! Circuits through this host: decision 10. The state machine is `crosslane_fabric::transit`; this module decides which are allowed.

use crate::Policy;
use crate::answer::{Asked, path_of};
use crate::dial::DIAL_TIMEOUT;
use crate::resources::{Resources, Ring};
use crosslane_fabric::circuit::Path;
use crosslane_fabric::transit::{BEFORE, BEHIND};
use crosslane_wire::control::{Closing, Control, MAX_HOPS, Refusal};
use crosslane_wire::local::Plain;
use crosslane_wire::{HostId, PortId, TransitId};
use std::time::Duration;

/// State for decisions about a circuit in transit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The port to the next host.
    onward: PortId,
    /// Length of its segments, bytes.
    len: u64,
    /// How to close it if it cannot be made.
    late: Closing,
}

impl Policy {
    /// A neighbour asks for a circuit through this host, along `route`.
    pub(crate) fn pass_on(
        &mut self,
        port: PortId,
        asked: &Asked,
        mut route: Vec<HostId>,
        now: Duration,
        resources: &mut impl Resources,
    ) -> Result<(), Refusal> {
        let agreement = self.check_segment(port, asked.segment)?;
        let before = path_of(port, &agreement, asked)?;
        // A circuit that goes in circles would take memory of each host repeatedly: the first host that finds itself ahead refuses.
        let cables = usize::from(before.hops) + route.len();
        if cables > MAX_HOPS.into() || route.contains(&self.me) {
            return Err(Refusal::Protocol);
        }
        let next = route.remove(0);
        let behind = self.path_behind(port, next, before.hops)?;
        let prepared = resources.prepare_transit([port, behind.port], asked)?;
        let late = if asked.resume.is_some() { Closing::Lost } else { Closing::Abort };
        let (transit, channels) =
            self.circuits.transit(before, asked.channel, behind, (now + DIAL_TIMEOUT, late));
        self.transits.insert(transit, State { onward: behind.port, len: asked.segment.len, late });
        resources.keep_transit(transit, [port, behind.port], channels, prepared.made);
        self.ways.relies = true;
        let open = Control::Open {
            channel: channels[BEHIND],
            tuple: asked.tuple,
            stream: asked.stream,
            segment: prepared.behind.segment,
            key: prepared.behind.key,
            passed: before.hops,
            pumps: prepared.pumps,
            route,
            resume: asked.resume,
            twin_of: asked.twin_of,
        };
        self.send(behind.port, open);
        Ok(())
    }

    /// The path on to the host `next`, which does not lead back through `port`.
    fn path_behind(&self, port: PortId, next: HostId, hops: u8) -> Result<Path, Refusal> {
        let onward = self.links.port_to(next).filter(|onward| *onward != port).ok_or(Refusal::NoRoute)?;
        let epoch = self.agreement(onward).ok_or(Refusal::NoRoute)?.epoch;
        Ok(Path { port: onward, epoch, hops, pumps: 0 })
    }

    /// The onward half of a circuit exists, behind which `pumps` hosts pump: forwarding begins now.
    pub(crate) fn passed(
        &mut self,
        transit: TransitId,
        ring: Ring,
        (arrived, pumps): (u64, u8),
        resources: &mut impl Resources,
    ) {
        match self.begin_transit(transit, ring, pumps, resources) {
            Ok((before, pumps)) => {
                self.circuits.pass(transit, (before.segment, before.key), arrived, pumps);
            }
            Err(_) => {
                let late = self.transits.get(&transit).map_or(Closing::Abort, |state| state.late);
                self.circuits.break_transit(transit, late);
            }
        }
    }

    fn begin_transit(
        &mut self,
        transit: TransitId,
        ring: Ring,
        pumps: u8,
        resources: &mut impl Resources,
    ) -> Result<(Ring, u8), Plain> {
        let state = self.transits.get(&transit).copied().ok_or(Plain::System)?;
        self.check_allotted(state.onward, ring, state.len).map_err(Plain::Refused)?;
        let before = self.circuits.channel_of(transit, BEFORE).ok_or(Plain::System)?;
        resources.begin_transit(transit, before, ring, pumps)
    }

    /// Aborts a circuit in transit of which a side broke the protocol; [`crate::Output::Stop`] follows.
    pub fn break_transit(&mut self, transit: TransitId) {
        self.circuits.break_transit(transit, Closing::Abort);
    }
}
