//! The text: counters in Prometheus' format. Any user may read it: it names ports and reasons, and no user, program or address.

use crate::snapshot::{PortRow, Snapshot};
use std::collections::BTreeMap;
use std::fmt::Write as _;

impl Snapshot {
    /// The text that answers `Metrics`.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let (totals, c) = (self.stream_totals(), &self.head.counters);
        for (name, kind, help, value) in [
            ("streams_opened_total", "counter", "Stream ends that programs got.", c.streams_opened),
            ("streams_open", "gauge", "Stream ends that programs hold.", totals.open),
            ("streams_closed_total", "counter", "Stream ends closed in order.", c.streams_closed),
            ("streams_aborted_total", "counter", "Stream ends broken off here.", c.streams_aborted),
            ("stream_tx_bytes_total", "counter", "Payload sent by streams.", totals.tx_bytes),
            ("stream_rx_bytes_total", "counter", "Payload received by streams.", totals.rx_bytes),
            ("ip_tx_packets_total", "counter", "IP packets into the fabric.", c.ip_tx_packets),
            ("ip_rx_packets_total", "counter", "IP packets out of the fabric.", c.ip_rx_packets),
            ("ip_tx_bytes_total", "counter", "Bytes of IP into the fabric.", c.ip_tx_bytes),
            ("ip_rx_bytes_total", "counter", "Bytes of IP out of the fabric.", c.ip_rx_bytes),
            ("ip_forwarded_packets_total", "counter", "IP packets passed on.", c.ip_forwarded_packets),
            ("ip_dropped_packets_total", "counter", "IP packets dropped.", c.ip_dropped_packets),
            (
                "ip_refused_packets_total",
                "counter",
                "IP packets with a source that is not their sender's.",
                c.ip_refused_packets,
            ),
            ("moves_total", "counter", "Streams that lost their circuit and looked for another.", c.moves),
            ("transits", "gauge", "Circuits that pass through this host.", self.head.transits as u64),
            (
                "transit_bytes_total",
                "counter",
                "Payload that passed through this host.",
                self.transit_bytes(),
            ),
            ("wakes_total", "counter", "Wakes of sleeping waiters.", c.wakes.wrapping_add(totals.wakes)),
            (
                "link_states_refused_total",
                "counter",
                "Link states that were not believed since the keys were read.",
                self.head.refused.values().map(|refused| refused.count).sum(),
            ),
            ("violations_total", "counter", "Broken protocols.", c.violations),
            ("sessions", "gauge", "Programs and tools connected.", self.sessions.len() as u64),
            ("hosts", "gauge", "Hosts in reach.", self.hosts.len() as u64),
        ] {
            let _ = writeln!(
                text,
                "# HELP crosslane_{name} {help}\n# TYPE crosslane_{name} {kind}\ncrosslane_{name} {value}"
            );
        }
        self.write_ports(&mut text);
        let _ = writeln!(text, "# HELP crosslane_plain_total Connections that stayed TCP, by reason.");
        let _ = writeln!(text, "# TYPE crosslane_plain_total counter");
        for (why, count) in &c.plain {
            let _ = writeln!(text, "crosslane_plain_total{{why=\"{why}\"}} {count}");
        }
        self.write_quotas(&mut text);
        text
    }

    fn write_quotas(&self, text: &mut String) {
        let _ =
            writeln!(text, "# HELP crosslane_quota_refused_total Times that a quota was used up, by kind.");
        let _ = writeln!(text, "# TYPE crosslane_quota_refused_total counter");
        let mut sums = BTreeMap::new();
        for (kind, refused) in self.books.refusals() {
            *sums.entry(kind.name()).or_insert(0) += refused;
        }
        for (kind, refused) in sums {
            let _ = writeln!(text, "crosslane_quota_refused_total{{kind=\"{kind}\"}} {refused}");
        }
    }

    fn write_ports(&self, text: &mut String) {
        type Read = fn(&PortRow, (u64, u64)) -> u64;
        let series: [(&str, &str, &str, Read); 5] = [
            ("port_up", "gauge", "Whether the cable is up.", |port, _| u64::from(port.peer.is_some())),
            ("port_epoch", "gauge", "The cable's epoch.", |port, _| u64::from(port.epoch.0)),
            ("port_window_used_bytes", "gauge", "Inbound memory given out.", |port, _| port.window.1),
            ("port_tx_bytes_total", "counter", "Bytes sent.", |_, (tx, _)| tx),
            ("port_rx_bytes_total", "counter", "Bytes received.", |_, (_, rx)| rx),
        ];
        let moved = self.port_bytes();
        for (name, kind, help, read) in series {
            let _ = writeln!(text, "# HELP crosslane_{name} {help}\n# TYPE crosslane_{name} {kind}");
            for port in &self.head.ports {
                let label = port.name.replace(['\\', '"', '\n'], "_");
                let value = read(port, moved.get(&port.id).copied().unwrap_or_default());
                let _ = writeln!(text, "crosslane_{name}{{port=\"{label}\"}} {value}");
            }
        }
    }
}
