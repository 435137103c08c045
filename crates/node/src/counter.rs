//! What the daemon counts.

use crosslane_wire::local::Plain;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters since the daemon started.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Stream ends that programs got.
    pub streams_opened: u64,
    /// Of those, ends that were closed in order.
    pub streams_closed: u64,
    /// Of those, ends that were broken off here.
    pub streams_aborted: u64,
    /// Payload that passed through this host in circuits that are gone, bytes.
    pub transit_bytes: u64,
    /// Times that a stream had to look for another circuit.
    pub moves: u64,
    /// Streams that found another circuit.
    pub moved: u64,
    /// How long the last of them had none, as far as this daemon knows, us.
    pub move_last_us: u64,
    /// The longest that one had none, us.
    pub move_longest_us: u64,
    /// Payload sent by streams that are closed, bytes.
    pub closed_tx_bytes: u64,
    /// Payload received by streams that are closed, bytes.
    pub closed_rx_bytes: u64,
    /// Wakes by programs of streams that are closed.
    pub closed_wakes: u64,
    /// IP packets from the interface into the fabric.
    pub ip_tx_packets: u64,
    /// Their bytes.
    pub ip_tx_bytes: u64,
    /// IP packets from the fabric to the interface.
    pub ip_rx_packets: u64,
    /// Their bytes.
    pub ip_rx_bytes: u64,
    /// IP packets passed on to another host.
    pub ip_forwarded_packets: u64,
    /// IP packets dropped: no way, no room, no packet, or refused.
    pub ip_dropped_packets: u64,
    /// Of those, packets refused since their source is not that of the host that sent them.
    pub ip_refused_packets: u64,
    /// Wakes that the daemon sent for programs.
    pub wakes: u64,
    /// Times that a neighbour or a program broke the protocol.
    pub violations: u64,
    /// Connections that stayed plain TCP, by reason.
    pub plain: BTreeMap<String, u64>,
}

impl Counters {
    /// Counts a stream that found another circuit after this time.
    pub fn moved(&mut self, after: Duration) {
        self.moved += 1;
        self.move_last_us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.move_longest_us = self.move_longest_us.max(self.move_last_us);
    }

    /// Counts a connection that stayed plain TCP.
    pub fn count_plain(&mut self, why: Plain) {
        *self.plain.entry(name_of(why)).or_default() += 1;
    }

    /// Whether a connection stayed plain TCP for this reason before.
    pub fn has_plain(&self, why: Plain) -> bool {
        self.plain.contains_key(&name_of(why))
    }
}

/// The reason as `status`, `explain` and the metrics name it: that of the far daemon, if it was the one that refused.
pub(crate) fn name_of(why: Plain) -> String {
    match why {
        Plain::Refused(refusal) => format!("{refusal:?}"),
        other => format!("{other:?}"),
    }
}
