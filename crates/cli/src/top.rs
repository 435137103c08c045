//! `crosslane top`: the difference between two looks at the status.

use crate::picture::{self, Link, Picture};
use crate::screen::{self, Stop};
use crate::status;
use crate::table::{Table, bit_rate, cell};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

/// How to show it.
#[derive(Debug)]
pub(crate) struct Top {
    /// How many refreshes; `None` for no end.
    pub(crate) refreshes: Option<u32>,
    /// Time between them.
    pub(crate) delay: Duration,
    /// One JSON line each.
    pub(crate) json: bool,
}

/// Shows rates until told to stop.
///
/// # Errors
/// The daemon is gone.
pub(crate) fn top(socket: &Path, top: &Top) -> Result<()> {
    let session = status::session(socket)?;
    let stop = Stop::watch()?;
    let mut out = stdout().lock();
    let clear = !top.json && out.is_terminal();
    let (mut before, mut then) = (status::ask(&session)?, Instant::now());
    let (mut shown, mut seen) = (0, picture::links(&before));
    while top.refreshes.is_none_or(|all| shown < all) && !stop.within(top.delay) {
        let now = status::ask(&session)?;
        let seconds = then.elapsed().as_secs_f64();
        then = Instant::now();
        let rates = Rates { before: &before, now: &now, seconds };
        if top.json {
            writeln!(out, "{}", rates.json())?;
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
    before: &'a Value,
    now: &'a Value,
    seconds: f64,
}

impl Rates<'_> {
    /// Increase of `key` each second between two looks; what went backwards started anew.
    fn of(&self, before: &Value, now: &Value, key: &str) -> f64 {
        let now = now[key].as_f64().unwrap_or_default();
        let was = before[key].as_f64().unwrap_or_default();
        let grown = if now >= was { now - was } else { now };
        grown / self.seconds.max(1e-6)
    }

    /// Rows of list `list` now, each with the one before that agrees in `id`.
    fn pairs(&self, list: &str, id: &str) -> Vec<(&Value, &Value)> {
        let old = self.before[list].as_array().map(Vec::as_slice).unwrap_or_default();
        let new = self.now[list].as_array().map(Vec::as_slice).unwrap_or_default();
        // A new row begins at nothing: then everything it has is since the last look.
        new.iter()
            .map(|now| (old.iter().find(|was| was[id] == now[id]).unwrap_or(&Value::Null), now))
            .collect()
    }

    /// Prints one look; `seen` are the links that there have been since the first.
    fn print(&self, out: &mut impl Write, seen: &BTreeSet<Link>, width: usize) -> Result<()> {
        let counters = |key| self.of(&self.before["counters"], &self.now["counters"], key);
        writeln!(
            out,
            "host {}  streams {} open, {:.1} opened/s  wakes {:.1}/s  stream {} out, {} in  ip {:.0} out, {:.0} in packets/s",
            cell(&self.now["host"]),
            cell(&self.now["counters"]["streams_open"]),
            counters("streams_opened"),
            counters("wakes"),
            bit_rate(counters("stream_tx_bytes")),
            bit_rate(counters("stream_rx_bytes")),
            counters("ip_tx_packets"),
            counters("ip_rx_packets"),
        )?;
        let transit = bit_rate(counters("transit_bytes"));
        writeln!(out, "{}  transit {transit}\n", status::activity(self.now))?;
        for line in Picture::new(self.now, seen).lines(width, screen::unicode()) {
            writeln!(out, "  {line}")?;
        }
        let mut ports = Table::new(&["port", "link", ">peer", ">out", ">in", ">streams", ">transits"]);
        for (was, now) in self.pairs("ports", "name") {
            let rate = |key| bit_rate(self.of(was, now, key));
            ports.row([
                cell(&now["name"]),
                cell(&now["link"]),
                cell(&now["peer"]),
                rate("tx_bytes"),
                rate("rx_bytes"),
                cell(&now["streams"]),
                cell(&now["transits"]),
            ]);
        }
        let mut circuits = Table::new(&[">circuit", "program", ">pid", "client", "server", ">out", ">in"]);
        for (was, now) in self.pairs("circuits", "id") {
            let rate = |key| bit_rate(self.of(was, now, key));
            circuits.row([
                cell(&now["id"]),
                cell(&now["program"]),
                cell(&now["pid"]),
                cell(&now["client"]),
                cell(&now["server"]),
                rate("tx_bytes"),
                rate("rx_bytes"),
            ]);
        }
        for table in [ports, circuits] {
            if !table.is_empty() {
                writeln!(out)?;
                table.print(out)?;
            }
        }
        writeln!(out)?;
        Ok(())
    }

    fn json(&self) -> Value {
        let list = |list: &str, id: &str| -> Vec<Value> {
            let rate = |was: &Value, now: &Value| json!({id: now[id], "tx_bytes_per_s": self.of(was, now, "tx_bytes"), "rx_bytes_per_s": self.of(was, now, "rx_bytes")});
            self.pairs(list, id).into_iter().map(|(was, now)| rate(was, now)).collect()
        };
        let numbers =
            self.now["counters"].as_object().into_iter().flatten().filter(|(_, value)| value.is_number());
        let counters: serde_json::Map<String, Value> = numbers
            .map(|(name, _)| {
                (name.clone(), json!(self.of(&self.before["counters"], &self.now["counters"], name)))
            })
            .collect();
        json!({"host": self.now["host"], "seconds": self.seconds, "counters_per_s": counters,
               "links": self.now["links"], "ports": list("ports", "name"), "circuits": list("circuits", "id")})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_increases_over_time() {
        let before = json!({"ports": [{"name": "right", "tx_bytes": 100}], "counters": {"wakes": 5}});
        let now = json!({"host": 1, "counters": {"wakes": 9, "plain": {}},
            "ports": [{"name": "right", "tx_bytes": 300}, {"name": "left", "tx_bytes": 50}]});
        let rates = Rates { before: &before, now: &now, seconds: 2.0 };
        let json = rates.json();
        assert_eq!(json["ports"][0]["tx_bytes_per_s"], 100.0);
        assert_eq!(json["ports"][1]["tx_bytes_per_s"], 25.0);
        assert_eq!(json["counters_per_s"]["wakes"], 2.0);
        assert!(json["counters_per_s"].get("plain").is_none());
    }

    #[test]
    fn a_look_has_the_ring_and_what_goes_through_each_cable() {
        let before = json!({"ports": [{"name": "right", "tx_bytes": 0, "rx_bytes": 0}]});
        let now = json!({"host": 1, "links": [[1, 2], [2, 3]], "counters": {"moves": 4},
            "ports": [{"name": "right", "link": "up", "peer": 2, "tx_bytes": 125_000_000, "rx_bytes": 250_000,
                       "streams": 3, "transits": 5}]});
        let rates = Rates { before: &before, now: &now, seconds: 1.0 };
        let mut out = Vec::new();
        rates.print(&mut out, &BTreeSet::from([(1, 3)]), 80).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("[h1]") && text.contains("switch-overs 4"), "{text}");
        let row = text.lines().find(|line| line.starts_with("right")).expect("a row").split_whitespace();
        assert_eq!(row.collect::<Vec<_>>(), ["right", "up", "2", "1.0", "Gb/s", "2.0", "Mb/s", "3", "5"]);
        assert_eq!(rates.json()["links"], json!([[1, 2], [2, 3]]));
    }

    #[test]
    fn a_restarted_daemon_counts_from_nothing() {
        let (before, now) = (json!({"counters": {"wakes": 50}}), json!({"counters": {"wakes": 4}}));
        let rates = Rates { before: &before, now: &now, seconds: 1.0 };
        assert_eq!(rates.json()["counters_per_s"]["wakes"], 4.0);
    }
}
