//! IP of this host, with what it needs of the others.

use super::Host;
use crate::ip::{Ip, Network, may_come_by};
use crosslane_wire::{HostId, PortId};

impl Host {
    /// Sends packets of a queue of the interface on their way; whether there were any.
    pub fn send_packets(&mut self, queue: usize) -> bool {
        let (ip, mut network) = self.ip_and_network();
        ip.send(queue, &mut network)
    }

    /// The same of the queue that was used last.
    pub fn send_more_packets(&mut self) -> bool {
        let (ip, mut network) = self.ip_and_network();
        ip.send_more(&mut network)
    }

    /// Delivers or passes on packets that came by cable; whether there were any.
    pub fn receive_packets(&mut self) -> bool {
        let (ip, mut network) = self.ip_and_network();
        ip.receive(&mut network)
    }

    /// Whether what came by `port` can be of this host.
    pub(crate) fn may_come_by(&self, from: HostId, port: PortId) -> bool {
        may_come_by(self.me(), &self.policy.links, &self.cables, from, port)
    }

    fn ip_and_network(&mut self) -> (&mut Ip, Network<'_>) {
        let Self { ip, config, policy, cables, counters, now, .. } = self;
        (ip, Network { config, links: &policy.links, cables, counters, now: *now })
    }
}
