//! The circuits of this host: ends that programs of this host hold, and circuits that only pass through.
//!
//! ```text
//!            dial                       handle_open
//!             |                              |
//!             v  Opened                      v  accept
//!         [Opening] -------> [Open] <---- [Pending]
//!   Failed    |                | \            |
//!   (redial,  |                |  +-----------+--- far end aborts: Died
//!   give_up)  |                |  close       |
//!             v                v              v
//!          (gone)          [Closing] ---- channel gone ----> (gone): Free
//! ```
//! A circuit leads through a channel ([`crate::channel`]) for each cable. When the channel of an end that has not died
//! is lost, the end *moves*: [`crate::moving`]. How ends end: [`crate::ending`]. Circuits in transit are pairs of
//! channels: [`crate::transit`].

use crate::channel::{self, Contradiction};
use crate::claim::Claim;
use crate::end::Moving;
pub use crate::end::{Death, End, Far, Role, Scope, State};
pub use crate::output::Output;
pub use crate::table::{Circuits, Limits, Owner, Path};
use crosslane_wire::control::{Closing, Control, GENERATION_MAX, Refusal};
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, Tuple};
use std::collections::hash_map::Entry;
use std::time::Duration;

impl Circuits {
    /// Makes an end of a circuit to another host. The caller sends `Open` with the returned channel. If no answer comes
    /// until `deadline`, [`Output::Failed`] follows.
    pub fn dial(
        &mut self,
        tuple: Tuple,
        stream: u64,
        host: HostId,
        path: Path,
        deadline: Duration,
    ) -> (CircuitId, ChannelId) {
        let far = Far::Host { host, channel: None };
        let circuit = self.insert((tuple, Role::Client, Scope(0)), far, stream, (State::Opening, None));
        (circuit, self.lead(circuit, path, deadline))
    }

    /// As [`Self::dial`], for the second circuit of the stream whose first end is `first`; `None` if that is no end that connects,
    /// or has a second circuit already.
    pub fn dial_twin(
        &mut self,
        first: CircuitId,
        stream: u64,
        path: Path,
        deadline: Duration,
    ) -> Option<(CircuitId, ChannelId)> {
        let end = self.ends.get(&first).filter(|end| end.role == Role::Client && end.state == State::Open)?;
        if end.twin_of.is_some() || self.twins.contains_key(&first) || end.death.is_some() {
            return None;
        }
        let (key, far) =
            ((end.tuple, end.role, end.scope), Far::Host { host: end.far_host(), channel: None });
        let circuit = self.insert(key, far, stream, (State::Opening, Some(first)));
        Some((circuit, self.lead(circuit, path, deadline)))
    }

    /// Tries another path for an end that is opening or moving; `None` if it is neither.
    pub fn redial(&mut self, circuit: CircuitId, path: Path, deadline: Duration) -> Option<(ChannelId, u32)> {
        let end = self.ends.get_mut(&circuit)?;
        if end.channel().is_some() || (end.state != State::Opening && end.moving.is_none()) {
            return None;
        }
        if let Some(moving) = end.moving {
            end.generation = Some(end.generation + 1).filter(|next| *next <= GENERATION_MAX)?;
            self.search(circuit, Some(Moving { retry: None, ..moving }));
        }
        let channel = self.lead(circuit, path, deadline);
        Some((channel, self.ends.get(&circuit)?.generation))
    }

    /// Gives the stream of an end that is opening another secret: its first `Open` may have reached the far side, which
    /// would refuse the old secret as in use.
    pub fn rename(&mut self, circuit: CircuitId, stream: u64) {
        if let Some(end) = self.ends.get_mut(&circuit).filter(|end| end.state == State::Opening) {
            end.stream = stream;
        }
    }

    /// Makes no further try for an end that is opening.
    pub fn give_up(&mut self, circuit: CircuitId) {
        if self.ends.get(&circuit).is_some_and(|end| end.state == State::Opening) {
            self.remove(circuit);
        }
    }

    /// Makes both ends of a connection inside this host: the client's is open, the server's is pending. The caller checks
    /// how many a program may have.
    pub fn local(&mut self, tuple: Tuple, scope: Scope) -> (CircuitId, CircuitId) {
        let client = CircuitId(self.last + 1);
        let server = CircuitId(self.last + 2);
        self.insert((tuple, Role::Client, scope), Far::Here(server), 0, (State::Open, None));
        self.insert((tuple, Role::Server, scope), Far::Here(client), 0, (State::Pending, None));
        (client, server)
    }

    /// As [`Self::local`], for the second circuit of the stream whose client's end is `first`; `None` if that is no such end, a program
    /// has accepted the stream, or there is one already.
    pub fn local_twin(&mut self, first: CircuitId) -> Option<(CircuitId, CircuitId)> {
        let end = self.ends.get(&first).filter(|end| end.role == Role::Client && end.twin_of.is_none())?;
        let (tuple, scope, Far::Here(far)) = (end.tuple, end.scope, end.far) else { return None };
        self.ends.get(&far).filter(|far| far.state == State::Pending)?;
        if self.twins.contains_key(&first) {
            return None;
        }
        let (client, server) = (CircuitId(self.last + 1), CircuitId(self.last + 2));
        self.insert((tuple, Role::Client, scope), Far::Here(server), 0, (State::Open, Some(first)));
        self.insert((tuple, Role::Server, scope), Far::Here(client), 0, (State::Pending, Some(far)));
        Some((client, server))
    }

    /// Another host asks for a circuit to a program here, by the channel whose id at the neighbour is `peer`. On success
    /// the caller calls [`Self::answer`], else it refuses. `twin_of`: the secret of the stream of which this is the second circuit,
    /// or 0.
    pub fn handle_open(
        &mut self,
        tuple: Tuple,
        (stream, twin_of): (u64, u64),
        host: HostId,
        path: Path,
        peer: ChannelId,
    ) -> Result<(CircuitId, ChannelId), Refusal> {
        self.admit(host)?;
        if self.is_in_use(stream) {
            return Err(Refusal::Protocol);
        }
        let first = if twin_of == 0 { None } else { Some(self.first_of(&tuple, twin_of, host)?) };
        let channel = self.channels.handle_open(path.port, path.epoch, peer);
        let far = Far::Host { host, channel: Some(channel) };
        let key = (tuple, Role::Server, Scope(0));
        let circuit = self.insert(key, far, stream, (State::Pending, first));
        if let Some(end) = self.ends.get_mut(&circuit) {
            (end.hops, end.pumps) = (path.hops, path.pumps);
        }
        self.owners.insert(channel, Owner::End(circuit));
        Ok((circuit, channel))
    }

    /// Answers for the requested channel: with this host's segment, and the stream offset that has arrived here.
    pub fn answer(&mut self, channel: ChannelId, segment: SegmentRange, key: u64, arrived: u64) {
        self.channels.answer(channel, (segment, key), arrived, 0);
    }

    /// Handles a message of the neighbour at `port` about a channel; other messages are not for this module.
    pub fn handle_message(&mut self, port: PortId, message: Control) -> Result<(), Contradiction> {
        match message {
            Control::Opened { channel, peer, segment, key, arrived, pumps } => {
                let event = channel::Event::Opened { segment, key, arrived, pumps };
                self.channels.handle_opened(port, channel, peer, event)
            }
            Control::Refused { channel, why } => self.channels.handle_refused(port, channel, why),
            Control::Closed { channel, how } => self.channels.handle_closed(port, channel, how),
            Control::Arrived { channel, units } => self.handle_arrived(port, channel, units),
            Control::Prove { channel } => self.handle_claim(port, channel, Claim::Asked),
            Control::Proven { channel, is_so } => self.handle_claim(port, channel, Claim::Answered(is_so)),
            _ => Ok(()),
        }
    }

    /// A program accepted the connection: opens its end; `false` if it was not pending.
    pub fn accept(&mut self, circuit: CircuitId) -> bool {
        let Some(end) = self.ends.get_mut(&circuit).filter(|end| end.state == State::Pending) else {
            return false;
        };
        end.state = State::Open;
        self.admitted_leaves(circuit);
        true
    }

    /// The cable at `port`, with `neighbour` at its other end, is down: all channels on it are lost.
    pub fn handle_link_down(&mut self, port: PortId, neighbour: HostId, death: Death) {
        self.drain_events();
        self.channels.handle_link_down(port);
        while let Some((channel, event)) = self.channels.poll_event() {
            match (event, self.owners.get(&channel)) {
                (channel::Event::Lost, Some(&Owner::End(circuit))) => {
                    let direct = self.ends.get(&circuit).is_some_and(|end| end.far_host() == neighbour);
                    self.lose(circuit, if direct { death } else { Death::Cable });
                }
                _ => self.handle_event(channel, event),
            }
        }
    }

    /// Sets the time, and does what is due.
    pub fn handle_time(&mut self, now: Duration) {
        self.now = now;
        self.channels.handle_time(now);
        self.look_at_moving();
    }

    /// The next action; the caller executes them in this order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.drain_events();
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let (port, message) = self.channels.poll_message()?;
        Some(Output::Send { port, message })
    }

    /// When [`Self::handle_time`] must be called next.
    pub fn poll_deadline(&self) -> Option<Duration> {
        let look = self.looks.first().map(|(at, _)| *at);
        [self.channels.poll_deadline(), look].into_iter().flatten().min()
    }

    fn drain_events(&mut self) {
        while let Some((channel, event)) = self.channels.poll_event() {
            self.handle_event(channel, event);
        }
    }

    fn handle_event(&mut self, channel: ChannelId, event: channel::Event) {
        let owner = if let channel::Event::Freed(gone) = event {
            self.outputs.push_back(Output::Freed { channel, port: gone.port, epoch: gone.epoch });
            self.owners.remove(&channel)
        } else {
            self.owners.get(&channel).copied()
        };
        match owner {
            Some(Owner::End(circuit)) => self.end_event(circuit, channel, event),
            Some(Owner::Transit(transit, side)) => self.transit_event(transit, side, event),
            None => {}
        }
    }

    fn end_event(&mut self, circuit: CircuitId, channel: ChannelId, event: channel::Event) {
        let Some(end) = self.ends.get_mut(&circuit).filter(|end| end.channel() == Some(channel)) else {
            return;
        };
        match event {
            channel::Event::Opened { segment, key, arrived, pumps } => {
                end.pumps = pumps;
                if end.moving.is_some() {
                    self.search(circuit, None);
                    self.outputs.push_back(Output::Resumed { circuit, segment, key, arrived });
                } else {
                    end.state = State::Open;
                    self.outputs.push_back(Output::Opened { circuit, segment, key });
                }
            }
            channel::Event::Failed(why) => {
                end.take_channel();
                self.outputs.push_back(Output::Failed { circuit, channel, why });
            }
            channel::Event::FarClosed(Closing::Lost) => self.lose(circuit, Death::Cable),
            channel::Event::FarClosed(how) => self.far_close(circuit, how == Closing::Abort),
            channel::Event::Lost => self.lose(circuit, Death::Cable),
            channel::Event::Freed(_) => self.channel_gone(circuit),
        }
    }

    /// The end of the first circuit of a stream to which a second one is asked for: it has this secret, and no program has it yet.
    fn first_of(&self, tuple: &Tuple, stream: u64, host: HostId) -> Result<CircuitId, Refusal> {
        let first = self.by_stream.get(&stream).copied().ok_or(Refusal::Unknown)?;
        let end = self.ends.get(&first).ok_or(Refusal::Unknown)?;
        let is_waiting = end.state == State::Pending && end.death.is_none() && !end.far_closed;
        if !is_waiting || end.tuple != *tuple || end.far_host() != host {
            return Err(Refusal::Unknown);
        }
        if end.twin_of.is_some() || self.twins.contains_key(&first) {
            return Err(Refusal::Protocol);
        }
        Ok(first)
    }

    /// An end, of the second circuit of a stream if `twin_of` names the first one's: that is not found by its addresses.
    fn insert(
        &mut self,
        key: (Tuple, Role, Scope),
        far: Far,
        stream: u64,
        (state, twin_of): (State, Option<CircuitId>),
    ) -> CircuitId {
        self.last += 1;
        let circuit = CircuitId(self.last);
        match twin_of {
            None => self.by_tuple.entry(key).or_default().push(circuit),
            Some(first) => {
                self.twins.insert(first, circuit);
            }
        }
        let (tuple, role, scope) = key;
        let end = End {
            tuple,
            scope,
            role,
            far,
            stream,
            hops: 0,
            pumps: 0,
            state,
            far_closed: false,
            death: None,
            generation: 0,
            moving: None,
            twin_of,
        };
        if state == State::Pending {
            *self.pending.entry(end.far_host()).or_default() += 1;
        }
        if role == Role::Server && stream != 0 {
            self.by_stream.insert(stream, circuit);
        }
        self.ends.insert(circuit, end);
        circuit
    }

    /// Makes a channel for an end, for which the caller then asks the neighbour.
    fn lead(&mut self, circuit: CircuitId, path: Path, deadline: Duration) -> ChannelId {
        let moving = self.ends.get(&circuit).is_some_and(|end| end.moving.is_some());
        let late = if moving { Closing::Lost } else { Closing::Abort };
        let channel = self.channels.dial(path.port, path.epoch, deadline, late);
        self.owners.insert(channel, Owner::End(circuit));
        if let Some(end) = self.ends.get_mut(&circuit) {
            end.set_channel(channel);
            (end.hops, end.pumps) = (path.hops, path.pumps);
        }
        channel
    }

    /// Whether an end here has the stream. A host between that was stopped may deliver an `Open` long after the opener
    /// got the stream over another path: it must not replace the end that is in use.
    fn is_in_use(&self, stream: u64) -> bool {
        let known = self.by_stream.get(&stream).and_then(|known| self.ends.get(known));
        known.is_some_and(|end| !matches!(end.state, State::Closing(_)))
    }

    fn admit(&self, host: HostId) -> Result<(), Refusal> {
        let waiting = self.pending.get(&host).copied().unwrap_or(0);
        if waiting >= self.limits.pending { Err(Refusal::NoMemory) } else { Ok(()) }
    }

    /// The end is no longer pending.
    pub(crate) fn admitted_leaves(&mut self, circuit: CircuitId) {
        let Some(host) = self.ends.get(&circuit).map(End::far_host) else { return };
        if let Entry::Occupied(mut count) = self.pending.entry(host) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
