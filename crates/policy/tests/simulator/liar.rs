//! A Byzantine host: it does what a host does, and lies to its neighbours besides. It asks for circuits in the name of others,
//! speaks of channels that are not its own, says again what it once heard, and forges link states ([`crate::hostile`]).
//!
//! What it cannot be kept from is not held against its neighbours: streams whose circuits led through it are its prey, since
//! it saw their secrets and their bytes. All others keep every law. Nor does it answer for the socket of another host, which
//! decision 19 leaves to that host's daemon.

use crate::connection::stream_of;
use crate::host::id_of;
use crate::memory::{Ring, range_of};
use crate::schedule::Fault;
use crate::world::{Event, World};
use crosslane_wire::control::{Closing, Control, Refusal, Resumption};
use crosslane_wire::{ChannelId, HostId, PortId, SegmentRange};
use std::time::Duration;

/// Most messages that a liar remembers.
const MEMORY: usize = 1000;
/// Channels of neighbours' that it speaks of are among so many.
const CHANNELS: usize = 60;
/// How long after the liar is gone its prey must have ended.
pub(crate) const GRACE: Duration = Duration::from_secs(8);
/// How long a cable stays down whose neighbour was found out.
const PENANCE: Duration = Duration::from_secs(1);

impl World {
    /// The host lies at times, for so long; of who is where only if it `forges`.
    pub(crate) fn plan_lies(&mut self, host: usize, time: Duration, forges: bool) {
        (self.liar, self.forges) = (Some(host), forges);
        self.tape.get_or_insert_default();
        for stream in 0..self.streams.len() {
            if self.streams[stream].hosts.contains(&host) {
                self.streams[stream].is_prey = true;
            }
        }
        let mut at = Duration::ZERO;
        while at < time {
            self.after(at, Event::Fault(Fault::Lie(host)));
            at += self.random.micros(50, 40_000);
        }
    }

    /// Something was said to the liar or by it: a stream that is asked for through it is its prey, and it remembers.
    pub(crate) fn overhear(&mut self, host: usize, message: &Control) {
        if self.liar != Some(host) {
            return;
        }
        if let Control::Open { tuple, .. } = message
            && let Some(stream) = stream_of(tuple).and_then(|stream| self.streams.get_mut(stream))
        {
            stream.is_prey = true;
        }
        if self.heard.len() < MEMORY && !matches!(message, Control::LinkStates(_)) {
            self.heard.push(message.clone());
        }
    }

    /// A lie, by one of the host's ports.
    pub(crate) fn lie(&mut self, host: usize) {
        if !self.hosts[host].alive || self.hosts[host].frozen {
            return;
        }
        let port = id_of(self.random.below(self.hosts[host].ports.len()));
        match self.random.below(12) {
            0 if self.forges => self.forge(host),
            0..5 => self.lie_of_circuits(host, port, 1),
            5 => self.lie_of_circuits(host, port, 40),
            6..9 => {
                let lie = self.lie_of_channel();
                self.say_lie(host, port, lie);
            }
            _ if self.random.once_in(40) => self.say_lie(host, port, Control::Goodbye),
            _ if !self.heard.is_empty() => {
                let again = self.heard[self.random.below(self.heard.len())].clone();
                self.say_lie(host, port, without_proof(again));
            }
            _ => self.say_lie(host, port, Control::Alive { reply: true }),
        }
    }

    /// Programs whose streams a liar has had are killed if they have not ended: nobody promises them anything.
    pub(crate) fn reap(&mut self) {
        for program in 0..self.programs.len() {
            let here = &self.programs[program];
            if here.outcome.is_none() && self.streams[here.stream].is_prey {
                self.kill_program(program);
            }
        }
    }

    /// The neighbour finds the host out: the cable is down for a while.
    pub(crate) fn break_off(&mut self, host: usize, port: PortId, why: &str) {
        if self.liar.is_none() {
            return self.fail(format!("host {host} distrusts {port:?}: {why}"));
        }
        if let Some((cable, _)) = self.hosts[host].plugs[usize::from(port.0)] {
            self.cut(cable);
            self.after(PENANCE, Event::Fault(Fault::Mend(cable)));
        }
    }

    fn say_lie(&mut self, host: usize, port: PortId, lie: Control) {
        self.say(|| format!("host {host} lies at {port:?}: {lie:?}"));
        self.send(host, port, lie);
    }

    fn lie_of_circuits(&mut self, host: usize, port: PortId, count: usize) {
        for _ in 0..count {
            let lie = self.false_open(host, port);
            self.say_lie(host, port, lie);
        }
    }

    /// Somebody's circuit, which nobody asked for.
    fn false_open(&mut self, host: usize, port: PortId) -> Control {
        let stream = self.random.below(self.streams.len());
        let resume = self
            .random
            .once_in(3)
            .then(|| Resumption { generation: [0, 1, 2, 1000, u32::MAX][self.random.below(5)] });
        let hosts = self.hosts.len() + 5;
        let route = (0..self.random.below(4))
            .map(|_| HostId(u16::try_from(self.random.below(hosts)).unwrap()))
            .collect();
        Control::Open {
            // None of its own: it would answer for the socket of that one.
            channel: ChannelId(self.random.next() | 1 << 40),
            tuple: self.tuple_of(stream),
            stream: [0, 1, self.random.next()][self.random.below(3)],
            segment: self.some_segment(host, port),
            key: 1,
            passed: [0, 1, 2, 3, 20, 250, 255][self.random.below(7)],
            pumps: [0, 1, 255][self.random.below(3)],
            route,
            resume,
            twin_of: [0, 0, 1, self.random.next()][self.random.below(4)],
        }
    }

    /// Memory of the host's own, or none at all.
    fn some_segment(&mut self, host: usize, port: PortId) -> SegmentRange {
        match self.random.below(6) {
            0 => SegmentRange { offset: u64::MAX - 4095, len: 4096 },
            1 => SegmentRange { offset: self.random.next(), len: self.random.next() },
            2 => range_of(self.random.below(self.rings.len() + 100)),
            _ => {
                self.rings.push(Ring::new((host, usize::from(port.0))));
                range_of(self.rings.len() - 1)
            }
        }
    }

    fn some_channel(&mut self) -> ChannelId {
        ChannelId(u64::try_from(self.random.below(CHANNELS)).unwrap())
    }

    /// What is said of a channel that may be there, or not, or be another's.
    fn lie_of_channel(&mut self) -> Control {
        let (channel, peer) = (self.some_channel(), self.some_channel());
        let ring = self.random.below(self.rings.len() + 100);
        match self.random.below(7) {
            0 => Control::Opened {
                channel,
                peer,
                segment: range_of(ring),
                key: 1,
                arrived: self.random.next() % 400,
                pumps: 0,
            },
            1 => Control::Refused {
                channel,
                why: [Refusal::NoRoute, Refusal::Unknown, Refusal::NoMemory][self.random.below(3)],
            },
            2 | 3 => Control::Closed {
                channel,
                how: [Closing::Done, Closing::Abort, Closing::Lost][self.random.below(3)],
            },
            4 => Control::Arrived { channel, units: self.random.next() % 400 },
            5 => Control::Prove { channel },
            _ => Control::Proven { channel, is_so: false },
        }
    }
}

/// The same, but no word that the socket of another host is some connection's.
fn without_proof(message: Control) -> Control {
    match message {
        Control::Proven { channel, .. } => Control::Proven { channel, is_so: false },
        other => other,
    }
}
