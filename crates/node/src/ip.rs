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

pub use unreachable::Allowance;

use crate::cable::Cable;
use crate::host::Host;
use crosslane_wire::packet::{HEAD, Head, Target, WORK, Work};
use crosslane_wire::{HostId, PortId};

/// Most packets that are taken from one place in one turn.
const BATCH: usize = 64;
/// So many bytes of packets end a turn too: control messages wait no longer than it takes to copy them.
const BATCH_BYTES: usize = 512 * 1024;
/// Most packets of one turn that are refused before the neighbour who sends them is not heard for a moment.
const REFUSED: u64 = 16;
/// Longest packet with its head, bytes: 64 KB behind an IPv6 header.
pub const MESSAGE_MAX: usize = HEAD + 40 + 0xffff;

impl Host {
    /// Sends packets of a queue of the interface on their way; whether there were any.
    pub fn send_packets(&mut self, queue: usize) -> bool {
        self.queue = queue;
        let mut message = std::mem::take(&mut self.packet);
        let (mut count, mut bytes) = (0, 0);
        while count < BATCH && bytes < BATCH_BYTES {
            let got = self.tun.as_ref().and_then(|tun| tun.receive(queue, &mut message[WORK..]));
            let Some(len) = got.map(|len| WORK + len).filter(|len| *len > HEAD) else { break };
            count += 1;
            bytes += len;
            self.originate(&mut message[..len]);
            if count == 1 {
                self.wake_sleepers();
            }
        }
        self.packet = message;
        self.asked |= count > 0;
        if count > 1 {
            self.wake_sleepers();
        }
        count > 0
    }

    /// As [`Self::send_packets`], of the queue that was used last: the one where more is most likely, for one system call.
    pub fn send_more_packets(&mut self) -> bool {
        self.tun.is_some() && self.send_packets(self.queue)
    }

    /// Neighbours that sleep hear of packets at once: of the first before the next is read, and of all before anything
    /// else is done.
    fn wake_sleepers(&mut self) {
        self.cables.iter_mut().for_each(Cable::flush);
    }

    /// Delivers or passes on packets that came by cable; whether there were any.
    pub fn receive_packets(&mut self) -> bool {
        let mut any = false;
        let mut message = std::mem::take(&mut self.packet);
        for index in 0..self.cables.len() {
            let from = self.cables[index].id;
            let (mut count, mut bytes) = (0, 0);
            let refused = self.counters.ip_refused_packets;
            while count < BATCH && bytes < BATCH_BYTES {
                let Some(len) = self.cables[index].receive_ip(&mut message) else { break };
                any = true;
                count += 1;
                bytes += len;
                if !self.take_packet(&mut message[..len], from) {
                    self.counters.ip_dropped_packets += 1;
                }
            }
            if self.counters.ip_refused_packets - refused > REFUSED {
                self.cables[index].rest(self.now);
            }
        }
        self.packet = message;
        if any {
            // What our kernel answers at once, it has answered by now; that rings too.
            if !self.send_more_packets() {
                self.wake_sleepers();
            }
        }
        any
    }

    /// A packet of our own kernel's.
    fn originate(&mut self, message: &mut [u8]) {
        let (source, to) = header::addresses(&message[HEAD..]).unzip();
        if let Some(source) = source.filter(|source| !self.is_ours(*source)) {
            self.counters.ip_dropped_packets += 1;
            return self.refuse_own_packet(source);
        }
        let to = to.and_then(|address| self.target(address));
        let from = self.me();
        let hops = self.policy.links.reach();
        let sent = match to {
            Some(to @ Target::Everybody) => {
                Head { hops, to, from }.write(message);
                self.spread(message, None)
            }
            Some(to @ Target::Host(host)) if self.policy.links.next_hop(host).is_some() => {
                Head { hops, to, from }.write(message);
                self.forward(host, message, None)
            }
            _ => {
                self.answer_unreachable(&message[HEAD..]);
                false
            }
        };
        if sent {
            self.counters.ip_tx_packets += 1;
            self.counters.ip_tx_bytes += (message.len() - HEAD) as u64;
        } else {
            self.counters.ip_dropped_packets += 1;
        }
    }

    /// A packet that came by the port `from`; `false` if it goes nowhere.
    fn take_packet(&mut self, message: &mut [u8], from: PortId) -> bool {
        let Ok(head) = Head::read(message) else { return false };
        if !self.is_genuine(head, &message[HEAD..], from) {
            self.refuse_packet(head.from, &message[HEAD..], from);
            return false;
        }
        let hops = head.hops.min(self.policy.links.reach()).checked_sub(1);
        match head.to {
            Target::Host(host) if host == self.me() => self.deliver(message, head),
            Target::Host(host) => {
                let Some(hops) = hops else { return false };
                Head { hops, ..head }.write(message);
                let sent = self.forward(host, message, Some(from));
                self.counters.ip_forwarded_packets += u64::from(sent);
                sent
            }
            Target::Everybody => {
                if self.policy.links.next_hop(head.from).is_none_or(|way| way.port != from) {
                    // Another copy comes, or came, by the way that counts.
                    return true;
                }
                if let Some(hops) = hops {
                    Head { hops, ..head }.write(message);
                    self.counters.ip_forwarded_packets += u64::from(self.spread(message, Some(from)));
                }
                self.deliver(message, head)
            }
        }
    }

    /// Hands a packet that is for us to our kernel. What the neighbour says of it is checked: a kernel must not be
    /// asked to read behind the packet's end, or to cut it to dust.
    fn deliver(&mut self, message: &[u8], head: Head) -> bool {
        let packet = &message[HEAD..];
        let meant = header::addresses(packet).and_then(|(_, destination)| self.target(destination));
        let sound =
            meant == Some(head.to) && Work::read(message).is_ok_and(|work| work.check(packet).is_ok());
        let Some(tun) = self.tun.as_ref().filter(|_| sound) else { return false };
        self.queue = tun.queue_of(head.from);
        if !tun.send(self.queue, &message[WORK..]) {
            return false;
        }
        self.counters.ip_rx_packets += 1;
        self.counters.ip_rx_bytes += packet.len() as u64;
        true
    }

    /// Sends a packet towards `host`; `false` if that cannot be. Never back to where it came from: while routes change,
    /// two hosts may each think that the way is through the other.
    fn forward(&mut self, host: HostId, message: &[u8], from: Option<PortId>) -> bool {
        let Some(way) = self.policy.links.next_hop(host).filter(|way| Some(way.port) != from) else {
            return false;
        };
        self.cable(way.port).is_some_and(|cable| cable.send_ip(host, message))
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

    /// Tells our kernel that nobody can be reached at a packet's destination, so that its sender need not wait.
    fn answer_unreachable(&mut self, packet: &[u8]) {
        let now = self.elapsed();
        let Some(answer) = unreachable::answer(packet) else { return };
        if self.answers.take(now)
            && let Some(tun) = &self.tun
        {
            tun.send(0, &answer);
        }
    }
}
