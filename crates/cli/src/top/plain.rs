//! One look after the other as text or JSON: for pipes, files and programs.

use super::daemon::{self, Probes};
use super::latency::time;
use super::rates::Rates;
use super::state::State;
use crate::args::TopArgs;
use crate::picture::Picture;
use crate::screen::{self, Stop};
use crate::status;
use crate::table::{Table, bit_rate, or_dash};
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::io::{Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Prints looks until a signal ends it.
///
/// # Errors
/// No daemon answers, or it went away; the output is closed.
pub(crate) fn run(socket: &Path, delay: Duration, args: &TopArgs) -> Result<()> {
    let session = status::session(socket)?;
    let stop = Stop::watch()?;
    let mut out = stdout().lock();
    let (mut state, begin, mut shown) = (State::new(status::ask(&session)?), Instant::now(), 0);
    let mut probes = (!args.no_probes).then(|| Probes::start(socket)).transpose()?;
    probe(&mut probes, &mut state)?;
    while args.refreshes.is_none_or(|all| shown < all) && !stop.within(delay) {
        let now = status::ask(&session).map_err(|error| daemon::gone(socket, &error))?;
        state.look(now, begin.elapsed(), SystemTime::now());
        probe(&mut probes, &mut state)?;
        if args.json {
            writeln!(out, "{}", json(&state)?)?;
        } else {
            print(&state, &mut out, screen::width(&stdout()))?;
        }
        out.flush()?;
        shown += 1;
    }
    Ok(())
}

/// Takes in the round trips that were measured, and begins a new round.
fn probe(probes: &mut Option<Probes>, state: &mut State) -> Result<()> {
    let Some(probes) = probes else { return Ok(()) };
    let outcome = probes.collect(&mut state.latencies).and_then(|_| probes.begin(state));
    outcome.map_err(|_| anyhow!("the thread that probes has failed, see above"))
}

/// Prints one look.
fn print(state: &State, out: &mut impl Write, width: usize) -> Result<()> {
    let Some(rates) = state.rates() else { return Ok(()) };
    writeln!(
        out,
        "host {}  streams {} open, {:.1} opened/s  wakes {:.1}/s  stream {} out, {} in  ip {:.0} out, {:.0} in packets/s",
        rates.now.host,
        rates.now.counters.streams_open,
        rates.counter(|it| it.streams_opened),
        rates.counter(|it| it.wakes),
        bit_rate(rates.counter(|it| it.stream_tx_bytes)),
        bit_rate(rates.counter(|it| it.stream_rx_bytes)),
        rates.counter(|it| it.ip_tx_packets),
        rates.counter(|it| it.ip_rx_packets),
    )?;
    let transit = bit_rate(rates.counter(|it| it.transit_bytes));
    writeln!(out, "{}  transit {transit}\n", status::activity(&rates.now.counters))?;
    for line in Picture::new(rates.now, state.seen()).lines(width, screen::unicode()) {
        writeln!(out, "  {line}")?;
    }
    for table in [ports_table(rates), circuits_table(rates), latency_table(state), events_table(state)] {
        if !table.is_empty() {
            writeln!(out)?;
            table.print(out)?;
        }
    }
    Ok(writeln!(out)?)
}

fn ports_table(rates: Rates<'_>) -> Table {
    let mut table = Table::new("port|link|>peer|>out|>in|>streams|>transits");
    for (port, [tx, rx]) in rates.ports() {
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

/// Those that move most come first.
fn circuits_table(rates: Rates<'_>) -> Table {
    let mut table = Table::new(">circuit|program|>pid|client|server|>out|>in");
    let mut all: Vec<_> = rates.circuits().collect();
    all.sort_by(|(_, one), (_, other)| other.iter().sum::<f64>().total_cmp(&one.iter().sum()));
    for (circuit, [tx, rx]) in all {
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

fn latency_table(state: &State) -> Table {
    let mut table = Table::new(">round trip to|>hops|>sent|>lost|>last|>p50|>p90|>p99|>max");
    for (host, trips) in state.latencies.hosts() {
        let at = |percent| or_dash(trips.percentile(percent).map(time));
        table.row([
            host.to_string(),
            or_dash(trips.hops),
            trips.sent.to_string(),
            trips.lost().to_string(),
            or_dash(trips.last().map(time)),
            at(50.0),
            at(90.0),
            at(99.0),
            at(100.0),
        ]);
    }
    table
}

/// What was noticed by this look.
fn events_table(state: &State) -> Table {
    let mut table = Table::new("happened|>host|cause");
    for event in state.events().iter().filter(|event| event.at == state.at()) {
        table.row([event.what.clone(), or_dash(event.host), event.cause.clone()]);
    }
    table
}

fn json(state: &State) -> Result<Value> {
    let Some(rates) = state.rates() else { return Ok(Value::Null) };
    let ports = rates.ports().map(|(port, [tx, rx])| {
        json!({
            "name": port.name, "link": port.link, "peer": port.peer, "epoch": port.epoch,
            "tx_bytes_per_s": tx, "rx_bytes_per_s": rx,
        })
    });
    let circuits = rates.circuits().map(|(circuit, [tx, rx])| {
        let (age, older) = state.age(circuit.id);
        json!({
            "id": circuit.id, "program": circuit.program, "pid": circuit.pid, "client": circuit.client,
            "server": circuit.server, "peer": circuit.peer, "state": circuit.state, "tx_bytes": circuit.tx_bytes,
            "rx_bytes": circuit.rx_bytes, "tx_bytes_per_s": tx, "rx_bytes_per_s": rx,
            "age_s": (!older).then_some(age.as_secs_f64()),
        })
    });
    Ok(json!({
        "host": rates.now.host, "seconds": rates.seconds, "counters_per_s": rates.counters()?,
        "links": rates.now.links, "ports": ports.collect::<Value>(), "circuits": circuits.collect::<Value>(),
        "round_trips_us": state.latencies.json(), "events": state.events().json(state.at()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::{Circuit, Counters, Link, Port, Status};
    use crosslane_wire::{CircuitId, HostId};

    fn port(name: &str, tx_bytes: u64, rx_bytes: u64) -> Port {
        Port { name: name.to_owned(), tx_bytes, rx_bytes, ..Port::default() }
    }

    fn counted(wakes: u64, moves: u64) -> Status {
        Status { counters: Counters { wakes, moves, ..Counters::default() }, ..Status::default() }
    }

    fn after(before: Status, now: Status, seconds: f64) -> State {
        let mut state = State::new(before);
        state.look(now, Duration::from_secs_f64(seconds), SystemTime::UNIX_EPOCH);
        state
    }

    fn text(state: &State) -> String {
        let mut out = Vec::new();
        print(state, &mut out, 80).expect("printed");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn top_rates_are_increases_over_time() {
        let before = Status { ports: vec![port("right", 100, 0)], ..counted(5, 0) };
        let now = Status { ports: vec![port("right", 300, 0), port("left", 50, 0)], ..counted(9, 0) };
        let json = json(&after(before, now, 2.0)).expect("JSON");
        assert_eq!(json["ports"][0]["tx_bytes_per_s"], 100.0);
        assert_eq!(json["ports"][1]["tx_bytes_per_s"], 25.0);
        assert_eq!(json["counters_per_s"]["wakes"], 2.0);
        assert!(json["counters_per_s"].get("plain").is_none());
    }

    #[test]
    fn top_shows_the_ring_and_traffic_of_each_cable() {
        let links = vec![(HostId(1), HostId(2)), (HostId(2), HostId(3))];
        let all = [links.clone(), vec![(HostId(1), HostId(3))]].concat();
        let before =
            Status { host: HostId(1), links: all, ports: vec![port("right", 0, 0)], ..Status::default() };
        let (link, peer) = (Link::Up, Some(HostId(2)));
        let right = Port { link, peer, streams: 3, transits: 5, ..port("right", 125_000_000, 250_000) };
        let now = Status { host: HostId(1), links, ports: vec![right], ..counted(0, 4) };
        let state = after(before, now, 1.0);
        let text = text(&state);
        assert!(text.contains("[h1]") && text.contains("switch-overs 4"), "{text}");
        let row = text.lines().find(|line| line.starts_with("right")).expect("a row").split_whitespace();
        assert_eq!(row.collect::<Vec<_>>(), ["right", "up", "2", "1.0", "Gb/s", "2.0", "Mb/s", "3", "5"]);
        assert_eq!(json(&state).expect("JSON")["links"], json!([[1, 2], [2, 3]]));
    }

    #[test]
    fn top_starts_from_zero_when_a_counter_went_backwards() {
        let state = after(counted(50, 0), counted(4, 0), 1.0);
        assert_eq!(json(&state).expect("JSON")["counters_per_s"]["wakes"], 4.0);
    }

    #[test]
    fn top_text_has_streams_by_load_and_latency() {
        let circuit = |id, program: &str, tx_bytes| Circuit {
            id: CircuitId(id),
            program: program.to_owned(),
            tx_bytes,
            ..Circuit::between(([10, 86, 0, 1], 1).into(), ([10, 86, 0, 2], 2).into())
        };
        let now = Status {
            circuits: vec![circuit(1, "slow", 10), circuit(2, "\x1b[31mfast", 99)],
            ..Status::default()
        };
        let mut state = after(Status::default(), now, 1.0);
        state.latencies.add(HostId(2), Some(12_300), 1);
        let text = text(&state);
        assert!(!text.contains('\x1b') && text.find("?[31mfast") < text.find("slow"), "{text}");
        assert!(text.contains("12.3us"), "{text}");
        let json = json(&state).expect("JSON");
        assert_eq!(json["round_trips_us"][0]["p50"], 12.3);
        assert_eq!((&json["circuits"][0]["age_s"], &json["circuits"][0]["pid"]), (&json!(0.0), &json!(0)));
    }
}
