//! The documentation against the types, and a document that a daemon wrote.

use crosslane_status::{
    ChosenBy, Circuit, Counters, Death, Direction, Explanation, Holds, Host, Link, LinkStates, Note, Offload,
    OffloadThread, Pacing, Path, Payer, Pool, Port, Quota, RefusedStates, Requests, Role, SCHEMA, Session,
    State, Status, StatusError, Use, WindowUse,
};
use crosslane_wire::{CircuitId, Epoch, HostId};
use serde_json::Value;
use std::collections::BTreeMap;

const DOCUMENTATION: &str = include_str!("../../../docs/status-json.md");
const RECORDED: &str = include_str!("../recorded/status.json");

fn text(text: &str) -> String {
    text.to_owned()
}

/// A status in which nothing is left out. New fields must be named here, since none is taken from a default.
fn whole() -> Status {
    let addresses = || vec!["10.86.0.1".parse().unwrap(), "fd86::1".parse().unwrap()];
    let refused = RefusedStates { host: HostId(3), count: 1, why: text("no key") };
    let thread = || OffloadThread {
        copy: Some(text("kernel")),
        bytes: 1,
        registered: 1,
        transfers: 1,
        refused: 1,
        sleeps: 1,
    };
    Status {
        schema: SCHEMA,
        host: HostId(1),
        version: text("0.1.0"),
        addresses: addresses(),
        uptime_s: 1.5,
        sessions: 1,
        lost_sessions: 1,
        duplicate_id: true,
        namespaces: true,
        link_states: LinkStates { signed: true, checked: true, refused: vec![refused] },
        hosts: vec![Host {
            id: HostId(2),
            hops: Some(1),
            via: Some(text("right")),
            addresses: addresses(),
            signed: true,
            ways: vec![Path { hops: 1, via: text("right") }],
        }],
        links: vec![(HostId(1), HostId(2))],
        ports: vec![Port {
            name: text("right"),
            kind: text("soft"),
            link: Link::Up,
            why: Some(text("why")),
            epoch: Epoch(1),
            peer: Some(HostId(2)),
            window: 1,
            window_used: 1,
            tx_bytes: 1,
            rx_bytes: 1,
            streams: 1,
            transits: 1,
            silent: true,
            pacing: Some(pacing()),
        }],
        listeners: vec!["10.86.0.1:80".parse().unwrap()],
        circuits: vec![circuit()],
        counters: counters(),
        offload: Some(Offload { send: thread(), receive: thread() }),
        quota: quota(),
    }
}

fn pacing() -> Pacing {
    Pacing { cable: text("gen1 x1"), landed_bytes: 1, late_bytes: 1, worst_us: 1.0, acknowledged_bytes: 1 }
}

fn circuit() -> Circuit {
    let direction = Direction {
        bcopy: 1,
        read_zcopy: 1,
        write_zcopy: 1,
        transaction: 1,
        copied: 1,
        records: 1,
        control: 1,
        cancelled: 1,
        offloaded: 1,
    };
    Circuit {
        id: CircuitId(1),
        client: "10.86.0.1:5".parse().unwrap(),
        server: "10.86.0.2:80".parse().unwrap(),
        peer: HostId(2),
        role: Role::Client,
        program: text("curl"),
        pid: 7,
        state: State::Open,
        hops: 1,
        pumps: 1,
        generation: 1,
        twin_of: Some(CircuitId(2)),
        far_closed: true,
        dead: Some(Death::Cable),
        tx_bytes: 1,
        rx_bytes: 1,
        wakes: 1,
        sleeps: 1,
        transfer: text("auto"),
        transfer_by: ChosenBy::Rule,
        offload: true,
        offload_by: ChosenBy::Program,
        sent: direction,
        received: direction,
    }
}

fn counters() -> Counters {
    Counters {
        streams_opened: 1,
        streams_open: 1,
        streams_closed: 1,
        streams_aborted: 1,
        stream_tx_bytes: 1,
        stream_rx_bytes: 1,
        ip_tx_packets: 1,
        ip_rx_packets: 1,
        ip_tx_bytes: 1,
        ip_rx_bytes: 1,
        ip_forwarded_packets: 1,
        ip_dropped_packets: 1,
        ip_refused_packets: 1,
        moves: 1,
        moved: 1,
        move_last_us: 1,
        move_longest_us: 1,
        transits: 1,
        transit_bytes: 1,
        wakes: 1,
        violations: 1,
        plain: [(text("REASON"), 1)].into(),
    }
}

fn quota() -> Quota {
    let taken = Use { used: 1, limit: Some(2) };
    let holds = Holds {
        sessions: taken,
        listeners: taken,
        descriptors: taken,
        stored: taken,
        circuits: taken,
        pending: taken,
        mappings: taken,
        transits: taken,
        memory: taken,
        window: vec![WindowUse { port: 0, used: 1, limit: Some(2) }],
        requests: Some(Requests { a_second: Some(1) }),
    };
    Quota {
        share_percent: 75,
        neighbour_share_percent: 90,
        moves_percent: 20,
        root_percent: 5,
        pools: vec![Pool { kind: text("window"), port: Some(0), capacity: Some(1), used: 1, refused: 1 }],
        payers: vec![Payer { user: Some(1000), neighbour_at_port: Some(0), holds }],
    }
}

/// The same with nothing wherever there may be nothing.
fn bare() -> Status {
    let mut status = whole();
    (status.hosts[0].hops, status.hosts[0].via) = (None, None);
    (status.ports[0].why, status.ports[0].peer) = (None, None);
    (status.circuits[0].dead, status.circuits[0].twin_of) = (None, None);
    status.offload = Some(Offload::default());
    (status.quota.pools[0].port, status.quota.pools[0].capacity) = (None, None);
    let payer = &mut status.quota.payers[0];
    (payer.user, payer.neighbour_at_port) = (None, None);
    (payer.holds.sessions.limit, payer.holds.window[0].limit) = (None, None);
    payer.holds.requests = Some(Requests { a_second: None });
    status
}

fn explanation() -> Explanation {
    let note = Note { fd: 4, remote: "10.86.0.2:81".parse().unwrap(), why: text("NoListener") };
    let session =
        Session { id: 1, pid: 7, uid: 1000, program: text("curl"), waiters: 1, held: 1, notes: vec![note] };
    Explanation {
        schema: SCHEMA,
        pid: 7,
        session_pid: 7,
        not_yours: false,
        sessions: vec![session],
        circuits: Vec::new(),
    }
}

/// The type of each field, as the documentation writes it, by the field's path.
type Fields = BTreeMap<String, String>;

fn add(path: &str, value: &Value, to: &mut Fields) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    if !path.is_empty() && !path.ends_with("[]") {
        to.insert(path.to_owned(), kind.to_owned());
    }
    match value {
        Value::Array(all) => all.iter().take(1).for_each(|one| add(&format!("{path}[]"), one, to)),
        Value::Object(all) => {
            all.iter().for_each(|(name, one)| add(format!("{path}.{name}").trim_start_matches('.'), one, to));
        }
        _ => {}
    }
}

fn fields(value: &Value) -> Fields {
    let mut fields = Fields::new();
    add("", value, &mut fields);
    fields
}

/// What is written once in the documentation for several fields of one type.
fn is_documented_elsewhere(path: &str) -> bool {
    let kinds =
        ["listeners", "descriptors", "stored", "circuits", "pending", "mappings", "transits", "memory"];
    path.starts_with("circuits[].received.")
        || path.starts_with("offload.receive.")
        || kinds.iter().any(|kind| path.starts_with(&format!("quota.payers[].holds.{kind}.")))
}

/// The rows of a part of the documentation.
fn documented(part: &str) -> Fields {
    let rows = part.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.strip_suffix('`')?.to_owned(), cells.next()?.to_owned()))
    });
    rows.collect()
}

#[test]
fn docs_name_each_field_with_its_type_and_no_other() {
    let (status, explained) = DOCUMENTATION.split_once("\n## Explanation").expect("two parts");
    let mut all = fields(&serde_json::to_value(whole()).unwrap());
    for (path, kind) in fields(&serde_json::to_value(bare()).unwrap()) {
        if kind == "null" {
            all.get_mut(&path).expect("it is in both").push_str(" or null");
        }
    }
    // None of these is in a status that lacks nothing else.
    for path in ["offload", "ports[].pacing", "quota.payers[].holds.requests"] {
        all.get_mut(path).expect("it is there").push_str(" or null");
    }
    all.retain(|path, _| !is_documented_elsewhere(path));
    assert_eq!(documented(status), all);
    assert_eq!(documented(explained), fields(&serde_json::to_value(explanation()).unwrap()));
}

#[test]
fn docs_have_all_words_and_the_schema_number() {
    let words = [Link::WORDS, Role::WORDS, State::WORDS, Death::WORDS, ChosenBy::WORDS].concat();
    for word in words {
        assert!(DOCUMENTATION.contains(&format!("`{word}`")), "{word}");
    }
    assert!(DOCUMENTATION.contains(&format!("schema {SCHEMA}")));
}

#[test]
fn recorded_document_is_read_without_loss() {
    let status = Status::parse(RECORDED).expect("a status");
    assert!(!status.circuits.is_empty() && !status.ports.is_empty() && !status.hosts.is_empty());
    let before: Value = serde_json::from_str(RECORDED).unwrap();
    let after: Value = serde_json::from_str(&status.to_string()).unwrap();
    assert_eq!(before, after);
    assert_eq!(Status::parse(&format!("{status:#}")).unwrap(), status);
}

#[test]
fn field_unknown_is_ignored_and_field_missing_is_an_error() {
    let mut document = serde_json::to_value(whole()).unwrap();
    document["news"] = 1.into();
    assert_eq!(Status::parse(&document.to_string()).unwrap(), whole());
    document.as_object_mut().unwrap().remove("counters");
    let error = Status::parse(&document.to_string()).unwrap_err().to_string();
    assert!(error.contains("counters"), "{error}");
}

#[test]
fn schema_of_another_number_is_refused_first() {
    let refused = |text: &str| match Status::parse(text) {
        Err(error @ StatusError::Schema { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let newer = refused("{\"schema\": 2, \"host\": \"elsewhere\"}");
    assert!(newer.contains("schema 2") && newer.contains("reads schema 1"), "{newer}");
    assert!(refused("{\"host\": 1}").contains("schema 0"));
    assert!(matches!(Explanation::parse("{\"schema\": 2}"), Err(StatusError::Schema { found: Some(2) })));
    assert!(matches!(Status::parse("nonsense"), Err(StatusError::Json(_))));
}
