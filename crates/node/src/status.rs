//! Texts of a snapshot: status and explanations as JSON, hosts in `/etc/hosts` form. Here each viewer gets its part, and nothing
//! else decides that.

use crate::counter::name_of;
use crate::session::SessionId;
use crate::sight::Sight;
use crate::snapshot::{CircuitRow, HostRow, PortRow, SessionRow, Snapshot};
use crosslane_fabric::circuit::{Death, Role};
use crosslane_shm::state::{Chooser, ModesSnapshot};
use crosslane_status::{
    self as status, ChosenBy, Circuit, Counters, Direction, Explanation, Host, LinkStates, Note, Offload,
    Pacing, Path, Port, RefusedStates, SCHEMA, Session, Status,
};
use crosslane_stream::Transfer;
use crosslane_wire::{HostId, PortId};
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;

/// Most ancestors that are looked at to find a process's session.
const ANCESTORS: usize = 16;

/// Rows that are written one by one: there may be many.
struct Rows<F>(F);

impl<I: Iterator<Item = Circuit>, F: Fn() -> I> Serialize for Rows<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

impl Snapshot {
    /// `Status`, as far as it may be seen.
    pub fn status(&self, sight: Sight) -> String {
        let is_seen = |users: &BTreeSet<u32>| users.iter().any(|uid| sight.sees(*uid));
        let listeners = self.listeners.iter().filter(|(_, users)| is_seen(users));
        let greeted = self.sessions.iter().filter(|session| session.greeted && !session.lost);
        text(&Status {
            schema: SCHEMA,
            host: self.head.me,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: self.head.addresses.of(self.head.me).to_vec(),
            uptime_s: self.head.uptime.as_secs_f64(),
            sessions: greeted.count() as u64,
            lost_sessions: self.sessions.iter().filter(|session| session.lost).count() as u64,
            duplicate_id: self.head.duplicate_id,
            namespaces: self.head.namespaces,
            link_states: self.link_states(),
            hosts: self.hosts.iter().map(|host| self.host_of(host)).collect(),
            links: self.links.clone(),
            ports: self.ports(),
            listeners: listeners.map(|(address, _)| *address).collect(),
            circuits: Rows(|| self.circuits_of(sight, |end| sight.sees(end.uid))),
            counters: self.counters(),
            offload: self.offload(),
            quota: self.books.report(sight.user()),
        })
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
            schema: SCHEMA,
            pid,
            session_pid: if is_others { 0 } else { owner },
            not_yours: is_others,
            sessions: sessions.iter().map(|session| session_of(session)).collect(),
            circuits: Rows(|| self.circuits_of(sight, is_held)),
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

    fn host_of(&self, host: &HostRow) -> Host {
        let path = |(hops, port): &(u8, PortId)| Path { hops: *hops, via: self.port_name(*port) };
        Host {
            id: host.id,
            hops: host.ways.first().map(|(hops, _)| *hops),
            via: host.ways.first().map(|(_, port)| self.port_name(*port)),
            addresses: self.head.addresses.of(host.id).to_vec(),
            signed: host.signed,
            ways: host.ways.iter().map(path).collect(),
        }
    }

    /// Whether link states are signed and checked, and those that were not believed.
    fn link_states(&self) -> LinkStates {
        let (signed, checked) = self.head.signing;
        let refused = self.head.refused.iter();
        let refused = refused
            .map(|(host, refused)| RefusedStates {
                host: *host,
                count: refused.count,
                why: refused.why.to_string(),
            })
            .collect();
        LinkStates { signed, checked, refused }
    }

    fn port_name(&self, port: PortId) -> String {
        self.port(port).map_or("?", |port| &port.name).to_owned()
    }

    fn ports(&self) -> Vec<Port> {
        let moved = self.port_bytes();
        let bytes = |port: &PortRow| moved.get(&port.id).copied().unwrap_or_default();
        self.head.ports.iter().map(|port| self.port_of(port, bytes(port))).collect()
    }

    fn port_of(&self, port: &PortRow, (tx_bytes, rx_bytes): (u64, u64)) -> Port {
        let (link, why) = port.link.clone();
        Port {
            name: port.name.clone(),
            kind: port.kind.to_owned(),
            link,
            why,
            epoch: port.epoch,
            peer: port.peer,
            window: port.window.0,
            window_used: port.window.1,
            tx_bytes,
            rx_bytes,
            streams: self.open_ends().filter(|end| end.port == Some(port.id)).count() as u64,
            transits: self.passing.get(&port.id).map_or(0, |passing| passing.circuits as u64),
            silent: port.silent,
            pacing: port.pacing.map(pacing_of),
        }
    }

    /// Ends that are wanted; of one that another user's program opened and passed on, that program is not told.
    fn circuits_of(
        &self,
        sight: Sight,
        wanted: impl Fn(&CircuitRow) -> bool,
    ) -> impl Iterator<Item = Circuit> {
        let rows = self.circuits.iter().filter(move |end| wanted(end));
        rows.map(move |end| circuit_of(end, sight.sees(end.uid)))
    }

    /// What the engine has done, by its two threads; nothing before anybody wanted it.
    fn offload(&self) -> Option<Offload> {
        let mut threads = self.head.offload.as_ref()?.iter().cloned();
        let mut next = || threads.next().unwrap_or_default();
        Some(Offload { send: next(), receive: next() })
    }

    fn counters(&self) -> Counters {
        let (totals, counters) = (self.stream_totals(), &self.head.counters);
        Counters {
            streams_opened: counters.streams_opened,
            streams_open: totals.open,
            streams_closed: counters.streams_closed,
            streams_aborted: counters.streams_aborted,
            stream_tx_bytes: totals.tx_bytes,
            stream_rx_bytes: totals.rx_bytes,
            ip_tx_packets: counters.ip_tx_packets,
            ip_rx_packets: counters.ip_rx_packets,
            ip_tx_bytes: counters.ip_tx_bytes,
            ip_rx_bytes: counters.ip_rx_bytes,
            ip_forwarded_packets: counters.ip_forwarded_packets,
            ip_dropped_packets: counters.ip_dropped_packets,
            ip_refused_packets: counters.ip_refused_packets,
            moves: counters.moves,
            moved: counters.moved,
            move_last_us: counters.move_last_us,
            move_longest_us: counters.move_longest_us,
            transits: self.head.transits as u64,
            transit_bytes: self.transit_bytes(),
            wakes: counters.wakes.wrapping_add(totals.wakes),
            violations: counters.violations,
            plain: counters.plain.clone(),
        }
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

fn circuit_of(end: &CircuitRow, tells_owner: bool) -> Circuit {
    let CircuitRow { moved, chosen, modes: (sent, received), .. } = end;
    let owner = tells_owner.then(|| (end.program.clone(), end.pid));
    let (program, pid) = owner.unwrap_or_default();
    Circuit {
        id: end.id,
        client: end.tuple.client,
        server: end.tuple.server,
        peer: end.peer,
        role: if end.role == Role::Client { status::Role::Client } else { status::Role::Server },
        program,
        pid,
        state: end.state,
        hops: end.hops,
        pumps: end.pumps,
        generation: end.generation,
        twin_of: end.twin_of,
        far_closed: end.far_closed,
        dead: end.dead.map(death),
        tx_bytes: moved.tx_bytes,
        rx_bytes: moved.rx_bytes,
        wakes: moved.wakes,
        sleeps: moved.sleeps,
        transfer: Transfer::from_number(chosen.transfer).unwrap_or_default().name().to_owned(),
        transfer_by: chooser(chosen.transfer_by),
        offload: chosen.offload,
        offload_by: chooser(chosen.offload_by),
        sent: direction(moved.tx_bytes, sent),
        received: direction(moved.rx_bytes, received),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn pacing_of(kept: crosslane_port::Pacing) -> Pacing {
    Pacing {
        cable: kept.cable.to_string(),
        landed_bytes: kept.landed_bytes,
        late_bytes: kept.late_bytes,
        worst_us: kept.worst_ns as f64 / 1000.0,
        acknowledged_bytes: kept.acknowledged_bytes,
    }
}

fn death(why: Death) -> status::Death {
    match why {
        Death::Cable => status::Death::Cable,
        Death::Abort => status::Death::Abort,
        Death::Shutdown => status::Death::Shutdown,
        Death::Violation => status::Death::Violation,
    }
}

fn chooser(by: Chooser) -> ChosenBy {
    match by {
        Chooser::Nobody => ChosenBy::Default,
        Chooser::Program => ChosenBy::Program,
        Chooser::Rule => ChosenBy::Rule,
    }
}

/// How one direction moved its `total` bytes.
fn direction(total: u64, modes: &ModesSnapshot) -> Direction {
    Direction {
        bcopy: modes.bcopy(total),
        read_zcopy: modes.read_zcopy,
        write_zcopy: modes.write_zcopy,
        transaction: modes.transaction,
        copied: modes.copied(total),
        records: modes.records,
        control: modes.control,
        cancelled: modes.cancelled,
        offloaded: modes.offloaded,
    }
}

fn session_of(session: &SessionRow) -> Session {
    let notes = session.notes.iter();
    Session {
        id: session.id.0,
        pid: session.pid,
        uid: session.uid,
        program: session.program.clone(),
        waiters: session.waiters as u64,
        held: session.held as u64,
        notes: notes.map(|note| Note { fd: note.fd, remote: note.remote, why: name_of(note.why) }).collect(),
    }
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
