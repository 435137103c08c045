//! Addresses of connections in the form that circuits are keyed by.

use crosslane_wire::Tuple;
use std::net::SocketAddr;

/// An IPv4-mapped IPv6 address as the IPv4 address that it means; flow label and scope dropped.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Both addresses of a connection.
pub fn plain_tuple(tuple: Tuple) -> Tuple {
    Tuple { client: plain(tuple.client), server: plain(tuple.server) }
}
