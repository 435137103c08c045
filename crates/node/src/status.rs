//! What the daemon tells about itself: status and explanations as JSON, hosts in `/etc/hosts` form.

use crate::cable::Cable;
use crate::host::Host;
use crate::offload::Tally;
use crate::part::Parts;
use crate::session::{Session, SessionId};
use crate::sight::Sight;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_fabric::circuit::{End, Far, Role, State};
use crosslane_shm::state::{Chooser, ModesSnapshot};
use crosslane_stream::Transfer;
use crosslane_wire::{CircuitId, PortId};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Most ancestors that are looked at to find a process's session.
const ANCESTORS: usize = 16;

/// All streams, open and closed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StreamTotals {
    /// Ends that programs hold.
    pub open: u64,
    /// Payload sent, bytes.
    pub tx_bytes: u64,
    /// Payload received, bytes.
    pub rx_bytes: u64,
    /// Bells rung by programs.
    pub bells: u64,
}

impl Host {
    /// `Status`, as far as it may be seen.
    pub fn status(&self, sight: Sight) -> String {
        json!({
            "host": self.me(),
            "version": env!("CARGO_PKG_VERSION"),
            "addresses": self.config.addresses.of(self.me()),
            "uptime_s": self.now.as_secs_f64(),
            "sessions": self.sessions.values().filter(|session| session.greeted).count(),
            "twin": self.links.has_twin(),
            "link_states": self.link_states_json(),
            "hosts": self.hosts_json(),
            "links": self.links.links(),
            "ports": self.cables.iter().map(|cable| self.port_json(cable)).collect::<Vec<_>>(),
            "listeners": self.listeners.addresses(|session| self.is_seen(session, sight)),
            "circuits": self.circuits_json(|parts| sight.sees(parts.uid)),
            "counters": self.counters_json(),
            "offload": self.offload_json(),
            "quota": self.ledger.report(sight.user()),
        })
        .to_string()
    }

    /// `Explain`: sessions of a process, or of the nearest ancestor that has one, unless they are not the viewer's to see.
    pub fn explain(&self, pid: u32, sight: Sight) -> String {
        let (owner, mut sessions) = self.sessions_of(pid);
        let is_others = !sight.sees_process(pid) || sessions.iter().any(|session| !sight.sees(session.uid));
        if is_others {
            sessions.clear();
        }
        let owner = if is_others { 0 } else { owner };
        let held: BTreeSet<SessionId> = sessions.iter().map(|session| session.id).collect();
        let streams =
            self.circuits_json(|parts| parts.holders.iter().any(|(session, _)| held.contains(session)));
        json!({
            "pid": pid,
            "session_pid": owner,
            "not_yours": is_others,
            "sessions": sessions.iter().map(|session| session_json(session)).collect::<Vec<_>>(),
            "circuits": streams,
        })
        .to_string()
    }

    /// `Hosts`.
    pub fn hosts(&self) -> String {
        let known = self.links.hosts().map(|(host, _)| host);
        let all: BTreeSet<_> = known.chain([self.me()]).collect();
        let mut text = String::new();
        for host in all {
            for address in self.config.addresses.of(host) {
                text.push_str(&format!("{address} h{host}\n"));
            }
        }
        text
    }

    /// All streams, open and closed.
    pub fn stream_totals(&self) -> StreamTotals {
        let mut totals = StreamTotals {
            open: 0,
            tx_bytes: self.counters.closed_tx_bytes,
            rx_bytes: self.counters.closed_rx_bytes,
            bells: self.counters.closed_bells,
        };
        for (_, _, parts) in self.open_ends() {
            let moved = parts.traffic();
            totals.open += 1;
            totals.tx_bytes = totals.tx_bytes.wrapping_add(moved.tx_bytes);
            totals.rx_bytes = totals.rx_bytes.wrapping_add(moved.rx_bytes);
            totals.bells = totals.bells.wrapping_add(moved.bells);
        }
        totals
    }

    /// Bytes that went over a cable: the daemon's own, those of streams, and those that pass through this host. Sent,
    /// received.
    pub fn port_bytes(&self, cable: &Cable) -> (u64, u64) {
        let own = (cable.traffic.tx_bytes, cable.traffic.rx_bytes);
        let past = (cable.traffic.past_tx_bytes, cable.traffic.past_rx_bytes);
        let streams = self.open_ends().map(|(_, _, parts)| parts.port_traffic());
        let passing = self.passing();
        streams
            .chain(passing.map(|(port, bytes)| (Some(port), bytes)))
            .filter_map(|(port, bytes)| (port == Some(cable.id)).then_some(bytes))
            .chain([own, past])
            .fold((0, 0), |(tx, rx), (sent, received)| (tx.wrapping_add(sent), rx.wrapping_add(received)))
    }

    fn open_ends(&self) -> impl Iterator<Item = (CircuitId, &End, &Parts)> {
        self.circuits
            .iter()
            .filter(|(_, end)| end.state == State::Open)
            .filter_map(|(circuit, end)| Some((circuit, end, self.parts.get(&circuit)?)))
            .filter(|(_, _, parts)| !parts.holders.is_empty())
    }

    fn hosts_json(&self) -> Vec<Value> {
        self.links
            .hosts()
            .map(|(host, way)| {
                let ways: Vec<Value> = self
                    .links
                    .ways(host)
                    .iter()
                    .map(|way| json!({"hops": way.hops, "via": self.port_name(way.port)}))
                    .collect();
                json!({
                    "id": host,
                    "hops": way.hops,
                    "via": self.port_name(way.port),
                    "addresses": self.config.addresses.of(host),
                    "signed": self.links.is_signed(host),
                    "ways": ways,
                })
            })
            .collect()
    }

    /// Whether link states are signed and checked, and those that were not believed.
    fn link_states_json(&self) -> Value {
        let refused: Vec<Value> = self
            .links
            .refused()
            .iter()
            .map(|(host, refused)| json!({"host": host, "count": refused.count, "why": refused.why.to_string()}))
            .collect();
        json!({"signed": self.signing.0, "checked": self.signing.1, "refused": refused})
    }

    fn port_name(&self, port: PortId) -> &str {
        self.cables.get(usize::from(port.0)).map_or("?", |cable| cable.config.name.as_str())
    }

    fn port_json(&self, cable: &Cable) -> Value {
        let (link, why) = cable.link();
        let (tx_bytes, rx_bytes) = self.port_bytes(cable);
        json!({
            "name": cable.config.name,
            "kind": "soft",
            "link": link,
            "why": why,
            "epoch": cable.epoch(),
            "peer": cable.agreement().map(|agreement| agreement.peer),
            "window": cable.window().bytes(),
            "window_used": cable.window().used_bytes(),
            "tx_bytes": tx_bytes,
            "rx_bytes": rx_bytes,
            "streams": self.open_ends().filter(|(circuit, _, _)| self.port_of(*circuit) == Some(cable.id)).count(),
            "transits": self.transits_on(cable.id),
            "silent": cable.standing.silent,
        })
    }

    fn is_seen(&self, session: SessionId, sight: Sight) -> bool {
        self.sessions.get(&session).is_some_and(|session| sight.sees(session.uid))
    }

    fn circuits_json(&self, wanted: impl Fn(&Parts) -> bool) -> Vec<Value> {
        self.circuits
            .iter()
            .filter_map(|(circuit, end)| {
                let parts = self.parts.get(&circuit).filter(|parts| wanted(parts))?;
                Some(self.circuit_json(circuit, end, parts))
            })
            .collect()
    }

    fn circuit_json(&self, circuit: CircuitId, end: &End, parts: &Parts) -> Value {
        let (moved, (chosen, (sent, received))) = (parts.traffic(), parts.modes());
        let peer = match end.far {
            Far::Here(_) => self.me(),
            Far::Host { host, .. } => host,
        };
        let state = match end.state {
            _ if end.moving.is_some() => "moving",
            State::Opening | State::Pending => "pending",
            State::Open => "open",
            State::Closing(_) => "closing",
        };
        json!({
            "id": circuit,
            "client": end.tuple.client.to_string(),
            "server": end.tuple.server.to_string(),
            "peer": peer,
            "role": if end.role == Role::Client { "client" } else { "server" },
            "program": parts.program,
            "pid": parts.pid,
            "state": state,
            "hops": end.hops,
            "generation": end.generation,
            "dead": end.death.map(|death| format!("{death:?}")),
            "tx_bytes": moved.tx_bytes,
            "rx_bytes": moved.rx_bytes,
            "bells": moved.bells,
            "sleeps": moved.sleeps,
            "transfer": Transfer::from_number(chosen.transfer).unwrap_or_default().name(),
            "transfer_by": chooser(chosen.transfer_by),
            "offload": chosen.offload,
            "offload_by": chooser(chosen.offload_by),
            "sent": modes_json(moved.tx_bytes, &sent),
            "received": modes_json(moved.rx_bytes, &received),
        })
    }

    /// What the engine has done, by its two threads; null before anybody wanted it.
    fn offload_json(&self) -> Value {
        let Some(engines) = &self.offload else { return Value::Null };
        let told = |tally: &Tally| {
            json!({
                "copy": tally.copy.get(),
                "bytes": tally.bytes.load(Relaxed),
                "lent": tally.lent.load(Relaxed),
                "transfers": tally.transfers.load(Relaxed),
                "refused": tally.refused.load(Relaxed),
                "sleeps": tally.sleeps.load(Relaxed),
            })
        };
        let mut threads = engines.tallies().map(told);
        json!({ "send": threads.next(), "receive": threads.next() })
    }

    fn counters_json(&self) -> Value {
        let (totals, counters) = (self.stream_totals(), &self.counters);
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
            "transits": self.passages.len(),
            "transit_bytes": self.transit_bytes(),
            "bells": counters.bells.wrapping_add(totals.bells),
            "violations": counters.violations,
            "plain": counters.plain,
        })
    }

    fn sessions_of(&self, pid: u32) -> (i32, Vec<&Session>) {
        let mut process = i32::try_from(pid).unwrap_or(0);
        for _ in 0..ANCESTORS {
            let sessions: Vec<&Session> =
                self.sessions.values().filter(|session| session.pid == process && session.greeted).collect();
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

fn session_json(session: &Session) -> Value {
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
        "waiters": session.waiters.len(),
        "held": session.held.len(),
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
