//! Texts of a snapshot: status and explanations as JSON, hosts in `/etc/hosts` form. Here each viewer gets its part, and nothing
//! else decides that.

use crate::session::SessionId;
use crate::sight::Sight;
use crate::snapshot::{CircuitRow, HostRow, PortRow, SessionRow, Snapshot};
use crosslane_fabric::circuit::Role;
use crosslane_shm::state::{Chooser, ModesSnapshot};
use crosslane_stream::Transfer;
use crosslane_wire::{HostId, PortId};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Most ancestors that are looked at to find a process's session.
const ANCESTORS: usize = 16;

/// Rows that are written one by one: there may be many.
struct Rows<F>(F);

impl<I: Iterator<Item = Value>, F: Fn() -> I> Serialize for Rows<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

#[derive(Serialize)]
struct Status<C> {
    host: HostId,
    version: &'static str,
    addresses: [std::net::IpAddr; 2],
    uptime_s: f64,
    sessions: usize,
    lost_sessions: usize,
    twin: bool,
    namespaces: bool,
    link_states: Value,
    hosts: Vec<Value>,
    links: Vec<(HostId, HostId)>,
    ports: Vec<Value>,
    listeners: Vec<std::net::SocketAddr>,
    circuits: C,
    counters: Value,
    offload: Value,
    quota: Value,
}

#[derive(Serialize)]
struct Explanation<C> {
    pid: u32,
    session_pid: i32,
    not_yours: bool,
    sessions: Vec<Value>,
    circuits: C,
}

impl Snapshot {
    /// `Status`, as far as it may be seen.
    pub fn status(&self, sight: Sight) -> String {
        let is_seen = |users: &BTreeSet<u32>| users.iter().any(|uid| sight.sees(*uid));
        let listeners = self.listeners.iter().filter(|(_, users)| is_seen(users));
        let status = Status {
            host: self.head.me,
            version: env!("CARGO_PKG_VERSION"),
            addresses: self.head.addresses.of(self.head.me),
            uptime_s: self.head.uptime.as_secs_f64(),
            sessions: self.sessions.iter().filter(|session| session.greeted && !session.lost).count(),
            lost_sessions: self.sessions.iter().filter(|session| session.lost).count(),
            twin: self.head.twin,
            namespaces: self.head.namespaces,
            link_states: self.link_states_json(),
            hosts: self.hosts.iter().map(|host| self.host_json(host)).collect(),
            links: self.links.clone(),
            ports: self.ports_json(),
            listeners: listeners.map(|(address, _)| *address).collect(),
            circuits: Rows(|| self.circuits_json(sight, |end| sight.sees(end.uid))),
            counters: self.counters_json(),
            offload: self.offload_json(),
            quota: self.books.report(sight.user()),
        };
        text(&status)
    }

    /// `Explain`: sessions of a process, or of the nearest ancestor that has one, unless they are not the viewer's to see.
    pub fn explain(&self, pid: u32, sight: Sight) -> String {
        let (owner, mut sessions) = self.sessions_of(pid);
        let is_others = !sight.sees_process(pid) || sessions.iter().any(|session| !sight.sees(session.uid));
        if is_others {
            sessions.clear();
        }
        let held: BTreeSet<SessionId> = sessions.iter().map(|session| session.id).collect();
        let is_held = |end: &CircuitRow| end.holders.iter().any(|session| held.contains(session));
        text(&Explanation {
            pid,
            session_pid: if is_others { 0 } else { owner },
            not_yours: is_others,
            sessions: sessions.iter().map(|session| session_json(session)).collect(),
            circuits: Rows(|| self.circuits_json(sight, is_held)),
        })
    }

    /// `Hosts`.
    pub fn addresses(&self) -> String {
        let all: BTreeSet<HostId> = self.hosts.iter().map(|host| host.id).chain([self.head.me]).collect();
        let mut text = String::new();
        for host in all {
            for address in self.head.addresses.of(host) {
                text.push_str(&format!("{address} h{host}\n"));
            }
        }
        text
    }

    fn host_json(&self, host: &HostRow) -> Value {
        let way = |(hops, port): &(u8, PortId)| json!({"hops": hops, "via": self.port_name(*port)});
        json!({
            "id": host.id,
            "hops": host.ways.first().map(|(hops, _)| hops),
            "via": host.ways.first().map(|(_, port)| self.port_name(*port)),
            "addresses": self.head.addresses.of(host.id),
            "signed": host.signed,
            "ways": host.ways.iter().map(way).collect::<Vec<_>>(),
        })
    }

    /// Whether link states are signed and checked, and those that were not believed.
    fn link_states_json(&self) -> Value {
        let (signed, checked) = self.head.signing;
        let refused: Vec<Value> = self
            .head
            .refused
            .iter()
            .map(|(host, refused)| json!({"host": host, "count": refused.count, "why": refused.why.to_string()}))
            .collect();
        json!({"signed": signed, "checked": checked, "refused": refused})
    }

    fn port_name(&self, port: PortId) -> &str {
        self.port(port).map_or("?", |port| &port.name)
    }

    fn ports_json(&self) -> Vec<Value> {
        let moved = self.port_bytes();
        let bytes = |port: &PortRow| moved.get(&port.id).copied().unwrap_or_default();
        self.head.ports.iter().map(|port| self.port_json(port, bytes(port))).collect()
    }

    fn port_json(&self, port: &PortRow, (tx_bytes, rx_bytes): (u64, u64)) -> Value {
        let (link, why) = &port.link;
        json!({
            "name": port.name,
            "kind": port.kind,
            "link": link,
            "why": why,
            "epoch": port.epoch,
            "peer": port.peer,
            "window": port.window.0,
            "window_used": port.window.1,
            "tx_bytes": tx_bytes,
            "rx_bytes": rx_bytes,
            "streams": self.open_ends().filter(|end| end.port == Some(port.id)).count(),
            "transits": self.passing.get(&port.id).map_or(0, |passing| passing.circuits),
            "silent": port.silent,
        })
    }

    /// Ends that are wanted; of one that another user's program opened and passed on, that program is not told.
    fn circuits_json(
        &self,
        sight: Sight,
        wanted: impl Fn(&CircuitRow) -> bool,
    ) -> impl Iterator<Item = Value> {
        let rows = self.circuits.iter().filter(move |end| wanted(end));
        rows.map(move |end| circuit_json(end, sight.sees(end.uid)))
    }

    /// What the engine has done, by its two threads; null before anybody wanted it.
    fn offload_json(&self) -> Value {
        let Some(threads) = &self.head.offload else { return Value::Null };
        json!({ "send": threads.first(), "receive": threads.get(1) })
    }

    fn counters_json(&self) -> Value {
        let (totals, counters) = (self.stream_totals(), &self.head.counters);
        json!({
            "streams_opened": counters.streams_opened,
            "streams_open": totals.open,
            "streams_closed": counters.streams_closed,
            "streams_aborted": counters.streams_aborted,
            "stream_tx_bytes": totals.tx_bytes,
            "stream_rx_bytes": totals.rx_bytes,
            "ip_tx_packets": counters.ip_tx_packets,
            "ip_rx_packets": counters.ip_rx_packets,
            "ip_tx_bytes": counters.ip_tx_bytes,
            "ip_rx_bytes": counters.ip_rx_bytes,
            "ip_forwarded_packets": counters.ip_forwarded_packets,
            "ip_dropped_packets": counters.ip_dropped_packets,
            "ip_refused_packets": counters.ip_refused_packets,
            "moves": counters.moves,
            "moved": counters.moved,
            "move_last_us": counters.move_last_us,
            "move_longest_us": counters.move_longest_us,
            "transits": self.head.transits,
            "transit_bytes": self.transit_bytes(),
            "wakes": counters.wakes.wrapping_add(totals.wakes),
            "violations": counters.violations,
            "plain": counters.plain,
        })
    }

    fn sessions_of(&self, pid: u32) -> (i32, Vec<&SessionRow>) {
        let mut process = i32::try_from(pid).unwrap_or(0);
        for _ in 0..ANCESTORS {
            let sessions: Vec<&SessionRow> =
                self.sessions.iter().filter(|session| session.pid == process && session.greeted).collect();
            if !sessions.is_empty() {
                return (process, sessions);
            }
            match parent_of(process) {
                Some(parent) if parent > 1 => process = parent,
                _ => break,
            }
        }
        (0, Vec::new())
    }
}

/// Nothing of ours cannot be written.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn circuit_json(end: &CircuitRow, tells_owner: bool) -> Value {
    let CircuitRow { moved, chosen, modes: (sent, received), .. } = end;
    let owner = tells_owner.then_some((end.program.as_str(), end.pid));
    let (program, pid) = owner.unwrap_or_default();
    json!({
        "id": end.id,
        "client": end.tuple.client.to_string(),
        "server": end.tuple.server.to_string(),
        "peer": end.peer,
        "role": if end.role == Role::Client { "client" } else { "server" },
        "program": program,
        "pid": pid,
        "state": end.state,
        "hops": end.hops,
        "pumps": end.pumps,
        "generation": end.generation,
        "far_closed": end.far_closed,
        "dead": end.dead.map(|death| format!("{death:?}")),
        "tx_bytes": moved.tx_bytes,
        "rx_bytes": moved.rx_bytes,
        "wakes": moved.wakes,
        "sleeps": moved.sleeps,
        "transfer": Transfer::from_number(chosen.transfer).unwrap_or_default().name(),
        "transfer_by": chooser(chosen.transfer_by),
        "offload": chosen.offload,
        "offload_by": chooser(chosen.offload_by),
        "sent": modes_json(moved.tx_bytes, sent),
        "received": modes_json(moved.rx_bytes, received),
    })
}

fn chooser(by: Chooser) -> &'static str {
    match by {
        Chooser::Nobody => "default",
        Chooser::Program => "program",
        Chooser::Rule => "rule",
    }
}

/// How one direction moved its `total` bytes.
fn modes_json(total: u64, modes: &ModesSnapshot) -> Value {
    json!({
        "bcopy": modes.bcopy(total),
        "read_zcopy": modes.read_zcopy,
        "write_zcopy": modes.write_zcopy,
        "transaction": modes.transaction,
        "copied": modes.copied(total),
        "records": modes.records,
        "control": modes.control,
        "cancelled": modes.cancelled,
        "offloaded": modes.offloaded,
    })
}

fn session_json(session: &SessionRow) -> Value {
    let notes: Vec<Value> = session
        .notes
        .iter()
        .map(|note| json!({"fd": note.fd, "remote": note.remote.to_string(), "why": note.why}))
        .collect();
    json!({
        "id": session.id.0,
        "pid": session.pid,
        "uid": session.uid,
        "program": session.program,
        "waiters": session.waiters,
        "held": session.held,
        "notes": notes,
    })
}

/// The parent of a process: the fourth word of its `stat`, counted behind the name, which may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_parent_is_known() {
        let me = i32::try_from(std::process::id()).unwrap();
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        assert_eq!(parent_of(me), Some(parent));
    }
}
