//! A neighbour that says what the test wants it to say.

use super::{Lab, until};
use crosslane_node::cable::{Cable, CableEvent};
use crosslane_node::config::{PortConfig, PortKind};
use crosslane_wire::control::{Control, LinkState};
use crosslane_wire::{ChannelId, HostId, PortId, SegmentRange, Tuple};
use std::time::Instant;

/// A neighbour whose end of the cable this test holds.
pub struct Liar {
    pub cable: Cable,
    start: Instant,
}

impl Liar {
    /// Poses as host `id` at the side `b` of a cable.
    pub fn new(lab: &Lab, cable: &str, id: u16) -> Self {
        let config = PortConfig {
            name: "liar".to_owned(),
            kind: PortKind::Soft,
            cable: lab.path(cable),
            listens: false,
            window: 1 << 30,
            mode: 0o600,
            cut: false,
        };
        let mut liar =
            Self { cable: Cable::open(PortId(0), HostId(id), config).unwrap(), start: Instant::now() };
        liar.wait_up();
        liar
    }

    pub fn poll(&mut self) -> Option<CableEvent> {
        let now = self.start.elapsed();
        self.cable.poll_event(now)
    }

    pub fn wait_up(&mut self) {
        until("cable up", || matches!(self.poll(), Some(CableEvent::Up(_))).then_some(()));
    }

    pub fn wait_down(&mut self) {
        until("cable down", || matches!(self.poll(), Some(CableEvent::Down(..))).then_some(()));
    }

    pub fn say(&mut self, message: &Control) {
        self.cable.send(message);
        self.cable.flush();
    }

    /// A record of `origin` that the neighbour tells, as wanted.
    pub fn hear_of(&mut self, origin: u16, wanted: impl Fn(&LinkState) -> bool) -> LinkState {
        let mut buffer = Vec::new();
        until("a link state", || {
            self.poll();
            let Some(Control::LinkStates(records)) = self.cable.receive(&mut buffer) else { return None };
            records.into_iter().find(|record| record.origin.0 == origin && wanted(record))
        })
    }

    pub fn hear(&mut self) -> Control {
        let mut buffer = Vec::new();
        until("a message", || {
            self.poll();
            let message = self.cable.receive(&mut buffer)?;
            (!matches!(message, Control::LinkStates(_))).then_some(message)
        })
    }

    pub fn open(&mut self, tuple: Tuple, segment: SegmentRange) -> Control {
        self.open_along(&[], 0, tuple, segment)
    }

    pub fn open_along(&mut self, route: &[u16], passed: u8, tuple: Tuple, segment: SegmentRange) -> Control {
        self.say(&Control::Open {
            channel: ChannelId(5),
            tuple,
            stream: tuple.client.port().into(),
            segment,
            key: 1,
            passed,
            pumps: 0,
            route: route.iter().map(|host| HostId(*host)).collect(),
            resume: None,
            twin_of: 0,
        });
        self.hear()
    }
}

/// The head of a message with a packet, as a liar may write it, and something behind it.
pub fn packet(hops: u8, to: u16, from: u16, rest: &[u8]) -> Vec<u8> {
    let [to, from] = [to.to_le_bytes(), from.to_le_bytes()];
    [&[hops, 0, to[0], to[1], from[0], from[1]], rest].concat()
}

/// A record without age and signature.
pub fn record(origin: u16, incarnation: u64, sequence: u64, neighbours: &[u16]) -> LinkState {
    let neighbours = neighbours.iter().map(|host| HostId(*host)).collect();
    LinkState { origin: HostId(origin), incarnation, sequence, neighbours, age: 0, seal: None }
}

/// A datagram without payload, between these addresses.
pub fn datagram(source: &str, destination: &str) -> Vec<u8> {
    use std::net::IpAddr::{V4, V6};
    match (source.parse().unwrap(), destination.parse().unwrap()) {
        (V4(source), V4(destination)) => {
            let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
            [&head[..], &source.octets(), &destination.octets(), &[0; 8]].concat()
        }
        (V6(source), V6(destination)) => {
            let head = [0x60, 0, 0, 0, 0, 8, 17, 64];
            [&head[..], &source.octets(), &destination.octets(), &[0; 8]].concat()
        }
        _ => panic!("addresses of two families"),
    }
}

/// The message of a datagram with nothing left to do.
pub fn datagram_message(to: u16, from: u16, source: &str, destination: &str) -> Vec<u8> {
    packet(9, to, from, &[vec![0; 10], datagram(source, destination)].concat())
}
