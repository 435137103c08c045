//! Which packets are accepted: those whose source is an address of the host that their head names, and that come by a port behind
//! which that host is.

use super::{Ip, Network, header};
use crate::cables::Cables;
use crosslane_fabric::Links;
use crosslane_wire::packet::Head;
use crosslane_wire::{HostId, PortId};
use std::net::IpAddr;

/// Whether a packet that came by `port` can be from the host `from`. The neighbour may be the id that it gave at link set-up, also
/// before a route leads over its cable.
pub(crate) fn may_come_by(me: HostId, links: &Links, cables: &Cables, from: HostId, port: PortId) -> bool {
    from != me && (cables.neighbour(port) == Some(from) || links.is_behind(from, port))
}

impl Network<'_> {
    /// Whether a packet that came by `port` can be from the host that its head names.
    pub(super) fn is_genuine(&self, head: Head, packet: &[u8], port: PortId) -> bool {
        let source = header::addresses(packet).map(|(source, _)| source);
        let is_theirs = source.is_some_and(|source| self.config.host_at(source) == Some(head.from));
        is_theirs && may_come_by(self.me(), self.links, self.cables, head.from, port)
    }

    /// Whether a packet of this host's kernel has a source address of this host: any program may bind others (`IP_FREEBIND`).
    pub(super) fn is_ours(&self, source: IpAddr) -> bool {
        self.config.host_at(source) == Some(self.me())
    }
}

impl Ip {
    /// Counts and logs a neighbour's packet whose source is not permitted.
    pub(super) fn refuse(&mut self, from: HostId, packet: &[u8], port: PortId, network: &mut Network<'_>) {
        network.counters.ip_refused_packets += 1;
        if let Some(left_out) = self.refused.take(network.now) {
            let source = header::addresses(packet).map(|(source, _)| source);
            let port = network.cables.name(port);
            tracing::warn!(port, ?source, %from, left_out, "packet refused: that host does not send it by this port");
        }
    }

    /// Counts and logs a packet of a local program whose source is not this host's. Kernels send group reports from `::` before an
    /// interface has its address: these are not counted.
    pub(super) fn refuse_own(&mut self, source: IpAddr, network: &mut Network<'_>) {
        network.counters.ip_refused_packets += u64::from(!source.is_unspecified());
        if !source.is_unspecified()
            && let Some(left_out) = self.refused_own.take(network.now)
        {
            let hint = "`networks` names the networks behind this host";
            tracing::warn!(%source, left_out, hint, "packet of this host not sent: its source is no address of it");
        }
    }
}
