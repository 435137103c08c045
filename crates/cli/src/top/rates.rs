//! Rates: the difference between two looks at the status.

use crosslane_status::{Circuit, Counters, Port, Status};
use crosslane_wire::CircuitId;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Two looks, and the time between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates<'a> {
    pub(crate) before: &'a Status,
    pub(crate) now: &'a Status,
    pub(crate) seconds: f64,
}

/// Bytes sent and received.
pub(crate) type Moved = (u64, u64);

/// What a port has moved so far.
pub(crate) fn of_port(port: &Port) -> Moved {
    (port.tx_bytes, port.rx_bytes)
}

/// What a circuit has moved so far.
pub(crate) fn of_circuit(circuit: &Circuit) -> Moved {
    (circuit.tx_bytes, circuit.rx_bytes)
}

/// What this host's streams and IP packets have moved so far.
pub(crate) fn of_host(counters: &Counters) -> Moved {
    (
        counters.stream_tx_bytes.wrapping_add(counters.ip_tx_bytes),
        counters.stream_rx_bytes.wrapping_add(counters.ip_rx_bytes),
    )
}

/// Increase of a counter; one that went backwards has restarted from 0.
pub(crate) fn increase(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

impl<'a> Rates<'a> {
    /// Increase per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(crate) fn of(&self, before: u64, now: u64) -> f64 {
        increase(before, now) as f64 / self.seconds.max(1e-6)
    }

    /// Increase of a counter of the whole host.
    pub(crate) fn counter(&self, read: impl Fn(&Counters) -> u64) -> f64 {
        self.of(read(&self.before.counters), read(&self.now.counters))
    }

    /// Increase of both numbers of a row. A new row starts at 0: all that it has came since the last look.
    pub(crate) fn both(&self, before: Option<Moved>, now: Moved) -> [f64; 2] {
        let before = before.unwrap_or_default();
        [self.of(before.0, now.0), self.of(before.1, now.1)]
    }

    /// The ports now, each with its rates out and in.
    pub(crate) fn ports(self) -> impl Iterator<Item = (&'a Port, [f64; 2])> {
        let was = move |name| self.before.port(name).map(of_port);
        self.now.ports.iter().map(move |now| (now, self.both(was(&now.name), of_port(now))))
    }

    /// The circuits now, each with its rates out and in.
    pub(crate) fn circuits(self) -> impl Iterator<Item = (&'a Circuit, [f64; 2])> {
        let was: HashMap<CircuitId, Moved> =
            self.before.circuits.iter().map(|was| (was.id, of_circuit(was))).collect();
        self.now.circuits.iter().map(move |now| (now, self.both(was.get(&now.id).copied(), of_circuit(now))))
    }

    /// The rates of all counters, by their names in the status.
    pub(crate) fn counters(&self) -> serde_json::Result<Map<String, Value>> {
        let [before, now] = [self.before, self.now].map(|status| serde_json::to_value(&status.counters));
        let (before, now) = (before?, now?);
        let numbers = now.as_object().into_iter().flatten();
        let rate = |(name, now): (&String, &Value)| {
            let was = before[name].as_u64().unwrap_or(0);
            Some((name.clone(), json!(self.of(was, now.as_u64()?))))
        };
        Ok(numbers.filter_map(rate).collect())
    }
}
