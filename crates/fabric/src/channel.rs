//! This host's ends of channels: how two neighbours agree that a channel exists, and later that its memory is free.
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
//! Each side sends `Closed` once, and a channel is removed when both have: only then no host can write into its segments.
//! This module does not know what a channel belongs to: an end of a circuit, or a circuit in transit.

use crosslane_wire::control::{Closing, Control, Refusal};
use crosslane_wire::{ChannelId, Epoch, PortId, SegmentRange};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The neighbour asked for the channel; this host has not answered yet.
    Asked,
    /// This host asked for the channel; the neighbour must answer by this time.
    Opening(Duration),
    /// The answer is awaited only in order to close, in this way, what the neighbour then holds.
    Abandoned(Closing),
    /// In use.
    Open,
    /// Closed by this host; not yet by the far side.
    Closing,
}

/// This host's end of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// This host's port.
    pub port: PortId,
    /// The cable's epoch when the channel was made.
    pub epoch: Epoch,
    /// The neighbour's id of the channel, once it is known.
    pub peer: Option<ChannelId>,
    /// The state.
    pub state: State,
    /// How to close the channel if the neighbour's answer comes too late.
    late: Closing,
    far_closed: bool,
}

/// An event of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The neighbour made the channel.
    Opened {
        /// Where this host may write.
        segment: SegmentRange,
        /// Mark key of the ring there.
        key: u64,
        /// Stream offset that has arrived at the far end.
        arrived: u64,
        /// Hosts that pump between here and the far end.
        pumps: u8,
    },
    /// The neighbour refused, or did not answer in time.
    Failed(Refusal),
    /// The neighbour closed its end.
    FarClosed(Closing),
    /// The channel's cable is down, or the next cable on the path; the far end may not know that the channel was closed.
    Lost,
    /// The channel is removed; no host writes into its memory any more.
    Freed(Channel),
}

/// A neighbour's message about a channel contradicts the channel's state.
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
    /// Number of channels on each port that has any.
    on: BTreeMap<PortId, usize>,
    last: u64,
}

impl Channels {
    /// A channel by its id.
    pub fn get(&self, channel: ChannelId) -> Option<&Channel> {
        self.all.get(&channel)
    }

    /// A channel that a message of the neighbour at `port` may name: one on that port.
    pub fn on_port(&self, port: PortId, channel: ChannelId) -> Result<&Channel, Contradiction> {
        self.all.get(&channel).filter(|found| found.port == port).ok_or(Contradiction(channel))
    }

    /// Makes a channel for which the neighbour at `port` will be asked; the caller sends `Open`. If no answer comes until
    /// `deadline`, [`Event::Failed`] follows; an answer after that is followed by a close in the way `late`.
    pub fn dial(&mut self, port: PortId, epoch: Epoch, deadline: Duration, late: Closing) -> ChannelId {
        let channel = self.insert(port, epoch, None, State::Opening(deadline));
        if let Some(made) = self.all.get_mut(&channel) {
            made.late = late;
        }
        self.deadlines.insert((deadline, channel));
        channel
    }

    /// The neighbour at `port` asks for a channel, whose id there is `peer`: the caller calls [`Self::answer`] or [`Self::refuse`].
    pub fn handle_open(&mut self, port: PortId, epoch: Epoch, peer: ChannelId) -> ChannelId {
        self.insert(port, epoch, Some(peer), State::Asked)
    }

    /// Answers the neighbour that asked: with this host's segment, and the number of hosts that pump from here to the far end.
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

    /// Refuses the channel that the neighbour asked for.
    pub fn refuse(&mut self, channel: ChannelId, why: Refusal) {
        let asked = self.all.get(&channel).filter(|found| found.state == State::Asked);
        if let Some((port, Some(peer))) = asked.map(|asked| (asked.port, asked.peer)) {
            self.messages.push_back((port, Control::Refused { channel: peer, why }));
            self.remove(channel);
        }
    }

    /// The neighbour made the channel that this host asked for.
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

    /// The neighbour refuses the channel that this host asked for.
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

    /// Sends a message about an open channel to the neighbour; `message` gets the neighbour's id of the channel. `false`
    /// if the channel is not open.
    pub fn tell(&mut self, channel: ChannelId, message: impl FnOnce(ChannelId) -> Control) -> bool {
        let found = self.all.get(&channel).filter(|found| found.state == State::Open);
        let Some((port, peer)) = found.and_then(|found| Some((found.port, found.peer?))) else {
            return false;
        };
        self.messages.push_back((port, message(peer)));
        true
    }

    /// Tells the neighbour the stream offset that has arrived here.
    pub fn tell_arrived(&mut self, channel: ChannelId, units: u64) {
        self.tell(channel, |peer| Control::Arrived { channel: peer, units });
    }

    /// Closes this host's end and tells the neighbour. A channel that is still opening is abandoned.
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

    /// Removes a channel of [`Self::handle_open`] that the caller refuses itself.
    pub fn cancel(&mut self, channel: ChannelId) {
        if self.all.get(&channel).is_some_and(|found| found.state == State::Asked) {
            self.remove(channel);
        }
    }

    /// The cable at `port` is down: removes its channels.
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

    /// Fails the channels whose deadline has passed.
    pub fn handle_time(&mut self, now: Duration) {
        while let Some(&(until, channel)) = self.deadlines.first().filter(|(until, _)| *until <= now) {
            self.deadlines.remove(&(until, channel));
            if let Some(found) = self.all.get_mut(&channel) {
                found.state = State::Abandoned(found.late);
                self.events.push_back((channel, Event::Failed(Refusal::Timeout)));
            }
        }
    }

    /// The next event of a channel, for the caller to find the owner.
    pub fn poll_event(&mut self) -> Option<(ChannelId, Event)> {
        self.events.pop_front()
    }

    /// The next message to send.
    pub fn poll_message(&mut self) -> Option<(PortId, Control)> {
        self.messages.pop_front()
    }

    /// When [`Self::handle_time`] must be called next.
    pub fn poll_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Number of channels.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Number of channels on the cable at `port`: circuits that lead through it, whoever requested them.
    pub fn count_on(&self, port: PortId) -> usize {
        self.on.get(&port).copied().unwrap_or(0)
    }

    fn insert(&mut self, port: PortId, epoch: Epoch, peer: Option<ChannelId>, state: State) -> ChannelId {
        self.last += 1;
        let channel = ChannelId(self.last);
        *self.on.entry(port).or_default() += 1;
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
            if let Entry::Occupied(mut count) = self.on.entry(gone.port) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
            self.events.push_back((channel, Event::Freed(gone)));
        }
    }
}
