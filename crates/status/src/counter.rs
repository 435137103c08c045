//! Counters of the whole host.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was counted since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Stream ends that programs got; a connection inside the host has two.
    pub streams_opened: u64,
    /// Those that are open now.
    pub streams_open: u64,
    /// Those that were closed in order.
    pub streams_closed: u64,
    /// Those that were broken off here.
    pub streams_aborted: u64,
    /// Payload sent by streams, bytes.
    pub stream_tx_bytes: u64,
    /// Payload received by streams, bytes.
    pub stream_rx_bytes: u64,
    /// IP packets from the interface into the fabric.
    pub ip_tx_packets: u64,
    /// IP packets from the fabric to the interface.
    pub ip_rx_packets: u64,
    /// Bytes of those that were sent.
    pub ip_tx_bytes: u64,
    /// Bytes of those that were received.
    pub ip_rx_bytes: u64,
    /// IP packets passed on to another host.
    pub ip_forwarded_packets: u64,
    /// IP packets dropped: no way, no room, no packet, or refused.
    pub ip_dropped_packets: u64,
    /// Those of them that were refused for their source.
    pub ip_refused_packets: u64,
    /// Times that a stream had to look for another circuit.
    pub moves: u64,
    /// Streams that found one.
    pub moved: u64,
    /// How long the last of them had none, us.
    pub move_last_us: u64,
    /// The longest that one had none, us.
    pub move_longest_us: u64,
    /// Circuits that pass through this host now.
    pub transits: u64,
    /// Payload that passed through this host, bytes.
    pub transit_bytes: u64,
    /// Sleepers woken by this host's programs and daemon.
    pub wakes: u64,
    /// Times that a neighbour or a program broke the protocol.
    pub violations: u64,
    /// Connections that stayed TCP, by reason.
    pub plain: BTreeMap<String, u64>,
}
