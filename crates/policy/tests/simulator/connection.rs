//! Connections of streams: which hosts they join, and which stream is theirs.

use crate::world::World;
use crosslane_wire::control::Control;
use crosslane_wire::{HostId, Tuple};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Port that all programs listen at.
const SERVICE: u16 = 80;
/// The first port that a program connects from.
const FIRST: u16 = 1024;

fn address_of(host: usize, port: u16) -> SocketAddr {
    let [high, low] = u16::try_from(host + 1).unwrap().to_be_bytes();
    ([10, 0, high, low], port).into()
}

/// The host that has an address.
pub(crate) fn host_of(address: IpAddr) -> Option<HostId> {
    let IpAddr::V4(address) = address else { return None };
    let [10, 0, high, low] = address.octets() else { return None };
    Some(HostId(u16::from_be_bytes([high, low])))
}

/// The stream that a connection belongs to: its port tells.
pub(crate) fn stream_of(tuple: &Tuple) -> Option<usize> {
    tuple.client.port().checked_sub(FIRST).map(usize::from)
}

impl World {
    /// The connection of a stream.
    pub(crate) fn tuple_of(&self, stream: usize) -> Tuple {
        let [client, server] = self.streams[stream].hosts;
        let port = u16::try_from(stream).unwrap() + FIRST;
        Tuple { client: address_of(client, port), server: address_of(server, SERVICE) }
    }

    /// A circuit never passes a host twice.
    pub(crate) fn check_route(&mut self, host: usize, message: &Control) {
        let Control::Open { tuple, route, passed, .. } = message else { return };
        let is_prey = |stream: usize| self.streams.get(stream).is_none_or(|stream| stream.is_prey);
        if route.is_empty() || stream_of(tuple).is_none_or(is_prey) || self.liar.is_some() {
            return;
        }
        let Some(client) = host_of(tuple.client.ip()) else { return };
        let mut seen = BTreeSet::from([client, self.hosts[host].id]);
        if !route.iter().all(|next| seen.insert(*next)) || *passed > 250 {
            self.fail(format!("circuit through host {host} goes in circles: {route:?}"));
        }
    }
}
