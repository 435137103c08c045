//! `crosslane top`: the difference between two looks at the status.

use crate::args::TopArgs;
use crate::picture::{self, Link, Picture};
use crate::screen::{self, Stop};
use crate::status;
use crate::table::{Table, bit_rate, or_dash};
use anyhow::Result;
use crosslane_status::{Circuit, Counters, Port, Status};
use crosslane_wire::CircuitId;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

/// Shows rates until a signal ends it.
///
/// # Errors
/// The daemon is gone.
pub(crate) fn top(socket: &Path, delay: Duration, args: &TopArgs) -> Result<()> {
    let session = status::session(socket)?;
    let stop = Stop::watch()?;
    let mut out = stdout().lock();
    let clear = !args.json && out.is_terminal();
    let (mut before, mut then) = (status::ask(&session)?, Instant::now());
    let (mut shown, mut seen) = (0, picture::links(&before));
    while args.refreshes.is_none_or(|all| shown < all) && !stop.within(delay) {
        let now = status::ask(&session)?;
        let seconds = then.elapsed().as_secs_f64();
        then = Instant::now();
        let rates = Rates { before: &before, now: &now, seconds };
        if args.json {
            writeln!(out, "{}", rates.json()?)?;
        } else {
            if clear {
                write!(out, "\x1b[H\x1b[2J")?;
            }
            rates.print(&mut out, &seen, screen::width(&stdout()))?;
        }
        seen.extend(picture::links(&now));
        out.flush()?;
        before = now;
        shown += 1;
    }
    Ok(())
}

struct Rates<'a> {
    before: &'a Status,
    now: &'a Status,
    seconds: f64,
}

/// The traffic of a row: bytes sent and received.
type Moved = (u64, u64);

impl Rates<'_> {
    /// Increase per second between two looks; a counter that went backwards has restarted from 0.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn of(&self, before: u64, now: u64) -> f64 {
        now.checked_sub(before).unwrap_or(now) as f64 / self.seconds.max(1e-6)
    }

    /// Increase of a counter of the whole host.
    fn counter(&self, read: impl Fn(&Counters) -> u64) -> f64 {
        self.of(read(&self.before.counters), read(&self.now.counters))
    }

    /// Increase of both numbers of a row. A new row starts at 0: all that it has came since the last look.
    fn both(&self, before: Option<Moved>, now: Moved) -> [f64; 2] {
        let before = before.unwrap_or_default();
        [self.of(before.0, now.0), self.of(before.1, now.1)]
    }

    /// The ports now, each with its rates out and in.
    fn ports(&self) -> impl Iterator<Item = (&Port, [f64; 2])> {
        let moved = |port: &Port| (port.tx_bytes, port.rx_bytes);
        let was = move |name| self.before.port(name).map(moved);
        self.now.ports.iter().map(move |now| (now, self.both(was(&now.name), moved(now))))
    }

    /// The circuits now, each with its rates out and in.
    fn circuits(&self) -> impl Iterator<Item = (&Circuit, [f64; 2])> {
        let moved = |circuit: &Circuit| (circuit.tx_bytes, circuit.rx_bytes);
        let was: HashMap<CircuitId, Moved> =
            self.before.circuits.iter().map(|was| (was.id, moved(was))).collect();
        self.now.circuits.iter().map(move |now| (now, self.both(was.get(&now.id).copied(), moved(now))))
    }

    /// Prints one look; `seen` are all links since the first look.
    fn print(&self, out: &mut impl Write, seen: &BTreeSet<Link>, width: usize) -> Result<()> {
        writeln!(
            out,
            "host {}  streams {} open, {:.1} opened/s  wakes {:.1}/s  stream {} out, {} in  ip {:.0} out, {:.0} in packets/s",
            self.now.host,
            self.now.counters.streams_open,
            self.counter(|it| it.streams_opened),
            self.counter(|it| it.wakes),
            bit_rate(self.counter(|it| it.stream_tx_bytes)),
            bit_rate(self.counter(|it| it.stream_rx_bytes)),
            self.counter(|it| it.ip_tx_packets),
            self.counter(|it| it.ip_rx_packets),
        )?;
        let transit = bit_rate(self.counter(|it| it.transit_bytes));
        writeln!(out, "{}  transit {transit}\n", status::activity(&self.now.counters))?;
        for line in Picture::new(self.now, seen).lines(width, screen::unicode()) {
            writeln!(out, "  {line}")?;
        }
        for table in [self.ports_table(), self.circuits_table()] {
            if !table.is_empty() {
                writeln!(out)?;
                table.print(out)?;
            }
        }
        Ok(writeln!(out)?)
    }

    fn ports_table(&self) -> Table {
        let mut table = Table::new("port|link|>peer|>out|>in|>streams|>transits");
        for (port, [tx, rx]) in self.ports() {
            table.row([
                port.name.clone(),
                port.link.to_string(),
                or_dash(port.peer),
                bit_rate(tx),
                bit_rate(rx),
                port.streams.to_string(),
                port.transits.to_string(),
            ]);
        }
        table
    }

    fn circuits_table(&self) -> Table {
        let mut table = Table::new(">circuit|program|>pid|client|server|>out|>in");
        for (circuit, [tx, rx]) in self.circuits() {
            table.row([
                circuit.id.to_string(),
                circuit.program.clone(),
                circuit.pid.to_string(),
                circuit.client.to_string(),
                circuit.server.to_string(),
                bit_rate(tx),
                bit_rate(rx),
            ]);
        }
        table
    }

    fn json(&self) -> Result<Value> {
        let rates = |[tx, rx]: [f64; 2]| json!({"tx_bytes_per_s": tx, "rx_bytes_per_s": rx});
        let row = |key: &str, name: Value, both| {
            let mut row = rates(both);
            row[key] = name;
            row
        };
        let ports: Vec<Value> = self.ports().map(|(it, both)| row("name", json!(it.name), both)).collect();
        let circuits: Vec<Value> = self.circuits().map(|(it, both)| row("id", json!(it.id), both)).collect();
        Ok(json!({"host": self.now.host, "seconds": self.seconds, "counters_per_s": self.counters()?,
                  "links": self.now.links, "ports": ports, "circuits": circuits}))
    }

    /// The rates of all counters, by their names in the status.
    fn counters(&self) -> Result<Map<String, Value>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status as status;
    use crosslane_wire::HostId;

    fn port(name: &str, tx_bytes: u64, rx_bytes: u64) -> Port {
        Port { name: name.to_owned(), tx_bytes, rx_bytes, ..Port::default() }
    }

    fn counted(wakes: u64, moves: u64) -> Status {
        Status { counters: Counters { wakes, moves, ..Counters::default() }, ..Status::default() }
    }

    #[test]
    fn top_rates_are_increases_over_time() {
        let before = Status { ports: vec![port("right", 100, 0)], ..counted(5, 0) };
        let now = Status { ports: vec![port("right", 300, 0), port("left", 50, 0)], ..counted(9, 0) };
        let rates = Rates { before: &before, now: &now, seconds: 2.0 };
        let json = rates.json().expect("JSON");
        assert_eq!(json["ports"][0]["tx_bytes_per_s"], 100.0);
        assert_eq!(json["ports"][1]["tx_bytes_per_s"], 25.0);
        assert_eq!(json["counters_per_s"]["wakes"], 2.0);
        assert!(json["counters_per_s"].get("plain").is_none());
    }

    #[test]
    fn top_shows_the_ring_and_traffic_of_each_cable() {
        let before = Status { ports: vec![port("right", 0, 0)], ..Status::default() };
        let (link, peer) = (status::Link::Up, Some(HostId(2)));
        let right = Port { link, peer, streams: 3, transits: 5, ..port("right", 125_000_000, 250_000) };
        let links = vec![(HostId(1), HostId(2)), (HostId(2), HostId(3))];
        let now = Status { host: HostId(1), links, ports: vec![right], ..counted(0, 4) };
        let rates = Rates { before: &before, now: &now, seconds: 1.0 };
        let mut out = Vec::new();
        rates.print(&mut out, &BTreeSet::from([(1, 3)]), 80).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("[h1]") && text.contains("switch-overs 4"), "{text}");
        let row = text.lines().find(|line| line.starts_with("right")).expect("a row").split_whitespace();
        assert_eq!(row.collect::<Vec<_>>(), ["right", "up", "2", "1.0", "Gb/s", "2.0", "Mb/s", "3", "5"]);
        assert_eq!(rates.json().expect("JSON")["links"], json!([[1, 2], [2, 3]]));
    }

    #[test]
    fn top_starts_from_zero_after_a_daemon_restart() {
        let (before, now) = (counted(50, 0), counted(4, 0));
        let rates = Rates { before: &before, now: &now, seconds: 1.0 };
        assert_eq!(rates.json().expect("JSON")["counters_per_s"]["wakes"], 4.0);
    }
}
