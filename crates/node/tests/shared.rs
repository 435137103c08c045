//! Circuits whose segments hosts between hand on: both ends share memory, and nothing is copied on the way (decision 33).

mod support;

use crosslane_shm::{Load, Store};
use crosslane_wire::local::{Reply, Request, STATUS_ALIVE, WakeBy, status_word};
use crosslane_wire::record::{Header, Kind, mark};
use crosslane_wire::segment::RING;
use crosslane_wire::{WaiterId, Way};
use support::joined::{Joined, join, ring};
use support::*;

/// One record of 8 bytes, the first of its ring; it is there at once.
fn pass(from: &Circuit, to: &Circuit, word: u64) {
    let header = Header { len: 8, kind: Kind::Data, flags: 0, cpu: 0 };
    from.outbound.store_u64(RING + 16, word);
    from.outbound.store_u64(RING + 8, header.to_word());
    from.outbound.store_u64(RING, mark(from.keys.1, 0));
    assert_eq!(to.inbound.load_u64(RING), mark(to.keys.0, 0), "it is the same memory");
    assert_eq!(to.inbound.load_u64(RING + 16), word);
}

fn way_of(client: &mut Client, end: &Circuit) -> Way {
    let request = Request::Resume { circuit: end.id, token: end.token, generation: 0 };
    let (reply, _) = client.ask(&request, &[]);
    let Reply::Resumed { channel, .. } = reply else { panic!("no segments but {reply:?}") };
    channel.way
}

fn closes_in_order(lab: &Lab, joined: Joined, hosts: core::ops::RangeInclusive<usize>) {
    joined.client.close(&joined.near, false);
    joined.server.close(&joined.far, false);
    for host in hosts {
        lab.wait_idle(host);
    }
}

#[test]
fn shared_circuit_is_one_memory_and_is_counted_where_it_passes() {
    for (hosts, to, between) in [(5, 3, 2), (3, 2, 3)] {
        let lab = ring(hosts, "");
        if between == 3 {
            // The long way round is the only one.
            let done = Client::hello(&lab.control(1), "lab").ask(&Request::Cut { port: "c1".into() }, &[]).0;
            assert_eq!(done, Reply::Done);
            lab.wait(1, "the long way", |status| status["hosts"][0]["hops"] == 2);
        }
        let joined = join(&lab, to);
        for host in [1, to] {
            lab.wait(host, "two cables", |status| status["circuits"][0]["hops"] == 2);
            assert_eq!(lab.status(host)["circuits"][0]["pumps"], 0);
        }
        lab.wait(between, "one in transit", |status| status["counters"]["transits"] == 1);
        pass(&joined.near, &joined.far, 77);
        pass(&joined.far, &joined.near, 78);
        let status = lab.status(between);
        assert_eq!(status["counters"]["transit_bytes"], 16);
        closes_in_order(&lab, joined, 1..=usize::from(hosts));
        lab.wait(between, "none in transit", |status| {
            status["counters"]["transits"] == 0 && status["counters"]["transit_bytes"] == 16
        });
    }
}

#[test]
fn shared_circuit_costs_the_host_between_no_thread_and_no_descriptor() {
    let mut lab = ring(3, "");
    let done = Client::hello(&lab.control(1), "lab").ask(&Request::Cut { port: "c1".into() }, &[]).0;
    assert_eq!(done, Reply::Done);
    lab.wait(1, "the long way", |status| status["hosts"][0]["hops"] == 2);
    let pid = lab.daemon(3).id();
    let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let before = (count("task"), count("fd"));
    let joined = [join(&lab, 2), join(&lab, 2), join(&lab, 2)];
    assert_eq!(lab.status(3)["counters"]["transits"], 3);
    // Whoever asked for the status has a socket for a moment.
    until("nothing is left", || ((count("task"), count("fd")) == before).then_some(()));
    for joined in joined {
        pass(&joined.near, &joined.far, 1);
    }
}

#[test]
fn wakers_and_wakes_of_far_programs_pass_hosts_between() {
    let lab = ring(5, "");
    let mut joined = join(&lab, 3);
    let (waiter, event) = joined.server.waiter();
    let (circuit, token) = joined.near.key();
    joined.client.tell(&Request::Wake { circuit, token, waiter }, &[]);
    until("it is woken by way of the daemons", || event.clear().then_some(()));
    let (reply, mut fds) = joined.client.ask(&Request::WantWaker { circuit, token, waiter }, &[]);
    let Reply::Waker { by: Some(WakeBy::Descriptor { word }) } = reply else {
        panic!("no waker but {reply:?}")
    };
    let waker = crosslane_shm::wake::Waker::of(fds.remove(0), word).unwrap();
    waker.wake();
    until("it is woken directly", || event.clear().then_some(()));
    let stranger = WaiterId(waiter.0.wrapping_add(1000));
    let (reply, _) = joined.client.ask(&Request::WantWaker { circuit, token, waiter: stranger }, &[]);
    assert_eq!(reply, Reply::Waker { by: None }, "nobody has that one");
    closes_in_order(&lab, joined, 1..=5);
}

#[test]
fn shared_circuit_that_is_lost_goes_on_the_other_way_round_and_keeps_nothing() {
    let lab = ring(4, "");
    let mut joined = join(&lab, 2);
    let done = Client::hello(&lab.control(1), "lab").ask(&Request::Cut { port: "c1".into() }, &[]).0;
    assert_eq!(done, Reply::Done);
    let good = status_word(1, STATUS_ALIVE);
    until("it goes on", || (joined.client.status(&joined.near) == good).then_some(()));
    until("there too", || (joined.server.status(&joined.far) == good).then_some(()));
    lab.wait(1, "three cables", |status| status["circuits"][0]["hops"] == 3);
    assert_eq!(way_of(&mut joined.client, &joined.near), Way::SHARED);
    assert_eq!(way_of(&mut joined.server, &joined.far), Way::SHARED);
    closes_in_order(&lab, joined, 1..=4);
}

/// Host 2 pumps, the others between hand on: who pumps is counted, and a pump stores into memory of more than one cable away.
#[test]
fn chain_of_a_pump_and_hosts_that_hand_on_carries_records() {
    let mut lab = Lab::new();
    for host in 1..=5_u16 {
        let cables = ["c1", "c2", "c3", "c4"];
        let right = cables.get(usize::from(host) - 1).map(|cable| port(cable, true));
        let left = cables.get(usize::from(host).wrapping_sub(2)).map(|cable| port(cable, false));
        let ports: Vec<TestPort> = right.into_iter().chain(left).collect();
        lab.configure(host.into(), host, &ports, if host == 3 { "pump = true" } else { "" });
    }
    (1..=5).for_each(|host| lab.start(host));
    for host in 1..=5 {
        lab.wait(host, "all", |status| status["hosts"].as_array().unwrap().len() == 4);
    }
    let joined = join(&lab, 5);
    for host in [1, 5] {
        lab.wait(host, "four cables", |status| status["circuits"][0]["hops"] == 4);
        assert_eq!(lab.status(host)["circuits"][0]["pumps"], 1);
    }
    for (client, from, to, word) in
        [(&joined.client, &joined.near, &joined.far, 7_u64), (&joined.server, &joined.far, &joined.near, 8)]
    {
        let header = Header { len: 8, kind: Kind::Data, flags: 0, cpu: 0 };
        from.outbound.store_u64(RING + 16, word);
        from.outbound.store_u64(RING + 8, header.to_word());
        from.outbound.store_u64(RING, mark(from.keys.1, 0));
        until("the record is pumped on", || {
            let waiter = from.inbound.load_u32(crosslane_wire::segment::WANT_DATA);
            if waiter != 0 {
                let request = Request::Wake { circuit: from.id, token: from.token, waiter: WaiterId(waiter) };
                client.tell(&request, &[]);
            }
            (to.inbound.load_u64(RING) == mark(to.keys.0, 0)).then_some(())
        });
        assert_eq!(to.inbound.load_u64(RING + 16), word);
    }
    for host in 2..=4 {
        lab.wait(host, "16 bytes", |status| status["counters"]["transit_bytes"] == 16);
    }
    closes_in_order(&lab, joined, 1..=5);
}
