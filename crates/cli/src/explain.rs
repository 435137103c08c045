//! `crosslane explain`: which way the connections of a program go, and why.
//!
//! The kernel knows which connections the process has, the daemon which of them are streams, why others were refused,
//! and the rules. Each connection gets a row.

use crate::connection::{self, Connection};
use crate::exit;
use crate::modes;
use crate::status;
use crate::table::{Table, cell};
use anyhow::{Context, Result};
use crosslane_wire::local::{Reply, Request, Role, Rule, Use};
use crosslane_wire::rule;
use serde_json::{Value, json};
use std::io::{Write, stdout};
use std::path::Path;

/// Prints which way the connections of process `pid` go, or only that of its descriptor `fd`.
///
/// # Errors
/// No daemon answers; there is no such process, or it has no such connection.
pub(crate) fn explain(socket: &Path, pid: u32, fd: Option<i32>, as_json: bool) -> Result<()> {
    let (session, welcome) = status::greeted(socket)?;
    let rules = if let Reply::Welcome { rules, .. } = welcome { rules } else { Vec::new() };
    let text = session.text(&Request::Explain { pid })?;
    let answer: Value = serde_json::from_str(&text).context("the daemon's answer is not JSON")?;
    if answer["not_yours"] == true {
        return Err(exit::with_code(
            1,
            format!(
                "process {pid} is not yours: ask as its user, as root or as one of the daemon's `operators`"
            ),
        ));
    }
    let Some(connections) = connection::of_process(pid) else {
        return Err(exit::with_code(1, format!("process {pid} is not there, or not yours to look into")));
    };
    let wanted: Vec<Connection> =
        connections.into_iter().filter(|it| fd.is_none_or(|fd| it.fd == fd)).collect();
    if let (Some(fd), true) = (fd, wanted.is_empty()) {
        return Err(exit::with_code(1, format!("descriptor {fd} of process {pid} is no TCP connection")));
    }
    let program = program_of(&answer);
    let rows: Vec<Value> = wanted.iter().map(|it| row(it, &answer, &rules, program.as_deref())).collect();
    let mut out = stdout().lock();
    if as_json {
        writeln!(
            out,
            "{:#}",
            json!({"pid": pid, "program": program, "connections": rows, "daemon": answer})
        )?;
        return Ok(());
    }
    match &program {
        Some(program) => writeln!(out, "{program}, process {pid}\n")?,
        None => writeln!(out, "process {pid} has no session with this daemon: {}\n", no_session(pid))?,
    }
    print(&rows, &mut out)
}

/// Name of the program that the session is of.
fn program_of(answer: &Value) -> Option<String> {
    answer["sessions"].as_array()?.first()?["program"].as_str().map(str::to_owned)
}

fn no_session(pid: u32) -> &'static str {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    if maps.contains("libcrosslane_sockets.so") {
        "it has the library, but used no TCP yet, or has another daemon (its CROSSLANE_SOCKET)"
    } else {
        "it runs without the library (crosslane run starts programs with it)"
    }
}

/// What is known of one connection.
fn row(it: &Connection, answer: &Value, rules: &[Rule], program: Option<&str>) -> Value {
    let mut row = json!({"fd": it.fd, "local": it.local.to_string(), "remote": it.remote.to_string()});
    if let Some(circuit) = circuit_of(it, answer) {
        row["way"] = if circuit["dead"].is_null() { json!("stream") } else { json!("stream, broken off") };
        for field in ["id", "peer", "role", "tx_bytes", "rx_bytes"] {
            row[field] = circuit[field].clone();
        }
        row["why"] = circuit["dead"].clone();
        row["modes"] = modes::of(circuit, rules);
        return row;
    }
    row["way"] = json!("tcp");
    row["why"] = match (note_of(it, answer), program) {
        (Some(why), _) => why,
        (None, Some(program)) => json!(guess(it, rules, program)),
        (None, None) => json!("no library, or no session"),
    };
    row
}

fn circuit_of<'a>(it: &Connection, answer: &'a Value) -> Option<&'a Value> {
    let (local, remote) = (it.local.to_string(), it.remote.to_string());
    answer["circuits"].as_array()?.iter().find(|circuit| {
        let ends = [circuit["client"].as_str(), circuit["server"].as_str()];
        ends == [Some(local.as_str()), Some(remote.as_str())]
            || ends == [Some(remote.as_str()), Some(local.as_str())]
    })
}

/// The last reason that the program gave for the descriptor and the far address.
fn note_of(it: &Connection, answer: &Value) -> Option<Value> {
    let remote = it.remote.to_string();
    let sessions = answer["sessions"].as_array()?;
    let mut notes = sessions.iter().filter_map(|session| session["notes"].as_array()).flatten();
    let fits = |note: &&Value| {
        let fd = note["fd"].as_i64().unwrap_or(-1);
        note["remote"].as_str() == Some(remote.as_str()) && (fd < 0 || fd == i64::from(it.fd))
    };
    notes.rfind(fits).map(|note| match &note["why"] {
        // A refusal of the far daemon is wrapped.
        Value::Object(inner) => inner.values().next().cloned().unwrap_or(Value::Null),
        why => why.clone(),
    })
}

/// Nobody said why: a rule, or the connection is older than what is remembered.
fn guess(it: &Connection, rules: &[Rule], program: &str) -> String {
    let client = rule::decide(rules, Role::Client, program, it.remote);
    let server = rule::decide(rules, Role::Server, program, it.local);
    match (client, server) {
        (Use::Tcp, Use::Tcp) => "Rule: none wants a stream".to_owned(),
        (Use::Tcp, _) => "Rule (if it connected), NotAnnounced (if it accepted)".to_owned(),
        _ => "not remembered: made without the library, or before the daemon started".to_owned(),
    }
}

fn print(rows: &[Value], out: &mut impl Write) -> Result<()> {
    if rows.is_empty() {
        return Ok(writeln!(out, "no TCP connections")?);
    }
    let mut table =
        Table::new(&[">fd", "way", "local", "remote", ">peer", "role", ">sent", ">received", "why"]);
    for row in rows {
        table.row([
            cell(&row["fd"]),
            cell(&row["way"]),
            cell(&row["local"]),
            cell(&row["remote"]),
            cell(&row["peer"]),
            cell(&row["role"]),
            status::size(&row["tx_bytes"]),
            status::size(&row["rx_bytes"]),
            row["why"].as_str().unwrap_or_default().to_owned(),
        ]);
    }
    table.print(out)?;
    modes::print(rows, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(fd: i32, local: &str, remote: &str) -> Connection {
        Connection { fd, local: local.parse().expect("address"), remote: remote.parse().expect("address") }
    }

    fn answer() -> Value {
        json!({
            "circuits": [
                {"client": "10.86.0.1:5", "server": "10.86.0.2:80", "id": 7, "peer": 2, "dead": null, "tx_bytes": 9},
            ],
            "sessions": [{"program": "curl", "notes": [
                {"fd": 4, "remote": "10.86.0.2:81", "why": {"Refused": "NoListener"}},
                {"fd": -1, "remote": "10.86.0.2:82", "why": "OutOfBand"},
            ]}],
        })
    }

    #[test]
    fn each_connection_has_its_way_and_reason() {
        let way = |it| {
            let row = row(&it, &answer(), &[], Some("curl"));
            (row["way"].as_str().map(str::to_owned), row["why"].as_str().map(str::to_owned))
        };
        let is = |way: &str, why: Option<&str>| (Some(way.to_owned()), why.map(str::to_owned));
        assert_eq!(way(connection(3, "10.86.0.1:5", "10.86.0.2:80")), is("stream", None));
        assert_eq!(way(connection(9, "10.86.0.2:80", "10.86.0.1:5")), is("stream", None));
        assert_eq!(way(connection(4, "10.86.0.1:6", "10.86.0.2:81")), is("tcp", Some("NoListener")));
        assert_eq!(way(connection(8, "10.86.0.1:7", "10.86.0.2:82")), is("tcp", Some("OutOfBand")));
        assert_eq!(
            way(connection(5, "127.0.0.1:6", "127.0.0.1:81")),
            is("tcp", Some("Rule: none wants a stream"))
        );
    }

    #[test]
    fn a_process_without_connections_says_so() {
        let mut out = Vec::new();
        print(&[], &mut out).expect("printed");
        assert_eq!(out, b"no TCP connections\n");
    }
}
