//! `crosslane status`, `crosslane hosts` and `crosslane metrics`.

use crate::picture::Picture;
use crate::screen;
use crate::table::{Table, list, or_dash, size};
use anyhow::Result;
use crosslane_client::session::Session;
use crosslane_status::{
    Circuit, Counters, Host, LinkStates, Pacing, Port, Quota, RefusedStates, Status, Use,
};
use crosslane_wire::local::{Reply, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::Path;

/// A session of this tool with the daemon at `socket`.
///
/// # Errors
/// No daemon answers, or it refuses us.
pub(crate) fn session(socket: &Path) -> Result<Session> {
    Ok(greeted(socket)?.0)
}

/// As [`session`], with the daemon's answer to the handshake.
///
/// # Errors
/// As [`session`].
pub(crate) fn greeted(socket: &Path) -> Result<(Session, Reply)> {
    let session = Session::connect(socket)?;
    let welcome = session.hello("crosslane")?;
    Ok((session, welcome))
}

/// The daemon's status.
///
/// # Errors
/// The daemon is gone, or its answer is none, or of another schema.
pub(crate) fn ask(session: &Session) -> Result<Status> {
    Ok(Status::parse(&session.text(&Request::Status)?)?)
}

/// Prints the status.
pub(crate) fn status(socket: &Path, as_json: bool) -> Result<()> {
    let status = ask(&session(socket)?)?;
    let mut out = stdout().lock();
    if as_json {
        return Ok(writeln!(out, "{status:#}")?);
    }
    writeln!(
        out,
        "host {}  {}  crosslaned {}  up {}  sessions {}\n",
        status.host,
        list(&status.addresses),
        status.version,
        age(status.uptime_s),
        status.sessions
    )?;
    for line in Picture::new(&status, &BTreeSet::new()).lines(screen::width(&out), screen::unicode()) {
        writeln!(out, "  {line}")?;
    }
    writeln!(out, "\n{}\n{}", activity(&status.counters), link_states(&status.link_states))?;
    if status.duplicate_id {
        writeln!(out, "another host has the id {}, or speaks in its name", status.host)?;
    }
    if !status.namespaces {
        writeln!(out, "this kernel cannot tell network namespaces apart: programs of others are refused")?;
    }
    writeln!(out)?;
    let [hosts, ports] = [hosts_table(&status.hosts), ports_table(&status.ports)];
    for table in [hosts, ports, circuits_table(&status.circuits), quota_table(&status.quota)] {
        if !table.is_empty() {
            table.print(&mut out)?;
            writeln!(out)?;
        }
    }
    counters_table(&status.counters)?.print(&mut out)
}

/// Traffic of this host, and how often a stream had to look for another circuit.
pub(crate) fn activity(counters: &Counters) -> String {
    format!(
        "streams {}  circuits in transit {}  switch-overs {}",
        counters.streams_open, counters.transits, counters.moves
    )
}

/// Whether link states are signed and checked, and in whose name some were refused.
fn link_states(states: &LinkStates) -> String {
    let signed = if states.signed { "signed" } else { "not signed" };
    let checked = if states.checked { "checked" } else { "not checked" };
    let mut text = format!("link states {signed}, {checked}");
    for RefusedStates { host, count, why } in &states.refused {
        text.push_str(&format!("; host {host}: {count} refused, {why}"));
    }
    text
}

fn hosts_table(hosts: &[Host]) -> Table {
    let mut table = Table::new("host|>hops|via|addresses");
    for host in hosts {
        let (hops, via) = (or_dash(host.hops), or_dash(host.via.as_ref()));
        table.row([host.id.to_string(), hops, via, list(&host.addresses)]);
    }
    table
}

fn ports_table(ports: &[Port]) -> Table {
    let mut table =
        Table::new("port|kind|link|>peer|>epoch|>window|>in use|>sent|>received|>streams|>transits|why");
    for port in ports {
        table.row([
            port.name.clone(),
            port.kind.clone(),
            port.link.to_string(),
            or_dash(port.peer),
            port.epoch.to_string(),
            size(port.window),
            size(port.window_used),
            size(port.tx_bytes),
            size(port.rx_bytes),
            port.streams.to_string(),
            port.transits.to_string(),
            port.why.clone().or_else(|| port.pacing.as_ref().map(kept)).unwrap_or_default(),
        ]);
    }
    table
}

/// How well the times of a cable were kept, in a few words.
pub(crate) fn kept(pacing: &Pacing) -> String {
    let (cable, late) = (&pacing.cable, 100.0 * pacing.late());
    if late < 1.0 { format!("as {cable}") } else { format!("as {cable}, too slow: {late:.0} % late") }
}

fn circuits_table(circuits: &[Circuit]) -> Table {
    let mut table = Table::new(">circuit|client|server|>peer|role|program|>pid|state|>sent|>received");
    for circuit in circuits {
        table.row([
            circuit.id.to_string(),
            circuit.client.to_string(),
            circuit.server.to_string(),
            circuit.peer.to_string(),
            circuit.role.to_string(),
            circuit.program.clone(),
            circuit.pid.to_string(),
            circuit.state.to_string(),
            size(circuit.tx_bytes),
            size(circuit.rx_bytes),
        ]);
    }
    table
}

/// Resources of users and neighbours, each beside its present limit.
fn quota_table(quota: &Quota) -> Table {
    let mut table =
        Table::new("user or port|>sessions|>listeners|>circuits|>pending|>descriptors|>memory|>windows");
    let count = |it: Use| of(it.used, it.limit, |value| value.to_string());
    for payer in &quota.payers {
        let holds = &payer.holds;
        let windows = holds.window.iter().map(|window| of(window.used, window.limit, size));
        table.row([
            match payer.user {
                Some(uid) => format!("user {uid}"),
                None => format!("port {}", or_dash(payer.neighbour_at_port)),
            },
            count(holds.sessions),
            count(holds.listeners),
            count(holds.circuits),
            count(holds.pending),
            count(holds.descriptors),
            of(holds.memory.used, holds.memory.limit, size),
            windows.collect::<Vec<_>>().join("  "),
        ]);
    }
    table
}

/// Used of available.
fn of(used: u64, limit: Option<u64>, show: impl Fn(u64) -> String) -> String {
    match limit {
        None => show(used),
        Some(limit) => format!("{} of {}", show(used), show(limit)),
    }
}

/// Each counter by its name in the document.
fn counters_table(counters: &Counters) -> Result<Table> {
    let mut table = Table::new("counter|>value");
    for (name, value) in serde_json::to_value(counters)?.as_object().into_iter().flatten() {
        match value.as_object() {
            // A group of counters, such as the reasons for plain connections.
            Some(group) => {
                let parts = group.iter();
                parts.for_each(|(part, value)| table.row([format!("{name}.{part}"), value.to_string()]));
            }
            None => table.row([name.clone(), value.to_string()]),
        }
    }
    Ok(table)
}

fn age(seconds: f64) -> String {
    let (days, rest) = ((seconds / 86400.0).floor(), seconds % 86400.0);
    let (hours, minutes) = ((rest / 3600.0).floor(), (rest % 3600.0 / 60.0).floor());
    if seconds < 60.0 { format!("{seconds:.1} s") } else { format!("{days}d {hours:02}:{minutes:02}") }
}

/// Prints the counters as Prometheus reads them.
pub(crate) fn metrics(socket: &Path) -> Result<()> {
    let text = session(socket)?.text(&Request::Metrics)?;
    Ok(write!(stdout().lock(), "{text}")?)
}

/// Prints the names and addresses of all hosts.
pub(crate) fn hosts(socket: &Path, as_json: bool) -> Result<()> {
    let text = session(socket)?.text(&Request::Hosts)?;
    let mut out = stdout().lock();
    if !as_json {
        return Ok(write!(out, "{text}")?);
    }
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next()?;
        Some(json!({"address": address, "names": words.collect::<Vec<_>>()}))
    };
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    Ok(writeln!(out, "{:#}", lines.filter_map(row).collect::<Value>())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::{Holds, Link, Payer, WindowUse};

    #[test]
    fn status_says_where_a_cable_was_faster_than_this_machine() {
        let of = |late_bytes| Pacing {
            cable: "gen1 x1".to_owned(),
            landed_bytes: 200,
            late_bytes,
            worst_us: 3.0,
            acknowledged_bytes: 0,
        };
        assert_eq!(kept(&of(1)), "as gen1 x1");
        assert_eq!(kept(&of(26)), "as gen1 x1, too slow: 13 % late");
    }

    fn printed(table: &Table) -> String {
        let mut out = Vec::new();
        table.print(&mut out).expect("printed");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn status_spreads_groups_of_counters() {
        let plain = [("Rule".to_owned(), 1), ("NoListener".to_owned(), 2)].into();
        let text =
            printed(&counters_table(&Counters { wakes: 3, plain, ..Counters::default() }).expect("counters"));
        assert!(text.contains("plain.NoListener") && text.contains("wakes"), "{text}");
    }

    #[test]
    fn status_port_shows_its_traffic() {
        let text = printed(&ports_table(&[Port {
            name: "right".to_owned(),
            link: Link::Cut,
            streams: 2,
            transits: 7,
            why: Some("it was cut here".to_owned()),
            ..Port::default()
        }]));
        let row = text.lines().nth(1);
        assert!(row.is_some_and(|row| row.ends_with("2         7  it was cut here")), "{text}");
        let counters = Counters { moves: 3, streams_open: 2, transits: 7, ..Counters::default() };
        assert_eq!(activity(&counters), "streams 2  circuits in transit 7  switch-overs 3");
    }

    #[test]
    fn status_user_shows_its_use_and_quota() {
        let sessions = Use { used: 3, limit: Some(9) };
        let window = vec![WindowUse { port: 0, used: 1024, limit: None }];
        let holds = Holds { sessions, window, ..Holds::default() };
        let payers = vec![Payer { user: Some(1000), neighbour_at_port: None, holds }];
        let text = printed(&quota_table(&Quota { payers, ..Quota::default() }));
        assert!(text.contains("user 1000") && text.contains("3 of 9") && text.contains("1.0 KiB"), "{text}");
    }

    #[test]
    fn status_shows_unknown_values_as_a_dash() {
        let text = printed(&hosts_table(&[Host::default()]));
        assert!(text.lines().nth(1).is_some_and(|row| row.contains("-  -")), "{text}");
        assert!(circuits_table(&[]).is_empty());
        assert_eq!((age(59.0), age(90061.0)), ("59.0 s".to_owned(), "1d 01:01".to_owned()));
    }
}
