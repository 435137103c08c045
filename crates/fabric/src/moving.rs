//! Streams that outlive their circuits: an end whose channel is lost looks for another one. Decision 11.
//!
//! ```text
//!   lost --> Moving, Seek --> redial --> Opened: Resumed
//!               |   ^            |
//!               |   +- a pause --+ refused, no path
//!               v
//!            `patience` has passed: Died
//! ```
//! Only the connecting side seeks; the accepting side waits for its `Open`, which contains the stream's secret.

use crate::channel::{self, Contradiction};
use crate::circuit::{Circuits, Output, Owner, Path};
use crate::end::{Death, End, Moving, Role, State};
use crate::links::Links;
use crate::route::Spread;
use crate::transit::{BEFORE, BEHIND};
use crosslane_wire::control::{Closing, GENERATION_MAX, Refusal, Resumption};
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, Tuple};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause between two tries.
const RETRY: Duration = Duration::from_millis(10);

impl Circuits {
    /// There is no path for an end that moves now: [`Output::Seek`] follows again after a pause.
    pub fn no_way(&mut self, circuit: CircuitId) {
        let retry = Some(self.now + RETRY);
        if let Some(moving) = self.ends.get(&circuit).and_then(|end| end.moving) {
            self.search(circuit, Some(Moving { retry, ..moving }));
        }
    }

    /// Moves up to `most` streams to paths that are shorter than theirs, although their circuits still work; returns
    /// whether there were that many. Only the connecting side of a stream does this, and only where streams can move. Where longer
    /// paths are used, too (`spread`), a stream moves if fewer circuits lead through the shortest path's cable than through its own. The
    /// second circuit of a striped stream also moves away from the cable of the first, if another path is as short.
    pub fn shorten(&mut self, links: &Links, spread: Spread, most: usize) -> bool {
        if self.limits.patience.is_zero() {
            return false;
        }
        let mut load: BTreeMap<PortId, usize> = BTreeMap::new();
        let mut is_worse = |circuit: CircuitId, end: &End, port: PortId| {
            if self.shares_needlessly(circuit, port, links, spread) {
                return true;
            }
            let Some(best) = links.next_hop(end.far_host()).filter(|best| best.hops < end.hops) else {
                return false;
            };
            let mut load_of = |port| *load.entry(port).or_insert_with(|| self.channels.count_on(port));
            let (there, here) = (load_of(best.port), load_of(port));
            let moves = spread == Spread::Shortest || there < here;
            if moves {
                load.insert(best.port, there + 1);
                load.insert(port, here.saturating_sub(1));
            }
            moves
        };
        let longer: Vec<CircuitId> = self
            .ends
            .iter()
            .filter(|(_, end)| end.role == Role::Client && end.state == State::Open && end.moving.is_none())
            .filter(|(circuit, end)| {
                self.port_of(**circuit).is_some_and(|port| is_worse(**circuit, end, port))
            })
            .map(|(circuit, _)| *circuit)
            .take(most)
            .collect();
        for circuit in &longer {
            self.lose(*circuit, Death::Cable);
        }
        longer.len() == most
    }

    /// Whether this is the second circuit of a striped stream, the first one begins at the same port, and there is a path that begins
    /// at another and is not longer.
    fn shares_needlessly(&self, circuit: CircuitId, port: PortId, links: &Links, spread: Spread) -> bool {
        let Some(end) = self.ends.get(&circuit) else { return false };
        let shares = end.twin_of.is_some_and(|first| self.port_of(first) == Some(port));
        let may_take = |hops| spread == Spread::All || hops <= end.hops;
        shares && links.ways(end.far_host()).iter().any(|way| way.port != port && may_take(way.hops))
    }

    /// The port at which the end's circuit begins.
    pub fn port_of(&self, circuit: CircuitId) -> Option<PortId> {
        let channel = self.ends.get(&circuit)?.channel()?;
        Some(self.channels.get(channel)?.port)
    }

    /// Whether traffic other than streams with `neighbour` itself passes through the cable at `port`.
    pub fn is_passed_through(&self, port: PortId, neighbour: HostId) -> bool {
        self.passing(port, neighbour).next().is_some()
    }

    /// The neighbour at `port` does not forward any more, although the cable is up: circuits through it are lost. Streams
    /// with the neighbour itself need no daemon, and go on.
    pub fn handle_silence(&mut self, port: PortId, neighbour: HostId) {
        for owner in self.passing(port, neighbour).collect::<Vec<_>>() {
            match owner {
                Owner::End(circuit) => self.lose(circuit, Death::Cable),
                Owner::Transit(transit, _) => self.break_transit(transit, Closing::Lost),
            }
        }
    }

    fn passing(&self, port: PortId, neighbour: HostId) -> impl Iterator<Item = Owner> {
        let on_port = self
            .owners
            .iter()
            .filter(move |(channel, _)| self.channels.get(**channel).is_some_and(|found| found.port == port));
        let passes = move |(channel, owner): &(&ChannelId, &Owner)| match owner {
            Owner::End(circuit) => self
                .ends
                .get(circuit)
                .is_some_and(|end| end.channel() == Some(**channel) && end.far_host() != neighbour),
            Owner::Transit(..) => true,
        };
        on_port.filter(passes).map(|(_, owner)| *owner)
    }

    /// The far side's daemon seeks another circuit for a stream. On success the caller calls [`Circuits::answer`].
    pub fn handle_resume(
        &mut self,
        tuple: &Tuple,
        stream: u64,
        resume: Resumption,
        path: Path,
        peer: ChannelId,
    ) -> Result<(CircuitId, ChannelId), Refusal> {
        let circuit = self.by_stream.get(&stream).copied().ok_or(Refusal::Unknown)?;
        let end = self.ends.get_mut(&circuit).ok_or(Refusal::Unknown)?;
        if end.tuple != *tuple || end.death.is_some() || end.far_closed {
            return Err(Refusal::Unknown);
        }
        if resume.generation <= end.generation || resume.generation > GENERATION_MAX {
            return Err(Refusal::Protocol);
        }
        let old = end.take_channel();
        let channel = self.channels.handle_open(path.port, path.epoch, peer);
        end.set_channel(channel);
        (end.generation, end.hops, end.pumps) = (resume.generation, path.hops, path.pumps);
        // Until the connecting side has reported how much has arrived there.
        self.begin_search(circuit);
        self.leave_channel(old, Closing::Lost);
        self.owners.insert(channel, Owner::End(circuit));
        Ok((circuit, channel))
    }

    /// Tells the far side the stream offset that has arrived here.
    pub fn tell_arrived(&mut self, circuit: CircuitId, units: u64) {
        if let Some(channel) = self.ends.get(&circuit).and_then(End::channel) {
            self.channels.tell_arrived(channel, units);
        }
    }

    /// The neighbour reports the stream offset that has arrived at the side that sought another circuit.
    pub(crate) fn handle_arrived(
        &mut self,
        port: PortId,
        channel: ChannelId,
        units: u64,
    ) -> Result<(), Contradiction> {
        if self.channels.on_port(port, channel)?.state == channel::State::Closing {
            // The message crossed this host's `Closed`.
            return Ok(());
        }
        match self.owners.get(&channel).copied() {
            Some(Owner::End(circuit)) => {
                let end = self.ends.get(&circuit).filter(|end| end.role == Role::Server);
                end.and_then(|end| end.moving).ok_or(Contradiction(channel))?;
                self.search(circuit, None);
                self.outputs.push_back(Output::Arrived { circuit, units });
            }
            Some(Owner::Transit(transit, BEFORE)) => {
                if let Some(behind) = self.channel_of(transit, BEHIND) {
                    self.channels.tell_arrived(behind, units);
                }
            }
            _ => return Err(Contradiction(channel)),
        }
        Ok(())
    }

    /// The circuit of a [`Self::handle_resume`] is not possible: the end waits for another try.
    pub fn unresume(&mut self, circuit: CircuitId) {
        self.begin_search(circuit);
        if let Some(channel) = self.ends.get_mut(&circuit).and_then(End::take_channel) {
            self.owners.remove(&channel);
            self.channels.cancel(channel);
        }
    }

    /// The host's daemon was restarted: it does not know its streams any more.
    pub fn handle_new_life(&mut self, host: HostId) {
        let moving = |(circuit, end): (&CircuitId, &End)| {
            (end.moving.is_some() && end.far_host() == host).then_some(*circuit)
        };
        let orphans: Vec<CircuitId> = self.ends.iter().filter_map(moving).collect();
        for circuit in orphans {
            self.kill(circuit, Death::Cable);
        }
    }

    /// The end's circuit is lost for this reason.
    pub fn lose(&mut self, circuit: CircuitId, death: Death) {
        let impatient = self.limits.patience.is_zero();
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        if impatient || death != Death::Cable || end.death.is_some() || end.state == State::Opening {
            return self.kill(circuit, death);
        }
        let (role, state, far_closed) = (end.role, end.state, end.far_closed);
        let channel = end.take_channel();
        self.leave_channel(channel, Closing::Lost);
        if far_closed {
            // All that the far side sent is here, and no far program is left to read what this end sends.
            if matches!(state, State::Closing(_)) {
                self.remove(circuit);
            }
            return;
        }
        self.begin_search(circuit);
        self.outputs.push_back(Output::Moving { circuit });
        if role == Role::Client {
            self.outputs.push_back(Output::Seek { circuit });
        }
    }

    fn begin_search(&mut self, circuit: CircuitId) {
        let until = self.now + self.limits.patience;
        self.search(circuit, Some(Moving { until, retry: None }));
    }

    /// Sets the end's search for another circuit, or ends it.
    pub(crate) fn search(&mut self, circuit: CircuitId, moving: Option<Moving>) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        let before = std::mem::replace(&mut end.moving, moving);
        for at in before.into_iter().flat_map(Moving::looks) {
            self.looks.remove(&(at, circuit));
        }
        self.looks.extend(moving.into_iter().flat_map(Moving::looks).map(|at| (at, circuit)));
    }

    /// A try of an end that moves failed: another follows, unless the far side does not know the stream.
    pub fn try_failed(&mut self, circuit: CircuitId, why: Refusal) {
        if why == Refusal::Unknown { self.kill(circuit, Death::Abort) } else { self.no_way(circuit) }
    }

    /// Ends the search of ends whose patience has passed, and lets others try again.
    pub(crate) fn look_at_moving(&mut self) {
        while let Some(&(at, circuit)) = self.looks.first().filter(|(at, _)| *at <= self.now) {
            self.looks.remove(&(at, circuit));
            let Some(moving) = self.ends.get(&circuit).and_then(|end| end.moving) else { continue };
            if moving.until <= self.now {
                self.kill(circuit, Death::Cable);
            } else {
                self.search(circuit, Some(Moving { retry: None, ..moving }));
                self.outputs.push_back(Output::Seek { circuit });
            }
        }
    }
}
