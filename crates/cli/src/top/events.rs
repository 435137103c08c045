//! What happened to cables and streams, found out by comparing two looks at the status.

use crosslane_status::{Circuit, Link, Status};
use crosslane_wire::{CircuitId, HostId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, SystemTime};

/// Events that are kept.
const KEPT: usize = 200;
/// How long a lost cable or host counts as the cause of streams that switch over.
const CAUSE: Duration = Duration::from_secs(5);

/// Something that happened between two looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its number, from 0.
    pub(crate) number: u64,
    /// When it was noticed: time since the first look.
    pub(crate) at: Duration,
    /// The same by the clock.
    pub(crate) clock: SystemTime,
    /// What happened.
    pub(crate) what: String,
    /// The other host, if it is about one.
    pub(crate) host: Option<HostId>,
    /// Why, as far as this host knows.
    pub(crate) cause: String,
    /// Whether something was lost.
    pub(crate) bad: bool,
}

/// What two looks differ in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Change {
    what: String,
    host: Option<HostId>,
    cause: String,
    bad: bool,
}

/// The latest events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    count: u64,
    /// The last loss, and when it was noticed.
    loss: Option<(Duration, String)>,
}

impl Events {
    /// Notes what happened between two looks, the later of which was taken at `at`.
    pub(crate) fn compare(&mut self, before: &Status, now: &Status, at: Duration, clock: SystemTime) {
        let mut changes = network(before, now);
        if let Some(loss) = changes.iter().find(|change| change.bad) {
            self.loss = Some((at, loss.text()));
        }
        let cause = self.loss.as_ref().filter(|(then, _)| at.saturating_sub(*then) <= CAUSE);
        changes.extend(moves(before, now, cause.map_or("", |(_, text)| text)));
        for Change { what, host, cause, bad } in changes {
            if self.kept.len() == KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(Event { number: self.count, at, clock, what, host, cause, bad });
            self.count += 1;
        }
    }

    /// All that are kept, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.kept.iter()
    }

    /// Those that were noticed at the look of that time.
    pub(crate) fn json(&self, at: Duration) -> Value {
        let all = self.kept.iter().filter(|event| event.at == at);
        all.map(|event| json!({"what": event.what, "host": event.host, "cause": event.cause})).collect()
    }
}

impl Change {
    fn text(&self) -> String {
        let host = self.host.map(|host| format!(" (h{host})")).unwrap_or_default();
        let cause = if self.cause.is_empty() { String::new() } else { format!(": {}", self.cause) };
        format!("{}{host}{cause}", self.what)
    }
}

fn network(before: &Status, now: &Status) -> Vec<Change> {
    let mut all = ports(before, now);
    all.extend(cables(before, now));
    let known = |status: &Status| status.hosts.iter().map(|host| host.id).collect::<BTreeSet<_>>();
    let (was, is) = (known(before), known(now));
    let change = |host: &HostId, what: &str, bad| Change {
        what: what.to_owned(),
        host: Some(*host),
        bad,
        ..Change::default()
    };
    all.extend(was.difference(&is).map(|host| change(host, "host out of reach", true)));
    all.extend(is.difference(&was).map(|host| change(host, "host in reach", false)));
    all
}

/// Links of this host's own cables.
fn ports(before: &Status, now: &Status) -> Vec<Change> {
    let mut all = Vec::new();
    for port in &now.ports {
        let Some(was) = before.port(&port.name) else { continue };
        let why = port.why.clone().unwrap_or_default();
        let change = |what: &str, bad| Change {
            what: format!("port {} {what}", port.name),
            host: port.peer.or(was.peer),
            cause: if bad { why.clone() } else { String::new() },
            bad,
        };
        match (was.link, port.link) {
            (Link::Up, Link::Up) if was.epoch != port.epoch => all.push(change("went down and up", true)),
            (was, is) if was == is => {}
            (_, Link::Up) => all.push(change("up", false)),
            (_, is) => all.push(change(is.name(), true)),
        }
        if port.silent && !was.silent {
            all.push(Change { cause: "its daemon does not answer".to_owned(), ..change("silent", true) });
        }
    }
    all
}

/// Cables between other hosts.
fn cables(before: &Status, now: &Status) -> Vec<Change> {
    let far = |status: &Status| {
        let others = status.links.iter().filter(|(one, other)| ![*one, *other].contains(&status.host));
        others.copied().collect::<BTreeSet<_>>()
    };
    let (was, is) = (far(before), far(now));
    let change = |(one, other): &(HostId, HostId), what: &str, bad| Change {
        what: format!("cable h{one}-h{other} {what}"),
        bad,
        ..Change::default()
    };
    let lost = was.difference(&is).map(|link| change(link, "lost", true));
    lost.chain(is.difference(&was).map(|link| change(link, "joined", false))).collect()
}

/// Streams that look for another circuit, or found one. Those of other users are only counted.
fn moves(before: &Status, now: &Status, cause: &str) -> Vec<Change> {
    let more = |read: fn(&Status) -> u64| read(now).saturating_sub(read(before));
    let (lost, found) = (more(|it| it.counters.moves), more(|it| it.counters.moved));
    let mut all = Vec::new();
    if lost > 0 {
        let mut peers = movers(before, now);
        let host = if peers.len() == 1 { peers.pop_first().map(|(host, _)| host) } else { None };
        let cause = if cause.is_empty() { "not seen from here".to_owned() } else { cause.to_owned() };
        let what = format!("{} lost the circuit", streams(lost));
        all.push(Change { what, host, cause, bad: true });
    }
    if found > 0 {
        let what = format!("{} found another way", streams(found));
        let cause = format!("the last after {} us", now.counters.move_last_us);
        all.push(Change { what, cause, ..Change::default() });
    }
    all
}

/// How many of the streams that this viewer sees moved, or are about to, by the host at their other end.
fn movers(before: &Status, now: &Status) -> BTreeMap<HostId, usize> {
    let key = |circuit: &Circuit| (circuit.id, circuit.generation);
    let was: HashMap<CircuitId, u32> = before.circuits.iter().map(key).collect();
    let mut peers = BTreeMap::new();
    for circuit in &now.circuits {
        let moved = was.get(&circuit.id).is_some_and(|generation| *generation != circuit.generation);
        if moved || circuit.state == crosslane_status::State::Moving {
            *peers.entry(circuit.peer).or_default() += 1;
        }
    }
    peers
}

fn streams(count: u64) -> String {
    format!("{count} stream{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::{Counters, Host, Port};
    use crosslane_wire::Epoch;

    fn port(link: Link, why: Option<&str>, peer: Option<u16>) -> Port {
        let (name, why) = ("right".to_owned(), why.map(str::to_owned));
        Port { name, link, why, peer: peer.map(HostId), ..Port::default() }
    }

    fn seen(before: &Status, now: &Status) -> Vec<(String, Option<u16>, String)> {
        let mut events = Events::default();
        events.compare(before, now, Duration::from_secs(1), SystemTime::UNIX_EPOCH);
        events.iter().map(|it| (it.what.clone(), it.host.map(|host| host.0), it.cause.clone())).collect()
    }

    #[test]
    fn events_name_the_cable_that_streams_switched_over_for() {
        let circuit = |generation| Circuit {
            generation,
            peer: HostId(2),
            ..Circuit::between(([10, 86, 0, 1], 1).into(), ([10, 86, 0, 2], 2).into())
        };
        let before = Status {
            ports: vec![port(Link::Up, None, Some(2))],
            circuits: vec![circuit(0)],
            ..Status::default()
        };
        let counters = Counters { moves: 1, moved: 1, move_last_us: 900, ..Counters::default() };
        let now = Status {
            ports: vec![port(Link::Cut, Some("it was cut here"), None)],
            circuits: vec![circuit(1)],
            counters,
            ..Status::default()
        };
        let event = |what: &str, host, cause: &str| (what.to_owned(), host, cause.to_owned());
        let expected = [
            event("port right cut", Some(2), "it was cut here"),
            event("1 stream lost the circuit", Some(2), "port right cut (h2): it was cut here"),
            event("1 stream found another way", None, "the last after 900 us"),
        ];
        assert_eq!(seen(&before, &now), expected);
        assert!(seen(&now, &now).is_empty());
        assert_eq!(seen(&now, &before)[0], event("port right up", Some(2), ""));
    }

    #[test]
    fn events_of_the_network_are_noticed() {
        let host = |id| Host { id: HostId(id), ..Host::default() };
        let mut up = port(Link::Up, None, Some(2));
        let before = Status {
            host: HostId(1),
            hosts: vec![host(2)],
            links: vec![(HostId(1), HostId(2)), (HostId(2), HostId(3))],
            ports: vec![up.clone()],
            ..Status::default()
        };
        up.epoch = Epoch(7);
        let now = Status { host: HostId(1), hosts: vec![host(3)], ports: vec![up], ..Status::default() };
        let all: Vec<String> = seen(&before, &now).into_iter().map(|(what, ..)| what).collect();
        let expected =
            ["port right went down and up", "cable h2-h3 lost", "host out of reach", "host in reach"];
        assert_eq!(all, expected, "a cable of this host is told by its port");
    }

    #[test]
    fn events_are_bounded() {
        let (up, down) = (port(Link::Up, None, None), port(Link::Down, None, None));
        let status = |port: &Port| Status { ports: vec![port.clone()], ..Status::default() };
        let mut events = Events::default();
        for second in 0..1000 {
            let (before, now) = if second % 2 == 0 { (&up, &down) } else { (&down, &up) };
            let at = Duration::from_secs(second);
            events.compare(&status(before), &status(now), at, SystemTime::UNIX_EPOCH);
        }
        assert_eq!((events.iter().count(), events.iter().next_back().map(|it| it.number)), (KEPT, Some(999)));
        assert_eq!(events.json(Duration::from_secs(999))[0]["what"], "port right up");
    }
}
