//! The form of addresses by which circuits are keyed.

use crosslane_wire::Tuple;
use std::net::SocketAddr;

/// An IPv4-mapped IPv6 address as that IPv4 address; without flow label and scope.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Both addresses of a connection in that form.
pub fn plain_tuple(tuple: Tuple) -> Tuple {
    Tuple { client: plain(tuple.client), server: plain(tuple.server) }
}
