//! IP packets: between the interface and the cables, and from cable to cable.
//!
//! ```text
//!   interface --> from us? --> who is it for? -- one host --> the cable of the shortest way there
//!                                |           \-- everybody --> all cables
//!                                +- nobody in reach: "host unreachable" back to the interface
//!   cable --> from whom it says? --> ours? --> interface
//!     |        not ours --> the cable of the shortest way, but not the one that it came by
//!     +------- everybody's --> interface and all other cables, if it came by our own way to its sender
//! ```
//! The last rule makes a tree of any topology: of the copies that reach a host, one comes by that way. A packet that is
//! passed on more often than there are hosts goes in circles, and is dropped.

mod genuine;
mod header;
mod unreachable;

pub(crate) use genuine::may_come_by;

use crate::cables::Cables;
use crate::config::Config;
use crate::counter::Counters;
use crate::seldom::Seldom;
use crate::tun::Tun;
use crosslane_fabric::Links;
use crosslane_wire::packet::{HEAD, Head, Target, WORK, Work};
use crosslane_wire::{HostId, PortId};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use unreachable::Allowance;

/// Most packets that are taken from one place in one turn.
const BATCH: usize = 64;
/// So many bytes of packets end a turn too: control messages wait no longer than it takes to copy them.
const BATCH_BYTES: usize = 512 * 1024;
/// Most packets of one turn that are refused before the neighbour who sends them is not heard for a moment.
const REFUSED: u64 = 16;
/// Longest packet with its head, bytes: 64 KB behind an IPv6 header.
const MESSAGE_MAX: usize = HEAD + 40 + 0xffff;

/// What packets go by, which is not IP's own.
pub struct Network<'a> {
    /// Whose address is whose.
    pub config: &'a Config,
    /// Who is where.
    pub links: &'a Links,
    /// Our ports.
    pub cables: &'a mut Cables,
    /// What is counted.
    pub counters: &'a mut Counters,
    /// The daemon's clock, as of this turn of the engine.
    pub now: Duration,
}

/// IP of this host: its interface, and what packets need on their way between that and the cables.
#[derive(Debug)]
pub struct Ip {
    tun: Option<Tun>,
    /// For packets, with their heads.
    packet: Vec<u8>,
    /// The queue of the interface that was used last.
    queue: usize,
    /// Whether packets of the interface were sent since the engine slept: answers may come.
    asked: bool,
    /// Answers to packets that have no way.
    answers: Allowance,
    /// Says that packets of neighbours were refused.
    refused: Seldom,
    /// Says that packets of our own kernel were.
    refused_own: Seldom,
}

impl Ip {
    /// IP by this interface; by none, packets are only passed on.
    pub fn new(tun: Option<Tun>) -> Self {
        Self {
            tun,
            packet: vec![0; MESSAGE_MAX],
            queue: 0,
            asked: false,
            answers: Allowance::default(),
            refused: Seldom::default(),
            refused_own: Seldom::default(),
        }
    }

    /// The descriptors of the interface's queues, in order.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tun.iter().flat_map(Tun::fds)
    }

    /// The interface's number in the kernel; 0 without one.
    pub fn interface(&self) -> u32 {
        self.tun.as_ref().map_or(0, Tun::index)
    }

    /// The interface was removed; whether there was one until now.
    pub fn lose_interface(&mut self) -> bool {
        self.tun.take().is_some()
    }

    /// Whether packets of the interface were sent since this was asked last: answers may come.
    pub fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// Sends packets of a queue of the interface on their way; whether there were any.
    pub fn send(&mut self, queue: usize, network: &mut Network<'_>) -> bool {
        self.queue = queue;
        let mut message = std::mem::take(&mut self.packet);
        let (mut count, mut bytes) = (0, 0);
        while count < BATCH && bytes < BATCH_BYTES {
            let got = self.tun.as_ref().and_then(|tun| tun.receive(queue, &mut message[WORK..]));
            let Some(len) = got.map(|len| WORK + len).filter(|len| *len > HEAD) else { break };
            count += 1;
            bytes += len;
            self.originate(&mut message[..len], network);
            if count == 1 {
                // Neighbours that sleep hear of packets at once: of the first before the next is read, of all before anything else.
                network.cables.flush();
            }
        }
        self.packet = message;
        self.asked |= count > 0;
        if count > 1 {
            network.cables.flush();
        }
        count > 0
    }

    /// As [`Self::send`], of the queue that was used last: the one where more is most likely, for one system call.
    pub fn send_more(&mut self, network: &mut Network<'_>) -> bool {
        self.tun.is_some() && self.send(self.queue, network)
    }

    /// Delivers or passes on packets that came by cable; whether there were any.
    pub fn receive(&mut self, network: &mut Network<'_>) -> bool {
        let mut any = false;
        let mut message = std::mem::take(&mut self.packet);
        for from in network.cables.ports() {
            let (mut count, mut bytes) = (0, 0);
            let refused = network.counters.ip_refused_packets;
            while count < BATCH && bytes < BATCH_BYTES {
                let cable = network.cables.get_mut(from);
                let Some(len) = cable.and_then(|cable| cable.receive_ip(&mut message)) else { break };
                any = true;
                count += 1;
                bytes += len;
                if !self.take(&mut message[..len], from, network) {
                    network.counters.ip_dropped_packets += 1;
                }
            }
            if network.counters.ip_refused_packets - refused > REFUSED
                && let Some(cable) = network.cables.get_mut(from)
            {
                cable.rest(network.now);
            }
        }
        self.packet = message;
        if any {
            // What our kernel answers at once, it has answered by now; that rings too.
            if !self.send_more(network) {
                network.cables.flush();
            }
        }
        any
    }

    /// A packet of our own kernel's.
    fn originate(&mut self, message: &mut [u8], network: &mut Network<'_>) {
        let (source, to) = header::addresses(&message[HEAD..]).unzip();
        if let Some(source) = source.filter(|source| !network.is_ours(*source)) {
            network.counters.ip_dropped_packets += 1;
            return self.refuse_own(source, network);
        }
        let to = to.and_then(|address| network.target(address));
        let from = network.me();
        let hops = network.links.reach();
        let sent = match to {
            Some(to @ Target::Everybody) => {
                Head { hops, to, from }.write(message);
                network.spread(message, None)
            }
            Some(to @ Target::Host(host)) if network.links.next_hop(host).is_some() => {
                Head { hops, to, from }.write(message);
                network.forward(host, message, None)
            }
            _ => {
                self.answer_unreachable(&message[HEAD..], network.now);
                false
            }
        };
        if sent {
            network.counters.ip_tx_packets += 1;
            network.counters.ip_tx_bytes += (message.len() - HEAD) as u64;
        } else {
            network.counters.ip_dropped_packets += 1;
        }
    }

    /// A packet that came by the port `from`; `false` if it goes nowhere.
    fn take(&mut self, message: &mut [u8], from: PortId, network: &mut Network<'_>) -> bool {
        let Ok(head) = Head::read(message) else { return false };
        if !network.is_genuine(head, &message[HEAD..], from) {
            self.refuse(head.from, &message[HEAD..], from, network);
            return false;
        }
        let hops = head.hops.min(network.links.reach()).checked_sub(1);
        match head.to {
            Target::Host(host) if host == network.me() => self.deliver(message, head, network),
            Target::Host(host) => {
                let Some(hops) = hops else { return false };
                Head { hops, ..head }.write(message);
                let sent = network.forward(host, message, Some(from));
                network.counters.ip_forwarded_packets += u64::from(sent);
                sent
            }
            Target::Everybody => {
                if network.links.next_hop(head.from).is_none_or(|way| way.port != from) {
                    // Another copy comes, or came, by the way that counts.
                    return true;
                }
                if let Some(hops) = hops {
                    Head { hops, ..head }.write(message);
                    network.counters.ip_forwarded_packets += u64::from(network.spread(message, Some(from)));
                }
                self.deliver(message, head, network)
            }
        }
    }

    /// Hands a packet that is for us to our kernel. What the neighbour says of it is checked: a kernel must not be
    /// asked to read behind the packet's end, or to cut it to dust.
    fn deliver(&mut self, message: &[u8], head: Head, network: &mut Network<'_>) -> bool {
        let packet = &message[HEAD..];
        let meant = header::addresses(packet).and_then(|(_, destination)| network.target(destination));
        let sound =
            meant == Some(head.to) && Work::read(message).is_ok_and(|work| work.check(packet).is_ok());
        let Some(tun) = self.tun.as_ref().filter(|_| sound) else { return false };
        self.queue = tun.queue_of(head.from);
        if !tun.send(self.queue, &message[WORK..]) {
            return false;
        }
        network.counters.ip_rx_packets += 1;
        network.counters.ip_rx_bytes += packet.len() as u64;
        true
    }

    /// Tells our kernel that nobody can be reached at a packet's destination, so that its sender need not wait.
    fn answer_unreachable(&mut self, packet: &[u8], now: Duration) {
        let Some(answer) = unreachable::answer(packet) else { return };
        if self.answers.take(now)
            && let Some(tun) = &self.tun
        {
            tun.send(0, &answer);
        }
    }
}

impl Network<'_> {
    fn me(&self) -> HostId {
        self.config.addresses.me
    }

    /// Sends a packet towards `host`; `false` if that cannot be. Never back to where it came from: while routes change,
    /// two hosts may each think that the way is through the other.
    fn forward(&mut self, host: HostId, message: &[u8], from: Option<PortId>) -> bool {
        let Some(way) = self.links.next_hop(host).filter(|way| Some(way.port) != from) else { return false };
        self.cables.get_mut(way.port).is_some_and(|cable| cable.send_ip(host, message))
    }

    /// Sends a packet by all cables but one; whether by any.
    fn spread(&mut self, message: &[u8], but: Option<PortId>) -> bool {
        let mut any = false;
        for cable in self.cables.iter_mut().filter(|cable| Some(cable.id) != but) {
            any |= cable.send_ip(HostId(0), message);
        }
        any
    }

    fn target(&self, address: std::net::IpAddr) -> Option<Target> {
        match self.config.host_at(address) {
            Some(host) => Some(Target::Host(host)),
            None => self.config.addresses.is_everybody(address).then_some(Target::Everybody),
        }
    }
}
