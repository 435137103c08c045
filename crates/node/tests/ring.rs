//! Three daemons in a ring: routes both ways, echoes over hosts between, loss of a cable.

mod support;

use crosslane_wire::HostId;
use crosslane_wire::local::{Reply, Request};
use std::sync::atomic::Ordering::Relaxed;
use support::joined::{Joined, join, ring};
use support::*;

fn echo(lab: &Lab, from: usize, to: u16) -> (Option<u64>, u8) {
    let mut tool = Client::hello(&lab.control(from), "ping");
    match tool.ask(&Request::Echo { to: HostId(to) }, &[]).0 {
        Reply::Echo { round_trip_ns, hops } => (round_trip_ns, hops),
        other => panic!("no echo but {other:?}"),
    }
}

#[test]
fn everybody_reaches_everybody_both_ways_round() {
    let mut lab = Lab::ring();
    for from in 1..=3_usize {
        for to in 1..=3_u16 {
            let (time, hops) = echo(&lab, from, to);
            assert!(time.is_some(), "{from} to {to}");
            assert_eq!(hops, u8::from(usize::from(to) != from));
        }
    }
    lab.wait(1, "both ways", |status| {
        status["hosts"][0]["ways"].as_array().is_some_and(|ways| ways.len() == 2)
    });
    lab.kill(2);
    lab.wait_hosts(1, &[3]);
    lab.wait_hosts(3, &[1]);
    assert!(echo(&lab, 1, 3).0.is_some());
    assert!(echo(&lab, 1, 2).0.is_none());
    lab.start(2);
    lab.wait_hosts(1, &[2, 3]);
    lab.wait_hosts(2, &[1, 3]);
    assert!(echo(&lab, 1, 2).0.is_some());
}

#[test]
fn chain_passes_echoes_on() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c12", true)], "");
    lab.configure(2, 2, &[port("c12", false), port("c23", true)], "");
    lab.configure(3, 3, &[port("c23", false)], "");
    for number in [3, 1, 2] {
        lab.start(number);
    }
    lab.wait_hosts(1, &[2, 3]);
    lab.wait_hosts(3, &[1, 2]);
    let (time, hops) = echo(&lab, 1, 3);
    assert!(time.is_some());
    assert_eq!(hops, 2);
}

/// Cables that each stream of host 1 leads over, the fewest first.
fn hops(lab: &Lab) -> Vec<u64> {
    let status = lab.status(1);
    let circuits = status["circuits"].as_array().unwrap();
    let mut hops: Vec<u64> = circuits.iter().map(|it| it["hops"].as_u64().unwrap()).collect();
    hops.sort_unstable();
    hops
}

fn streams(lab: &Lab, to: usize, count: usize) -> Vec<Joined> {
    std::iter::repeat_with(|| join(lab, to)).take(count).collect()
}

#[test]
fn streams_are_spread_over_ways_of_one_length() {
    let lab = ring(4, "");
    let transits = |host| lab.status(host)["counters"]["transits"].as_u64();
    let joined = streams(&lab, 3, 4);
    assert_eq!((transits(2), transits(4)), (Some(2), Some(2)));
    // A shorter way is better than an empty one.
    let near = streams(&lab, 2, 2);
    assert_eq!(hops(&lab), [1, 1, 2, 2, 2, 2]);
    drop((joined, near));
    (1..=4).for_each(|host| lab.wait_idle(host));
    // What is gone does not count.
    let _one = join(&lab, 3);
    let _other = join(&lab, 3);
    assert_eq!((transits(2), transits(4)), (Some(1), Some(1)));
}

#[test]
fn streams_are_spread_over_two_cables_between_the_same_hosts() {
    const RESET: &str = "resilience = \"reset\"";
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c1", true), port("c2", true)], RESET);
    lab.configure(2, 2, &[port("c1", false), port("c2", false)], RESET);
    (1..=2).for_each(|host| lab.start(host));
    for host in 1..=2 {
        lab.wait(host, "two ways", |status| {
            status["hosts"][0]["ways"].as_array().is_some_and(|ways| ways.len() == 2)
        });
    }
    let _joined = streams(&lab, 2, 4);
    // Streams that may not move end with their cable: that tells which had it.
    assert_eq!(order(&lab, 1, &Request::Cut { port: "c1".to_owned() }), Reply::Done);
    lab.wait(1, "two of four streams lost their cable", |status| {
        let circuits = status["circuits"].as_array().unwrap();
        circuits.iter().filter(|it| it["dead"].is_null()).count() == 2
    });
}

#[test]
fn streams_take_all_ways_where_that_is_wanted() {
    let lab = ring(3, "all_ways = true");
    let _joined = streams(&lab, 2, 4);
    assert_eq!(hops(&lab), [1, 1, 2, 2]);
    assert_eq!(lab.status(3)["counters"]["transits"], 2);
}

#[test]
fn streams_take_the_way_that_is_not_busy() {
    let lab = ring(3, "all_ways = true");
    let first = streams(&lab, 2, 2);
    assert_eq!(hops(&lab), [1, 2]);
    // The stream on the longer way sends, the other one is a program's idle connection.
    let (state, _) = first[1].near.state.as_ref().unwrap();
    let more = std::iter::repeat_with(|| {
        state.counters.tx_bytes.fetch_add(1 << 40, Relaxed);
        join(&lab, 2)
    });
    let _more: Vec<_> = more.take(2).collect();
    assert_eq!(hops(&lab), [1, 1, 1, 2]);
}

fn link(status: &serde_json::Value, port: &str) -> String {
    let ports = status["ports"].as_array().unwrap();
    ports.iter().find(|it| it["name"] == port).unwrap()["link"].as_str().unwrap().to_owned()
}

fn order(lab: &Lab, host: usize, request: &Request) -> Reply {
    Client::hello(&lab.control(host), "lab").ask(request, &[]).0
}

#[test]
fn cut_cable_stays_down_until_it_is_mended() {
    let lab = Lab::ring();
    // Of cable c12 host 1 is the side that listens, host 2 the one that connects.
    for (here, there) in [(1, 2), (2, 1)] {
        let port = || "c12".to_owned();
        for _ in 0..2 {
            assert_eq!(order(&lab, here, &Request::Cut { port: port() }), Reply::Done);
        }
        lab.wait(here, "the cut is seen here", |status| link(status, "c12") == "cut");
        let far = lab.wait(there, "the neighbour sees it", |status| link(status, "c12") == "down");
        assert!(
            far["ports"].as_array().unwrap().iter().any(|port| port["why"] == "the peer is gone"),
            "{far}"
        );
        // Longer than the connecting side's longest pause.
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert_eq!(link(&lab.status(there), "c12"), "down");
        lab.wait(here, "the other way round", |status| {
            status["hosts"].as_array().unwrap().iter().any(|host| host["id"] == there && host["hops"] == 2)
        });
        assert!(echo(&lab, here, u16::try_from(there).unwrap()).0.is_some());
        assert_eq!(order(&lab, here, &Request::Mend { port: port() }), Reply::Done);
        lab.wait(here, "mended", |status| link(status, "c12") == "up");
        lab.wait(there, "mended", |status| link(status, "c12") == "up");
    }
    let nothing = order(&lab, 1, &Request::Cut { port: "c23".to_owned() });
    assert!(matches!(nothing, Reply::Error { text } if text.contains("no port")));
}

#[test]
fn port_may_begin_cut() {
    let mut lab = Lab::new();
    let file = lab.configure(1, 1, &[port("c", true)], "");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "cut = true\n").unwrap();
    lab.configure(2, 2, &[port("c", false)], "");
    lab.start(1);
    lab.start(2);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!((link(&lab.status(1), "c"), link(&lab.status(2), "c")), ("cut".to_owned(), "down".to_owned()));
    assert_eq!(order(&lab, 1, &Request::Mend { port: "c".to_owned() }), Reply::Done);
    lab.wait_hosts(2, &[1]);
}

#[test]
fn strangers_cut_nothing() {
    let lab = Lab::pair();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can be somebody else");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(lab.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let control = lab.control(1);
    let answer = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        Client::hello(&control, "stranger").ask(&Request::Cut { port: "c".to_owned() }, &[]).0
    });
    let answer = answer.join().unwrap();
    assert!(matches!(&answer, Reply::Error { text } if text.contains("only root")), "{answer:?}");
    assert_eq!(link(&lab.status(1), "c"), "up");
}

#[test]
fn idle_ring_sleeps() {
    let mut lab = Lab::ring();
    let ticks = |lab: &mut Lab| -> u64 {
        (1..=3)
            .map(|number| {
                let pid = lab.daemon(number).id();
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                let words: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
                words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
            })
            .sum()
    };
    let before = ticks(&mut lab);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let used = ticks(&mut lab) - before;
    assert!(used <= 3, "three idle daemons used {used} ticks of 10 ms in a second");
}
