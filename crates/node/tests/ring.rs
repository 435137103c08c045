//! Three daemons in a ring: routes both ways, echoes over hosts between, loss of a cable.

mod support;

use crosslane_wire::HostId;
use crosslane_wire::local::{Reply, Request};
use support::*;

fn echo(lab: &Lab, from: usize, to: u16) -> (Option<u64>, u8) {
    let mut tool = Client::hello(&lab.control(from), "ping", None);
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
fn a_chain_passes_echoes_on() {
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

#[test]
fn an_idle_ring_sleeps() {
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
