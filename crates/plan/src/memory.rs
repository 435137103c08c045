//! Window memory: what a host's ports need for the segments of circuits, as the daemon gives them out.

use crate::load::{Load, Pattern};
use crate::network::{Network, name};
use crate::routes::Routes;
use crosslane_wire::segment::{RING_MIN, segment_len};
use serde::Serialize;

/// The daemon's largest ring unless its configuration says otherwise, bytes.
pub const RING_MAX: u64 = 8 << 20;
/// Bounds of the ring of the IP channel, bytes: the daemon's (`crosslane-node`, `cable.rs`).
const IP_RING: (u64, u64) = (512 << 10, 4 << 20);
/// Smallest window that the daemon takes, bytes (`crosslane-node`, `config.rs`).
pub const WINDOW_MIN: u64 = 896 << 10;
/// The daemon lets streams that grow have all but one part of so many of a window, and gives no ring of which fewer than so many fit.
const KEPT: u64 = 4;
const LONG_STREAMS: u64 = 8;

/// What windows a network needs, bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Streams that each host opens to each other one.
    pub streams: u64,
    /// Most circuits over one cable. Each has a segment in the window at both of its ends.
    pub circuits: u64,
    /// Window of a port with so many circuits if each ring is as short as can be, 64 KB.
    pub port_least: u64,
    /// The same if each ring may be as long as the daemon allows, 8 MB.
    pub port_long: u64,
    /// Windows of all ports of the host that needs most, of rings of 64 KB.
    pub host_least: u64,
    /// The same, of rings of 8 MB.
    pub host_long: u64,
    /// The host that needs most.
    pub host: String,
}

/// Bytes of a window of `window` bytes before its first circuit: the control channel's segment and the IP channel's.
pub fn channels(window: u64) -> u64 {
    let (least, mut ip) = IP_RING;
    while ip > least && ip > window / 4 {
        ip /= 2;
    }
    segment_len(RING_MIN) + segment_len(ip)
}

/// The smallest window that has `circuits` bytes left for circuits.
fn window_for(circuits: u64) -> u64 {
    // A larger window has a longer IP channel; that has four lengths.
    let mut window = circuits + channels(circuits);
    while window - channels(window) < circuits {
        window = circuits + channels(window);
    }
    window.max(WINDOW_MIN)
}

/// The smallest window for so many circuits with rings of 64 KB.
pub fn least_window(circuits: u64) -> u64 {
    window_for(circuits * segment_len(RING_MIN))
}

/// The smallest window in which so many circuits may all have rings of 8 MB: a quarter stays free for new ones.
pub fn long_window(circuits: u64) -> u64 {
    let segments = (circuits * KEPT).div_ceil(KEPT - 1).max(LONG_STREAMS);
    window_for(segments * segment_len(RING_MAX))
}

impl Memory {
    /// For `streams` streams from each host to each other one.
    pub fn new(routes: &Routes<'_>, streams: u64) -> Self {
        let load = Load::new(routes, Pattern::AllToAll, &[]);
        let network = routes.network();
        let circuits = |cable: usize| {
            let ways = [2 * cable, 2 * cable + 1];
            streams * ways.map(|direction| load.own[direction] + load.pumped[direction]).iter().sum::<u64>()
        };
        let most = (0..network.cables().len()).map(circuits).max().unwrap_or(0);
        let of = |host: u16, window: fn(u64) -> u64| -> u64 {
            network.ports(host).iter().map(|(_, direction)| window(circuits(direction / 2))).sum()
        };
        let host = busiest(network, |host| of(host, least_window));
        Self {
            streams,
            circuits: most,
            port_least: least_window(most),
            port_long: long_window(most),
            host_least: of(host, least_window),
            host_long: of(host, long_window),
            host: name(host),
        }
    }
}

/// The first of the hosts that have most.
fn busiest(network: &Network, of: impl Fn(u16) -> u64) -> u16 {
    (0..network.hosts()).rev().max_by_key(|host| of(*host)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn plan_windows_are_the_smallest_that_fit() {
        for circuits in [0, 1, 5, 100, 3000, 100_000] {
            let window = least_window(circuits);
            let fits = |window: u64| window - channels(window) >= circuits * segment_len(RING_MIN);
            assert!(fits(window) && (window == WINDOW_MIN || !fits(window - 4096)), "{circuits}: {window}");
            let window = long_window(circuits);
            let room = window - channels(window);
            assert!(
                room - room / KEPT >= circuits * segment_len(RING_MAX)
                    && room / LONG_STREAMS >= segment_len(RING_MAX)
            );
        }
    }

    #[test]
    fn plan_window_memory_counts_circuits_of_each_cable() {
        let network = Network::new(Topology::Chain, 4).unwrap();
        let memory = Memory::new(&Routes::new(&network), 3);
        // Over h2-h3: two hosts to two, and back, three streams each.
        assert_eq!((memory.circuits, memory.host.as_str()), (24, "h2"));
        assert_eq!(memory.port_least, least_window(24));
        assert_eq!(memory.host_least, least_window(24) + least_window(18));
        assert!(memory.port_long > 100 * memory.port_least);
    }
}
