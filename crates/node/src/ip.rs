//! IP packets: between the interface and the cables, and from cable to cable.

use crate::host::Host;
use crosslane_wire::PortId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most packets that are taken from one place in one turn.
const BATCH: usize = 64;
/// Longest packet, bytes; no longer than a message of a channel.
pub const PACKET_MAX: usize = 16 * 1024 - 16;

impl Host {
    /// Sends packets of the interface on their way; whether there were any.
    pub fn send_packets(&mut self) -> bool {
        let mut packet = std::mem::take(&mut self.packet);
        let mut count = 0;
        while count < BATCH {
            let Some(len) = self.tun.as_ref().and_then(|tun| tun.receive(&mut packet)) else { break };
            count += 1;
            if self.forward(&packet[..len], None) {
                self.counters.ip_tx_packets += 1;
                self.counters.ip_tx_bytes += len as u64;
            }
        }
        self.packet = packet;
        count > 0
    }

    /// Delivers or passes on packets that came by cable; whether there were any.
    pub fn receive_packets(&mut self) -> bool {
        let mut any = false;
        let mut packet = std::mem::take(&mut self.buffer);
        for index in 0..self.cables.len() {
            for _ in 0..BATCH {
                if !self.cables[index].receive_ip(&mut packet) {
                    break;
                }
                any = true;
                let from = self.cables[index].id;
                self.deliver(&packet, from);
            }
        }
        self.buffer = packet;
        any
    }

    fn deliver(&mut self, packet: &[u8], from: PortId) {
        let mine = destination(packet).and_then(|ip| self.config.addresses.host_of(ip)) == Some(self.me());
        if !mine {
            if self.forward(packet, Some(from)) {
                self.counters.ip_forwarded_packets += 1;
            }
        } else if self.tun.as_ref().is_some_and(|tun| tun.send(packet)) {
            self.counters.ip_rx_packets += 1;
            self.counters.ip_rx_bytes += packet.len() as u64;
        } else {
            self.counters.ip_dropped_packets += 1;
        }
    }

    /// Sends a packet towards its destination; counts it if that cannot be. Never back to where it came from: while
    /// routes change, two hosts may each think that the way is through the other.
    fn forward(&mut self, packet: &[u8], from: Option<PortId>) -> bool {
        let host = destination(packet).and_then(|ip| self.config.addresses.host_of(ip));
        let way = host.filter(|host| *host != self.me()).and_then(|host| self.links.next_hop(host));
        let sent = match way {
            Some(way) if Some(way.port) != from => {
                self.cable(way.port).is_some_and(|cable| cable.send_ip(packet))
            }
            _ => false,
        };
        if !sent {
            self.counters.ip_dropped_packets += 1;
        }
        sent
    }
}

/// Where an IP packet wants to go; `None` if it is none, or is cut off.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let total = u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?);
            let ip: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            (usize::from(total) == packet.len()).then(|| Ipv4Addr::from(ip).into())
        }
        6 => {
            let payload = u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?);
            let ip: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            (usize::from(payload) + 40 == packet.len()).then(|| Ipv6Addr::from(ip).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_and_rubbish_is_none() {
        let mut v4 = vec![0; 28];
        (v4[0], v4[3]) = (0x45, 28);
        v4[16..20].copy_from_slice(&[10, 86, 0, 2]);
        assert_eq!(destination(&v4), Some([10, 86, 0, 2].into()));
        assert_eq!(destination(&v4[..27]), None);
        let mut v6 = vec![0; 40];
        v6[0] = 0x60;
        v6[39] = 7;
        assert_eq!(destination(&v6), Some(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 7).into()));
        for len in 0..40 {
            assert_eq!(destination(&v6[..len]), None);
        }
        assert_eq!(destination(&[0x75; 60]), None);
    }
}
