//! `crosslane status`, `crosslane hosts` and `crosslane metrics`.

use crate::picture::Picture;
use crate::screen;
use crate::table::{Table, bytes, cell};
use anyhow::{Context, Result};
use crosslane_client::session::Session;
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

/// As [`session`], with what the daemon said to the handshake.
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
/// The daemon is gone, or its answer is not JSON.
pub(crate) fn ask(session: &Session) -> Result<Value> {
    serde_json::from_str(&session.text(&Request::Status)?).context("the daemon's status is not JSON")
}

/// Prints the status.
pub(crate) fn status(socket: &Path, as_json: bool) -> Result<()> {
    let status = ask(&session(socket)?)?;
    let mut out = stdout().lock();
    if as_json {
        writeln!(out, "{status:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "host {}  {}  crosslaned {}  up {}  sessions {}\n",
        cell(&status["host"]),
        cell(&status["addresses"]),
        cell(&status["version"]),
        age(&status["uptime_s"]),
        cell(&status["sessions"])
    )?;
    for line in Picture::new(&status, &BTreeSet::new()).lines(screen::width(&out), screen::unicode()) {
        writeln!(out, "  {line}")?;
    }
    writeln!(out, "\n{}\n{}", activity(&status), link_states(&status))?;
    if status["namespaces"] == false {
        writeln!(out, "this kernel cannot tell network namespaces apart: programs of others are refused")?;
    }
    writeln!(out)?;
    let tables = [hosts_table(&status), ports_table(&status), circuits_table(&status), quota_table(&status)];
    for table in tables {
        if !table.is_empty() {
            table.print(&mut out)?;
            writeln!(out)?;
        }
    }
    counters_table(&status).print(&mut out)
}

/// What goes through this host, and how often a stream had to look for another circuit.
pub(crate) fn activity(status: &Value) -> String {
    let counter = |name: &str| status["counters"][name].as_u64().unwrap_or(0);
    format!(
        "streams {}  circuits in transit {}  switch-overs {}",
        counter("streams_open"),
        counter("transits"),
        counter("moves")
    )
}

/// Whether link states are signed and checked, and in whose name some were not believed.
fn link_states(status: &Value) -> String {
    let states = &status["link_states"];
    let word = |key: &str, yes, no| if states[key] == true { yes } else { no };
    let mut text = format!(
        "link states {}, {}",
        word("signed", "signed", "not signed"),
        word("checked", "checked", "not checked")
    );
    for refused in rows(states, "refused") {
        let why = refused["why"].as_str().unwrap_or_default();
        text.push_str(&format!(
            "; host {}: {} refused, {why}",
            cell(&refused["host"]),
            cell(&refused["count"])
        ));
    }
    text
}

fn rows<'a>(status: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    status[key].as_array().into_iter().flatten()
}

fn hosts_table(status: &Value) -> Table {
    let mut table = Table::new(&["host", ">hops", "via", "addresses"]);
    for host in rows(status, "hosts") {
        table.row([cell(&host["id"]), cell(&host["hops"]), cell(&host["via"]), cell(&host["addresses"])]);
    }
    table
}

fn ports_table(status: &Value) -> Table {
    let mut table = Table::new(&[
        "port",
        "kind",
        "link",
        ">peer",
        ">epoch",
        ">window",
        ">in use",
        ">sent",
        ">received",
        ">streams",
        ">transits",
        "why",
    ]);
    for port in rows(status, "ports") {
        table.row([
            cell(&port["name"]),
            cell(&port["kind"]),
            cell(&port["link"]),
            cell(&port["peer"]),
            cell(&port["epoch"]),
            size(&port["window"]),
            size(&port["window_used"]),
            size(&port["tx_bytes"]),
            size(&port["rx_bytes"]),
            cell(&port["streams"]),
            cell(&port["transits"]),
            port["why"].as_str().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

fn circuits_table(status: &Value) -> Table {
    let mut table = Table::new(&[
        ">circuit",
        "client",
        "server",
        ">peer",
        "role",
        "program",
        ">pid",
        "state",
        ">sent",
        ">received",
    ]);
    for circuit in rows(status, "circuits") {
        table.row([
            cell(&circuit["id"]),
            cell(&circuit["client"]),
            cell(&circuit["server"]),
            cell(&circuit["peer"]),
            cell(&circuit["role"]),
            cell(&circuit["program"]),
            cell(&circuit["pid"]),
            cell(&circuit["state"]),
            size(&circuit["tx_bytes"]),
            size(&circuit["rx_bytes"]),
        ]);
    }
    table
}

/// What users and neighbours have, each beside what they may have now.
fn quota_table(status: &Value) -> Table {
    const KINDS: [&str; 6] = ["sessions", "listeners", "circuits", "pending", "descriptors", "memory"];
    let mut table = Table::new(&[
        "user or port",
        ">sessions",
        ">listeners",
        ">circuits",
        ">pending",
        ">descriptors",
        ">memory",
        ">windows",
    ]);
    for payer in rows(&status["quota"], "payers") {
        let who = match payer["user"].as_u64() {
            Some(uid) => format!("user {uid}"),
            None => format!("port {}", cell(&payer["neighbour_at_port"])),
        };
        let holds = &payer["holds"];
        let [sessions, listeners, circuits, pending, descriptors, memory] =
            KINDS.map(|kind| of(&holds[kind], if kind == "memory" { size } else { cell }));
        let windows = rows(holds, "window").map(|window| of(window, size)).collect::<Vec<_>>().join("  ");
        table.row([who, sessions, listeners, circuits, pending, descriptors, memory, windows]);
    }
    table
}

/// What is used, of what may be.
fn of(entry: &Value, show: impl Fn(&Value) -> String) -> String {
    match &entry["limit"] {
        Value::Null => show(&entry["used"]),
        limit => format!("{} of {}", show(&entry["used"]), show(limit)),
    }
}

fn counters_table(status: &Value) -> Table {
    let mut table = Table::new(&["counter", ">value"]);
    for (name, value) in status["counters"].as_object().into_iter().flatten() {
        match value.as_object() {
            // A group of counters, as why connections went plain.
            Some(group) => {
                group.iter().for_each(|(part, value)| table.row([format!("{name}.{part}"), cell(value)]));
            }
            None => table.row([name.clone(), cell(value)]),
        }
    }
    table
}

/// A number of bytes; nothing is `-`.
pub(crate) fn size(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), bytes)
}

fn age(seconds: &Value) -> String {
    let Some(seconds) = seconds.as_f64() else { return "-".to_owned() };
    let (days, rest) = ((seconds / 86400.0).floor(), seconds % 86400.0);
    let (hours, minutes) = ((rest / 3600.0).floor(), (rest % 3600.0 / 60.0).floor());
    if seconds < 60.0 { format!("{seconds:.1} s") } else { format!("{days}d {hours:02}:{minutes:02}") }
}

/// Prints the counters as Prometheus reads them.
pub(crate) fn metrics(socket: &Path) -> Result<()> {
    let text = session(socket)?.text(&Request::Metrics)?;
    write!(stdout().lock(), "{text}")?;
    Ok(())
}

/// Prints the names and addresses of all hosts.
pub(crate) fn hosts(socket: &Path, as_json: bool) -> Result<()> {
    let text = session(socket)?.text(&Request::Hosts)?;
    let mut out = stdout().lock();
    if !as_json {
        write!(out, "{text}")?;
        return Ok(());
    }
    let list: Vec<Value> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?;
            Some(json!({"address": address, "names": words.collect::<Vec<_>>()}))
        })
        .collect();
    writeln!(out, "{:#}", Value::from(list))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_counters_are_spread() {
        let status = json!({"counters": {"wakes": 3, "plain": {"Rule": 1, "NoListener": 2}}});
        let mut out = Vec::new();
        counters_table(&status).print(&mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("plain.NoListener") && text.contains("wakes"), "{text}");
    }

    #[test]
    fn a_port_shows_what_goes_through_it() {
        let port =
            json!({"name": "right", "link": "cut", "streams": 2, "transits": 7, "why": "it was cut here"});
        let status = json!({"ports": [port], "counters": {"moves": 3, "streams_open": 2, "transits": 7}});
        let mut out = Vec::new();
        ports_table(&status).print(&mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(
            text.lines().nth(1).is_some_and(|row| row.ends_with("2         7  it was cut here")),
            "{text}"
        );
        assert_eq!(activity(&status), "streams 2  circuits in transit 7  switch-overs 3");
    }

    #[test]
    fn a_user_sees_what_it_has_and_may_have() {
        let holds = json!({"sessions": {"used": 3, "limit": 9}, "window": [{"used": 1024, "limit": null}]});
        let status = json!({"quota": {"payers": [{"user": 1000, "holds": holds}]}});
        let mut out = Vec::new();
        quota_table(&status).print(&mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("user 1000") && text.contains("3 of 9"), "{text}");
    }

    #[test]
    fn a_status_with_holes_still_prints() {
        let status = json!({"ports": [{"name": "right"}], "hosts": [{}]});
        assert!(!ports_table(&status).is_empty());
        assert!(!hosts_table(&status).is_empty());
        assert!(circuits_table(&status).is_empty());
        assert_eq!(age(&status["uptime_s"]), "-");
    }
}
