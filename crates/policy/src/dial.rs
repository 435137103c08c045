//! Circuits over cables that programs of this host request: the request to a neighbour, and its outcome. Requests of
//! neighbours are in [`crate::answer`].
//!
//! ```text
//!   opener                                   answerer
//!   allocates a segment, Open --------------> is there a listener? allocates a segment, keeps a pending end
//!   takes the far segment  <----------- Opened
//!   Granted: the program has its stream      ... the program accepts the connection
//! ```
//! Hosts between forward both ([`crate::transit`]). Streams that move to another circuit: [`crate::resume`].

use crate::resources::{Purpose, Resources, Ring, Size};
use crate::{EndState, Output, Policy};
use crosslane_fabric::channel;
use crosslane_fabric::circuit::Path;
use crosslane_fabric::route::Spread;
use crosslane_wire::control::{Control, Refusal, Resumption};
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, Tuple};
use std::time::Duration;

/// How long a neighbour may take to answer `Open` for a program that waits in `connect`. On a busy machine the
/// neighbour's daemon may have to wait for a processor; the program gains nothing by continuing earlier, since the
/// connection's SYN takes the same path. But during this time its other threads cannot use the session.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_millis(500);
/// The same for a program that must not wait (`O_NONBLOCK`). A daemon that is running answers in 0.1 ms.
const PROMPT_ANSWER: Duration = Duration::from_millis(100);

/// A program's request for a circuit.
#[derive(Clone, Copy, Debug)]
pub struct Dial {
    /// Addresses and ports of the connection.
    pub tuple: Tuple,
    /// The host of the far end.
    pub host: HostId,
    /// Whether the program must not wait.
    pub hurried: bool,
}

/// What is known of a path that is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The host that it leads to.
    pub(crate) host: HostId,
    /// Ports at which it must not begin.
    pub(crate) tried: &'a [PortId],
    /// A port at which it should not begin, if another path is as short.
    pub(crate) apart_from: Option<PortId>,
}

/// A path that is about to be requested, with the memory of its first channel.
pub(crate) struct Attempt<T> {
    path: Path,
    route: Vec<HostId>,
    memory: T,
    ring: Ring,
}

impl Policy {
    /// Asks a neighbour for a circuit for a program; [`Output::Granted`], [`Output::Refused`] or [`Output::Unusable`] follows.
    ///
    /// # Errors
    /// There is no path, or no memory for the first channel.
    pub fn dial<R: Resources>(
        &mut self,
        Dial { tuple, host, hurried }: Dial,
        (payer, end): (R::Payer, R::End),
        now: Duration,
        resources: &mut R,
    ) -> Result<CircuitId, Plain> {
        let wanted = Wanted { host, tried: &[], apart_from: None };
        let (path, route) = self.path_to(wanted, now, resources).map_err(Plain::Refused)?;
        let deadline = now + if hurried { PROMPT_ANSWER } else { DIAL_TIMEOUT };
        let attempt = attempt((path, route), payer, (Purpose::New, Size::Ample), resources)?;
        let stream = resources.random().max(1);
        let (circuit, channel) = self.circuits.dial(tuple, stream, host, path, deadline);
        self.ends.insert(circuit, EndState { tried: vec![path.port], deadline, ..EndState::default() });
        resources.begin(circuit, end);
        self.ask_for((circuit, channel), attempt, None, resources);
        Ok(circuit)
    }

    /// As [`Self::dial`], for the second circuit of a striped stream, whose first one is `first`: over a path that begins at another
    /// port and is not longer, unless all paths are used.
    ///
    /// # Errors
    /// There is no such path, or no memory for its first channel; or `first` has, or is, a second circuit already.
    pub fn dial_twin<R: Resources>(
        &mut self,
        first: CircuitId,
        (payer, end): (R::Payer, R::End),
        now: Duration,
        resources: &mut R,
    ) -> Result<CircuitId, Plain> {
        let no_way = Plain::Refused(Refusal::NoRoute);
        let (host, hops) = self.circuits.get(first).map(|end| (end.far_host(), end.hops)).ok_or(no_way)?;
        let port = self.port_of(first).ok_or(no_way)?;
        let wanted = Wanted { host, tried: &[port], apart_from: None };
        let (path, route) = self.path_to(wanted, now, resources).map_err(Plain::Refused)?;
        if self.ways.spread == Spread::Shortest && path.hops > hops {
            return Err(no_way);
        }
        let attempt = attempt((path, route), payer, (Purpose::New, Size::Ample), resources)?;
        let (stream, deadline) = (resources.random().max(1), now + DIAL_TIMEOUT);
        let Some((circuit, channel)) = self.circuits.dial_twin(first, stream, path, deadline) else {
            attempt.forgo(resources);
            return Err(no_way);
        };
        // A circuit that is refused is not tried by another path: the stream goes by one then.
        self.ends.insert(circuit, EndState { tried: vec![path.port], ..EndState::default() });
        resources.begin(circuit, end);
        self.ask_for((circuit, channel), attempt, None, resources);
        Ok(circuit)
    }

    /// The port at which the other circuit of the striped stream begins that this is a circuit of.
    pub(crate) fn port_of_other(&self, circuit: CircuitId) -> Option<PortId> {
        self.port_of(self.circuits.other_of(circuit)?)
    }

    /// The path for a new circuit: of the shortest, or of all where they are used, one that does not begin where it should not; of
    /// those that whose first cable has the fewest busy ends, and of those the fewest circuits. A neighbour that has owed an
    /// answer for too long is not asked.
    pub(crate) fn path_to(
        &self,
        Wanted { host, tried, apart_from }: Wanted<'_>,
        now: Duration,
        resources: &mut impl Resources,
    ) -> Result<(Path, Vec<HostId>), Refusal> {
        let paths: Vec<_> = self.links.paths(host).filter(|(way, _)| !tried.contains(&way.port)).collect();
        let owed = paths.iter().any(|(way, _)| self.is_late(way.port, now));
        let usable = paths.into_iter().filter_map(|(way, route)| {
            let epoch = self.agreement(way.port).filter(|_| !self.is_late(way.port, now))?.epoch;
            Some((Path { port: way.port, epoch, hops: way.hops, pumps: 0 }, route))
        });
        let usable: Vec<_> = usable.collect();
        // Only where there is a choice are the ends looked at.
        let choice = usable.len() > 1;
        let mut cost = |path: &Path| {
            let first = if self.ways.spread == Spread::All { 0 } else { path.hops };
            let busy = if choice { resources.busy(path.port) } else { 0 };
            let together = apart_from == Some(path.port);
            (first, together, busy, self.circuits.load_of(path.port), path.hops, path.port)
        };
        let why = if owed { Refusal::Timeout } else { Refusal::NoRoute };
        usable.into_iter().min_by_key(|(path, _)| cost(path)).ok_or(why)
    }

    /// Sends `Open` for an end's new channel.
    pub(crate) fn ask_for<R: Resources>(
        &mut self,
        (circuit, channel): (CircuitId, ChannelId),
        attempt: Attempt<R::Attempt>,
        resume: Option<Resumption>,
        resources: &mut R,
    ) {
        let Attempt { path, route, memory, ring: Ring { segment, key } } = attempt;
        resources.keep_attempt(circuit, channel, resume.map_or(0, |resume| resume.generation), memory);
        self.ways.relies |= path.hops > 1;
        if let Some(state) = self.ends.get_mut(&circuit) {
            state.len = segment.len;
        }
        let Some(end) = self.circuits.get(circuit) else { return };
        let (tuple, stream, first) = (end.tuple, end.stream, end.twin_of.filter(|_| resume.is_none()));
        let twin_of = first.and_then(|first| self.circuits.get(first)).map_or(0, |first| first.stream);
        let (passed, pumps) = (0, 0);
        let open =
            Control::Open { channel, tuple, stream, segment, key, passed, pumps, route, resume, twin_of };
        self.send(path.port, open);
    }

    /// A requested circuit cannot be made: tries another path, if there is one and time for it.
    pub(crate) fn failed(
        &mut self,
        circuit: CircuitId,
        channel: ChannelId,
        why: Refusal,
        now: Duration,
        resources: &mut impl Resources,
    ) {
        if why == Refusal::Timeout {
            self.note_late(channel, now);
        }
        resources.forget_attempt(circuit);
        if self.circuits.get(circuit).is_some_and(|end| end.moving.is_some()) {
            return self.try_failed(circuit, why);
        }
        if matches!(why, Refusal::NoMemory | Refusal::NoRoute | Refusal::Quota)
            && self.try_another(circuit, now, resources).is_some()
        {
            return;
        }
        self.push(Output::Refused { circuit, why });
        self.circuits.give_up(circuit);
    }

    /// Another path, or if there is none the same paths with short rings, unless short rings were refused already.
    fn try_another(
        &mut self,
        circuit: CircuitId,
        now: Duration,
        resources: &mut impl Resources,
    ) -> Option<()> {
        let host = self.circuits.get(circuit)?.far_host();
        let state = self.ends.get(&circuit).filter(|state| state.deadline > now)?;
        let (tried, deadline, refused) = (state.tried.clone(), state.deadline, state.len);
        let wanted = Wanted { host, tried: &tried, apart_from: None };
        let found = self.path_to(wanted, now, resources);
        let wanted = Wanted { tried: &[], ..wanted };
        let found = found.or_else(|_| self.path_to(wanted, now, resources)).ok()?;
        let payer = resources.payer(circuit)?;
        let attempt = attempt(found, payer, (Purpose::New, Size::Short), resources).ok()?;
        if tried.contains(&attempt.path.port) && refused <= attempt.ring.segment.len {
            attempt.forgo(resources);
            return None;
        }
        self.circuits.rename(circuit, resources.random().max(1));
        let path = attempt.path;
        let Some((channel, _)) = self.circuits.redial(circuit, path, deadline) else {
            attempt.forgo(resources);
            return None;
        };
        self.ends.get_mut(&circuit)?.tried.push(path.port);
        self.ask_for((circuit, channel), attempt, None, resources);
        Some(())
    }

    /// The neighbour did not answer in time. The oldest answer that it owes counts.
    fn note_late(&mut self, channel: ChannelId, now: Duration) {
        if let Some(port) = self.circuits.channel(channel).map(|found| found.port)
            && !self.owes(port)
            && let Some(there) = self.ports.get_mut(&port)
        {
            there.late = Some((channel, now));
        }
    }

    /// Whether the neighbour has owed an answer for so long that its daemon is probably not running: no program waits for it.
    fn is_late(&self, port: PortId, now: Duration) -> bool {
        let late = self.ports.get(&port).and_then(|there| there.late);
        self.owes(port) && late.is_some_and(|(_, since)| now.saturating_sub(since) >= DIAL_TIMEOUT)
    }

    fn owes(&self, port: PortId) -> bool {
        let late = self.ports.get(&port).and_then(|there| there.late);
        let channel = late.and_then(|(channel, _)| self.circuits.channel(channel));
        channel.is_some_and(|found| matches!(found.state, channel::State::Abandoned(_)))
    }

    /// A neighbour made the circuit that a program requested.
    pub(crate) fn opened(&mut self, circuit: CircuitId, ring: Ring, resources: &mut impl Resources) {
        match self.complete(circuit, ring, (0, 0), resources) {
            Ok(()) => self.push(Output::Granted { circuit }),
            // The cable went down after the answer had come: handled as if it had gone down before.
            Err(Plain::Refused(Refusal::NoRoute)) => self.circuits.unopen(circuit),
            Err(why) => self.push(Output::Unusable { circuit, why }),
        }
    }

    /// Completes the segments of the requested circuit with the neighbour's answer. `arrived`: stream offsets that had
    /// arrived here before, and at the far end.
    pub(crate) fn complete(
        &mut self,
        circuit: CircuitId,
        ring: Ring,
        arrived: (u64, u64),
        resources: &mut impl Resources,
    ) -> Result<(), Plain> {
        let port = self.port_of(circuit).ok_or(Plain::System)?;
        let len = self.ends.get(&circuit).ok_or(Plain::System)?.len;
        self.check_allotted(port, ring, len).map_err(Plain::Refused)?;
        let end = self.circuits.get(circuit).ok_or(Plain::System)?;
        resources.complete((circuit, end), port, ring, arrived)
    }

    /// The port at which the end's circuit begins.
    pub fn port_of(&self, circuit: CircuitId) -> Option<PortId> {
        self.circuits.port_of(circuit)
    }

    /// Checks the segment that a neighbour allocated for a circuit that this host asked for.
    pub(crate) fn check_allotted(&mut self, port: PortId, ring: Ring, len: u64) -> Result<(), Refusal> {
        let window = self.agreement(port).ok_or(Refusal::NoRoute)?.peer_window;
        if ring.segment.len != len || !ring.segment.fits(window) {
            self.contradiction(port, "neighbour allotted a segment that cannot be".to_owned());
            return Err(Refusal::Protocol);
        }
        Ok(())
    }
}

impl<T> Attempt<T> {
    /// The path of the attempt.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Gives the attempt up.
    pub(crate) fn forgo<R: Resources<Attempt = T>>(self, resources: &mut R) {
        resources.drop_attempt(self.path.port, self.memory);
    }
}

/// Allocates memory for the first channel of a path.
pub(crate) fn attempt<R: Resources>(
    (path, route): (Path, Vec<HostId>),
    payer: R::Payer,
    (purpose, size): (Purpose, Size),
    resources: &mut R,
) -> Result<Attempt<R::Attempt>, Plain> {
    let (memory, ring) = resources.attempt(payer, path, purpose, size)?;
    Ok(Attempt { path, route, memory, ring })
}
