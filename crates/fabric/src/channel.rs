//! This host's ends of channels: how two neighbours agree that one begins, and that its memory is nobody's any more.
//!
//! ```text
//!            dial                     handle_open
//!             |                            |
//!             v  Opened       answer       v  refuse
//!         [Opening] -----> [Open] <---- [Asked] -----> (gone)
//!   Refused  |  | deadline,    |
//!   link down|  | close        | close: Closed is sent
//!            |  v              v
//!            | [Abandoned] --> [Closing] -- Closed of the far side --> (gone)
//!            v      late Opened            link down, from every state --> (gone)
//!          (gone)
//! ```
//! Each side sends `Closed` once, and a channel goes when both have: only then nobody can write into its segments.
//! What a channel belongs to, an end of a circuit or a circuit in transit, is not known here.

use crosslane_wire::control::{Closing, Control, Refusal};
use crosslane_wire::{ChannelId, Epoch, PortId, SegmentRange};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The neighbour asked; our answer is due.
    Asked,
    /// We asked; the neighbour has until this time to answer.
    Opening(Duration),
    /// The answer is awaited only to give back what the neighbour holds, in this way.
    Abandoned(Closing),
    /// In use.
    Open,
    /// Closed here; the far side is not yet.
    Closing,
}

/// This host's end of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Our port.
    pub port: PortId,
    /// The cable's epoch when the channel was made.
    pub epoch: Epoch,
    /// The neighbour's name for it, as soon as it is known.
    pub peer: Option<ChannelId>,
    /// State.
    pub state: State,
    /// How it is closed if the neighbour's answer comes too late.
    late: Closing,
    far_closed: bool,
}

/// What happened to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The neighbour made it.
    Opened {
        /// Where we may write.
        segment: SegmentRange,
        /// Mark key of the ring there.
        key: u64,
        /// Units of the stream that have arrived at the far end.
        arrived: u64,
        /// Hosts that pump between here and the far end.
        pumps: u8,
    },
    /// It will not be.
    Failed(Refusal),
    /// The neighbour closed its end.
    FarClosed(Closing),
    /// Its cable is down, or the neighbour's next one; it may be that the far end has not heard that it was closed.
    Lost,
    /// It is gone; nobody writes into its memory any more.
    Freed(Channel),
}

/// What a neighbour said about a channel that contradicts what was before.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
#[error("neighbour speaks of channel {0}, which is not in a state for that")]
pub struct Contradiction(pub ChannelId);

/// All channels of this host.
#[derive(Debug, Default)]
pub struct Channels {
    all: BTreeMap<ChannelId, Channel>,
    events: VecDeque<(ChannelId, Event)>,
    messages: VecDeque<(PortId, Control)>,
    deadlines: BTreeSet<(Duration, ChannelId)>,
    last: u64,
}

impl Channels {
    /// A channel by its id.
    pub fn get(&self, channel: ChannelId) -> Option<&Channel> {
        self.all.get(&channel)
    }

    /// A channel that a neighbour may speak of: on the port that it speaks by.
    pub fn on_port(&self, port: PortId, channel: ChannelId) -> Result<&Channel, Contradiction> {
        self.all.get(&channel).filter(|found| found.port == port).ok_or(Contradiction(channel))
    }

    /// A channel that the neighbour at `port` is about to be asked for. The caller sends `Open`. No answer until
    /// `deadline` means [`Event::Failed`]; one that comes `late` is closed in this way.
    pub fn dial(&mut self, port: PortId, epoch: Epoch, deadline: Duration, late: Closing) -> ChannelId {
        let channel = self.insert(port, epoch, None, State::Opening(deadline));
        if let Some(made) = self.all.get_mut(&channel) {
            made.late = late;
        }
        self.deadlines.insert((deadline, channel));
        channel
    }

    /// The neighbour at `port` asks for a channel, which it calls `peer`: [`Self::answer`] or [`Self::refuse`] follows.
    pub fn handle_open(&mut self, port: PortId, epoch: Epoch, peer: ChannelId) -> ChannelId {
        self.insert(port, epoch, Some(peer), State::Asked)
    }

    /// The channel is there for the neighbour that asked: our memory for it, and how many hosts pump from here to the far end.
    pub fn answer(
        &mut self,
        channel: ChannelId,
        (segment, key): (SegmentRange, u64),
        arrived: u64,
        pumps: u8,
    ) {
        if let Some(asked) = self.all.get_mut(&channel).filter(|found| found.state == State::Asked)
            && let Some(peer) = asked.peer
        {
            asked.state = State::Open;
            let message = Control::Opened { channel: peer, peer: channel, segment, key, arrived, pumps };
            self.messages.push_back((asked.port, message));
        }
    }

    /// The neighbour does not get the channel that it asked for.
    pub fn refuse(&mut self, channel: ChannelId, why: Refusal) {
        let asked = self.all.get(&channel).filter(|found| found.state == State::Asked);
        if let Some((port, Some(peer))) = asked.map(|asked| (asked.port, asked.peer)) {
            self.messages.push_back((port, Control::Refused { channel: peer, why }));
            self.remove(channel);
        }
    }

    /// The neighbour made the channel that it was asked for.
    pub fn handle_opened(
        &mut self,
        port: PortId,
        channel: ChannelId,
        peer: ChannelId,
        event: Event,
    ) -> Result<(), Contradiction> {
        let found = self.on_port_mut(port, channel)?;
        match found.state {
            State::Opening(until) => {
                (found.peer, found.state) = (Some(peer), State::Open);
                self.deadlines.remove(&(until, channel));
                self.events.push_back((channel, event));
            }
            State::Abandoned(how) => {
                (found.peer, found.state) = (Some(peer), State::Open);
                self.close(channel, how);
            }
            _ => return Err(Contradiction(channel)),
        }
        Ok(())
    }

    /// The neighbour will not make the channel that it was asked for.
    pub fn handle_refused(
        &mut self,
        port: PortId,
        channel: ChannelId,
        why: Refusal,
    ) -> Result<(), Contradiction> {
        match self.on_port(port, channel)?.state {
            State::Opening(_) => self.events.push_back((channel, Event::Failed(why))),
            State::Abandoned(_) => {}
            _ => return Err(Contradiction(channel)),
        }
        self.remove(channel);
        Ok(())
    }

    /// The neighbour closed its end.
    pub fn handle_closed(
        &mut self,
        port: PortId,
        channel: ChannelId,
        how: Closing,
    ) -> Result<(), Contradiction> {
        let found = self.on_port_mut(port, channel)?;
        match found.state {
            State::Open if !found.far_closed => {
                found.far_closed = true;
                self.events.push_back((channel, Event::FarClosed(how)));
            }
            State::Closing if !found.far_closed => {
                if how == Closing::Lost {
                    self.events.push_back((channel, Event::Lost));
                }
                self.remove(channel);
            }
            _ => return Err(Contradiction(channel)),
        }
        Ok(())
    }

    /// Tells the neighbour something of a channel in use, which bears the neighbour's name for it; `false` if it is not in
    /// use.
    pub fn tell(&mut self, channel: ChannelId, message: impl FnOnce(ChannelId) -> Control) -> bool {
        let found = self.all.get(&channel).filter(|found| found.state == State::Open);
        let Some((port, peer)) = found.and_then(|found| Some((found.port, found.peer?))) else {
            return false;
        };
        self.messages.push_back((port, message(peer)));
        true
    }

    /// Tells the neighbour how much of a stream has arrived.
    pub fn tell_arrived(&mut self, channel: ChannelId, units: u64) {
        self.tell(channel, |peer| Control::Arrived { channel: peer, units });
    }

    /// Our end is closed; the neighbour is told. One that was only asked for is abandoned.
    pub fn close(&mut self, channel: ChannelId, how: Closing) {
        let Some(found) = self.all.get_mut(&channel) else { return };
        match (found.state, found.peer) {
            (State::Opening(until), _) => {
                found.state = State::Abandoned(how);
                self.deadlines.remove(&(until, channel));
            }
            (State::Asked, _) => self.refuse(channel, Refusal::NoRoute),
            (State::Open, Some(peer)) => {
                found.state = State::Closing;
                let (port, over) = (found.port, found.far_closed);
                self.messages.push_back((port, Control::Closed { channel: peer, how }));
                if over {
                    self.remove(channel);
                }
            }
            _ => {}
        }
    }

    /// Takes back a [`Self::handle_open`] that the caller refuses itself.
    pub fn cancel(&mut self, channel: ChannelId) {
        if self.all.get(&channel).is_some_and(|found| found.state == State::Asked) {
            self.remove(channel);
        }
    }

    /// The cable at `port` is down: its channels are gone.
    pub fn handle_link_down(&mut self, port: PortId) {
        let lost: Vec<ChannelId> =
            self.all.iter().filter(|(_, found)| found.port == port).map(|(channel, _)| *channel).collect();
        for channel in lost {
            match self.all.get(&channel).map(|found| found.state) {
                Some(State::Opening(_)) => {
                    self.events.push_back((channel, Event::Failed(Refusal::NoRoute)));
                }
                Some(State::Open | State::Asked | State::Closing) => {
                    self.events.push_back((channel, Event::Lost));
                }
                _ => {}
            }
            self.remove(channel);
        }
    }

    /// Channels whose time is over.
    pub fn handle_time(&mut self, now: Duration) {
        while let Some(&(until, channel)) = self.deadlines.first().filter(|(until, _)| *until <= now) {
            self.deadlines.remove(&(until, channel));
            if let Some(found) = self.all.get_mut(&channel) {
                found.state = State::Abandoned(found.late);
                self.events.push_back((channel, Event::Failed(Refusal::Timeout)));
            }
        }
    }

    /// What happened next to a channel, for whom it belongs to.
    pub fn poll_event(&mut self) -> Option<(ChannelId, Event)> {
        self.events.pop_front()
    }

    /// What shall be sent next.
    pub fn poll_message(&mut self) -> Option<(PortId, Control)> {
        self.messages.pop_front()
    }

    /// When [`Self::handle_time`] shall be called next.
    pub fn poll_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    fn insert(&mut self, port: PortId, epoch: Epoch, peer: Option<ChannelId>, state: State) -> ChannelId {
        self.last += 1;
        let channel = ChannelId(self.last);
        self.all
            .insert(channel, Channel { port, epoch, peer, state, late: Closing::Abort, far_closed: false });
        channel
    }

    fn on_port_mut(&mut self, port: PortId, channel: ChannelId) -> Result<&mut Channel, Contradiction> {
        self.all.get_mut(&channel).filter(|found| found.port == port).ok_or(Contradiction(channel))
    }

    fn remove(&mut self, channel: ChannelId) {
        if let Some(gone) = self.all.remove(&channel) {
            if let State::Opening(until) = gone.state {
                self.deadlines.remove(&(until, channel));
            }
            self.events.push_back((channel, Event::Freed(gone)));
        }
    }
}
