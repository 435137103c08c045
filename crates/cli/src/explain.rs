//! `crosslane explain`: whether the connections of a program are streams or TCP, and why.
//!
//! The kernel knows which connections the process has, the daemon which of them are streams, why others were refused,
//! and the rules. Each connection gets a row.

use crate::connection::{self, Connection};
use crate::modes::{self, Modes};
use crate::status;
use crate::table::{Table, or_dash, size};
use anyhow::{Result, bail};
use crosslane_status::{Circuit, Explanation, Note, Role};
use crosslane_wire::local::{self, Reply, Request, Rule, Use};
use crosslane_wire::{CircuitId, HostId, rule};
use serde::Serialize;
use serde_json::json;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::Path;

/// Prints which way the connections of process `pid` go, or only that of its descriptor `fd`.
///
/// # Errors
/// No daemon answers; there is no such process, or it has no such connection.
pub(crate) fn explain(socket: &Path, pid: u32, fd: Option<i32>, as_json: bool) -> Result<()> {
    let (session, welcome) = status::greeted(socket)?;
    let rules = if let Reply::Welcome { rules, .. } = welcome { rules } else { Vec::new() };
    let text = session.text(&Request::Explain { pid })?;
    let answer = Explanation::parse(&text)?;
    if answer.not_yours {
        bail!("process {pid} is not yours: ask as its user, as root or as one of the daemon's `operators`");
    }
    let Some(connections) = connection::of_process(pid) else {
        bail!("process {pid} is not there, or not yours to look into");
    };
    let wanted: Vec<Connection> =
        connections.into_iter().filter(|it| fd.is_none_or(|fd| it.fd == fd)).collect();
    if let (Some(fd), true) = (fd, wanted.is_empty()) {
        bail!("descriptor {fd} of process {pid} is no TCP connection");
    }
    let program = answer.sessions.first().map(|session| session.program.as_str());
    let rows: Vec<Row> = wanted.iter().map(|it| row(it, &answer, &rules, program)).collect();
    let mut out = stdout().lock();
    if as_json {
        let all = json!({"pid": pid, "program": program, "connections": rows, "daemon": answer});
        return Ok(writeln!(out, "{all:#}")?);
    }
    match program {
        Some(program) => writeln!(out, "{program}, process {pid}\n")?,
        None => writeln!(out, "process {pid} has no session with this daemon: {}\n", no_session(pid))?,
    }
    print(&rows, &mut out)
}

fn no_session(pid: u32) -> &'static str {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    if maps.contains("libcrosslane_sockets.so") {
        "it has the library, but used no TCP yet, or has another daemon (its CROSSLANE_SOCKET)"
    } else {
        "it runs without the library (crosslane run starts programs with it)"
    }
}

/// The facts about one connection.
#[derive(Debug, Serialize)]
struct Row {
    fd: i32,
    local: SocketAddr,
    remote: SocketAddr,
    /// `stream`, `striped stream`, `stream, broken off` or `tcp`.
    way: &'static str,
    /// Why it is no stream, or broken off.
    why: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    stream: Option<Streamed>,
}

/// The details of a stream.
#[derive(Debug, Serialize)]
struct Streamed {
    id: CircuitId,
    peer: HostId,
    role: Role,
    tx_bytes: u64,
    rx_bytes: u64,
    modes: Modes,
}

fn row(it: &Connection, answer: &Explanation, rules: &[Rule], program: Option<&str>) -> Row {
    let Connection { fd, local, remote } = *it;
    if let Some(circuit) = circuit_of(it, answer) {
        let twin = answer.circuits.iter().find(|other| other.twin_of == Some(circuit.id));
        let way = match (circuit.dead, twin) {
            (Some(_), _) => "stream, broken off",
            (None, Some(_)) => "striped stream",
            (None, None) => "stream",
        };
        let stream = Streamed {
            id: circuit.id,
            peer: circuit.peer,
            role: circuit.role,
            tx_bytes: circuit.tx_bytes + twin.map_or(0, |twin| twin.tx_bytes),
            rx_bytes: circuit.rx_bytes + twin.map_or(0, |twin| twin.rx_bytes),
            modes: modes::of(circuit, rules),
        };
        let why = circuit.dead.map(|why| why.to_string());
        return Row { fd, local, remote, way, why, stream: Some(stream) };
    }
    let why = match (note_of(it, answer), program) {
        (Some(why), _) => why,
        (None, Some(program)) => guess(it, rules, program),
        (None, None) => "no library, or no session".to_owned(),
    };
    Row { fd, local, remote, way: "tcp", why: Some(why), stream: None }
}

fn circuit_of<'a>(it: &Connection, answer: &'a Explanation) -> Option<&'a Circuit> {
    let ends = [(it.local, it.remote), (it.remote, it.local)];
    let mut firsts = answer.circuits.iter().filter(|circuit| circuit.twin_of.is_none());
    firsts.find(|circuit| ends.contains(&(circuit.client, circuit.server)))
}

/// The last reason that the program reported for the descriptor and the far address.
fn note_of(it: &Connection, answer: &Explanation) -> Option<String> {
    let mut notes = answer.sessions.iter().flat_map(|session| &session.notes);
    let fits = |note: &&Note| note.remote == it.remote && (note.fd < 0 || note.fd == it.fd);
    notes.rfind(fits).map(|note| note.why.clone())
}

/// No reason is recorded: a rule decided, or the record has been dropped since.
fn guess(it: &Connection, rules: &[Rule], program: &str) -> String {
    let client = rule::decide(rules, local::Role::Client, program, it.remote);
    let server = rule::decide(rules, local::Role::Server, program, it.local);
    match (client, server) {
        (Use::Tcp, Use::Tcp) => "Rule: none wants a stream".to_owned(),
        (Use::Tcp, _) => "Rule (if it connected), NotAnnounced (if it accepted)".to_owned(),
        _ => "not remembered: made without the library, or before the daemon started".to_owned(),
    }
}

fn print(rows: &[Row], out: &mut impl Write) -> Result<()> {
    if rows.is_empty() {
        return Ok(writeln!(out, "no TCP connections")?);
    }
    let mut table = Table::new(">fd|way|local|remote|>peer|role|>sent|>received|why");
    for row in rows {
        let stream = row.stream.as_ref();
        table.row([
            row.fd.to_string(),
            row.way.to_owned(),
            row.local.to_string(),
            row.remote.to_string(),
            or_dash(stream.map(|it| it.peer)),
            or_dash(stream.map(|it| it.role)),
            or_dash(stream.map(|it| size(it.tx_bytes))),
            or_dash(stream.map(|it| size(it.rx_bytes))),
            row.why.clone().unwrap_or_default(),
        ]);
    }
    table.print(out)?;
    let streams = rows.iter().filter_map(|row| Some((row.fd, &row.stream.as_ref()?.modes)));
    modes::print(&streams.collect::<Vec<_>>(), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::Session;

    fn connection(fd: i32, local: &str, remote: &str) -> Connection {
        Connection { fd, local: local.parse().expect("address"), remote: remote.parse().expect("address") }
    }

    fn answer() -> Explanation {
        let at = |address: &str| address.parse().expect("address");
        let note = |fd, remote, why: &str| Note { fd, remote: at(remote), why: why.to_owned() };
        let notes = vec![note(4, "10.86.0.2:81", "NoListener"), note(-1, "10.86.0.2:82", "OutOfBand")];
        let session = Session { program: "curl".to_owned(), notes, ..Session::default() };
        let circuits = vec![Circuit::between(at("10.86.0.1:5"), at("10.86.0.2:80"))];
        Explanation { circuits, sessions: vec![session], ..Explanation::default() }
    }

    #[test]
    fn explain_shows_way_and_reason_of_each_connection() {
        let way = |it| {
            let row = row(&it, &answer(), &[], Some("curl"));
            (Some(row.way.to_owned()), row.why)
        };
        let is = |way: &str, why: Option<&str>| (Some(way.to_owned()), why.map(str::to_owned));
        assert_eq!(way(connection(3, "10.86.0.1:5", "10.86.0.2:80")), is("stream", None));
        assert_eq!(way(connection(9, "10.86.0.2:80", "10.86.0.1:5")), is("stream", None));
        let mut striped = answer();
        let mut twin =
            Circuit { id: CircuitId(9), twin_of: Some(CircuitId(0)), ..striped.circuits[0].clone() };
        (twin.tx_bytes, striped.circuits[0].tx_bytes) = (30, 12);
        striped.circuits.insert(0, twin);
        let both = row(&connection(3, "10.86.0.1:5", "10.86.0.2:80"), &striped, &[], None);
        assert_eq!(
            (both.way, both.stream.map(|it| (it.id, it.tx_bytes))),
            ("striped stream", Some((CircuitId(0), 42)))
        );
        assert_eq!(way(connection(4, "10.86.0.1:6", "10.86.0.2:81")), is("tcp", Some("NoListener")));
        assert_eq!(way(connection(8, "10.86.0.1:7", "10.86.0.2:82")), is("tcp", Some("OutOfBand")));
        assert_eq!(
            way(connection(5, "127.0.0.1:6", "127.0.0.1:81")),
            is("tcp", Some("Rule: none wants a stream"))
        );
    }

    #[test]
    fn explain_shows_the_circuit_of_streams_alone() {
        let json = |it| serde_json::to_value(row(&it, &answer(), &[], Some("curl"))).expect("JSON");
        let stream = json(connection(3, "10.86.0.1:5", "10.86.0.2:80"));
        assert_eq!((&stream["role"], &stream["modes"]["transfer"]), (&json!("client"), &json!("auto")));
        let tcp = json(connection(4, "10.86.0.1:6", "10.86.0.2:81"));
        assert!(tcp.get("role").is_none() && tcp.get("modes").is_none(), "{tcp}");
    }

    #[test]
    fn explain_says_that_a_process_has_no_connections() {
        let mut out = Vec::new();
        print(&[], &mut out).expect("printed");
        assert_eq!(out, b"no TCP connections\n");
    }
}
