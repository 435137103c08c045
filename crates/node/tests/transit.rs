//! Circuits of several cables, by way of real daemons: joined, closed in order, lost, refused; and their resumption.

mod support;

use crosslane_shm::{Load, Store};
use crosslane_wire::local::{Plain, Reply, Request, STATUS_ALIVE, STATUS_CABLE, STATUS_MOVING, status_word};
use crosslane_wire::record::mark;
use crosslane_wire::segment::{RING, STATE, STATE_ATTACHED, STATE_GONE, WANT_DATA};
use crosslane_wire::{WaiterId, Way};
use std::os::fd::AsFd;
use support::joined::{Joined, join, ring};
use support::*;

/// Circuits whose segments hosts between hand on are in `shared.rs`.
const PUMP: &str = "pump = true";

/// One record from one end to the other, by hand.
fn pass(sender: &Client, from: &Circuit, to: &Circuit, word: u64) {
    let header =
        crosslane_wire::record::Header { len: 8, kind: crosslane_wire::record::Kind::Data, flags: 0, cpu: 0 };
    from.outbound.store_u64(RING + 16, word);
    from.outbound.store_u64(RING + 8, header.to_word());
    from.outbound.store_u64(RING, mark(from.keys.1, 0));
    until("the record is pumped on", || {
        let waiter = from.inbound.load_u32(WANT_DATA);
        if waiter != 0 {
            sender
                .tell(&Request::Wake { circuit: from.id, token: from.token, waiter: WaiterId(waiter) }, &[]);
        }
        (to.inbound.load_u64(RING) == mark(to.keys.0, 0)).then_some(())
    });
    assert_eq!(to.inbound.load_u64(RING + 16), word);
}

#[test]
fn circuit_through_a_host_carries_records_and_closes_in_order() {
    let lab = ring(5, PUMP);
    let joined = join(&lab, 3);
    let two = |status: &serde_json::Value| status["circuits"][0]["hops"] == 2;
    lab.wait(1, "two cables", two);
    lab.wait(3, "two cables", two);
    lab.wait(2, "one in transit", |status| status["counters"]["transits"] == 1);
    assert_eq!(joined.far.inbound.load_u32(STATE), STATE_ATTACHED);
    pass(&joined.client, &joined.near, &joined.far, 77);
    pass(&joined.server, &joined.far, &joined.near, 78);
    joined.client.close(&joined.near, false);
    until("the far side is gone", || (joined.far.inbound.load_u32(STATE) == STATE_GONE).then_some(()));
    joined.server.close(&joined.far, false);
    for host in 1..=3 {
        lab.wait_idle(host);
    }
    lab.wait(2, "none in transit", |status| {
        status["counters"]["transits"] == 0 && status["counters"]["transit_bytes"] == 16
    });
}

#[test]
fn lost_circuit_goes_on_the_other_way_round() {
    let mut lab = ring(4, PUMP);
    let mut joined = join(&lab, 2);
    lab.wait(1, "one cable", |status| status["circuits"][0]["hops"] == 1);
    for (round, (cut, hops)) in [("c1", 3), ("c1", 1)].into_iter().enumerate() {
        let generation = u32::try_from(round).unwrap() + 1;
        let request = if hops == 3 {
            Request::Cut { port: cut.to_owned() }
        } else {
            Request::Mend { port: cut.to_owned() }
        };
        let done = Client::hello(&lab.control(1), "lab").ask(&request, &[]).0;
        assert_eq!(done, Reply::Done);
        let good = status_word(generation, STATUS_ALIVE);
        until("it goes on", || (joined.client.status(&joined.near) >> 8 == generation).then_some(()));
        until("it goes on", || (joined.client.status(&joined.near) == good).then_some(()));
        until("there too", || (joined.server.status(&joined.far) == good).then_some(()));
        let near = next(&mut joined.client, &joined.near, generation - 1, generation);
        let far = next(&mut joined.server, &joined.far, generation - 1, generation);
        pass(&joined.client, &near, &far, 5);
        pass(&joined.server, &far, &near, 6);
        lab.wait(1, "cables", |status| status["circuits"][0]["hops"] == hops);
    }
    lab.stop(3);
    lab.stop(4);
    joined.client.close(&joined.near, false);
    joined.server.close(&joined.far, false);
    lab.wait_idle(1);
    lab.wait_idle(2);
}

/// The segments of the next generation, in place of those of `end`.
fn next(client: &mut Client, end: &Circuit, has: u32, wants: u32) -> Circuit {
    let request = Request::Resume { circuit: end.id, token: end.token, generation: has };
    let (reply, fds) = client.ask(&request, &[]);
    let Reply::Resumed { generation, newest, channel, rx_key, tx_key, .. } = reply else {
        panic!("no segments but {reply:?}")
    };
    assert_eq!((generation, newest), (wants, true));
    remap(end, &channel, (rx_key, tx_key), fds)
}

#[test]
fn adopted_end_comes_with_what_it_keeps_whatever_way_it_takes_now() {
    let lab = ring(4, PUMP);
    let joined = join(&lab, 2);
    let port = "c1".to_owned();
    for (generation, request) in [(1, Request::Cut { port: port.clone() }), (2, Request::Mend { port })] {
        assert_eq!(Client::hello(&lab.control(1), "lab").ask(&request, &[]).0, Reply::Done);
        let good = status_word(generation, STATUS_ALIVE);
        until("it goes on", || (joined.client.status(&joined.near) == good).then_some(()));
    }
    let mut heir = Client::hello(&lab.control(1), "heir");
    let (reply, fds) = heir.ask(&Request::Adopt, &[joined.sockets.0.as_fd()]);
    let Reply::Circuit { circuit, token, generation, channel, retained, .. } = reply else {
        panic!("no circuit but {reply:?}")
    };
    let (mut direct, relayed) = (Way::DIRECT, Way::RELAYED);
    if lab.is_posted() {
        direct = Way { keeps: true, zero_copy: false, offload: false, ..direct };
    }
    // With the end's state, which is the last of them.
    assert_eq!((generation, channel.way, retained, fds.len()), (0, direct, true, 4));
    for (has, expected) in [(0, relayed), (1, direct)] {
        let (reply, fds) = heir.ask(&Request::Resume { circuit, token, generation: has }, &[]);
        let Reply::Resumed { channel, retained, .. } = reply else { panic!("no segments but {reply:?}") };
        assert_eq!((channel.way, retained, fds.len()), (expected, true, 3));
    }
}

#[test]
fn segments_of_the_next_generation_need_the_token_of_that_very_end() {
    let lab = ring(3, PUMP);
    let (mut joined, other) = (join(&lab, 2), join(&lab, 2));
    let done = Client::hello(&lab.control(1), "lab").ask(&Request::Cut { port: "c1".to_owned() }, &[]);
    assert_eq!(done.0, Reply::Done);
    until("it goes on", || {
        (joined.client.status(&joined.near) == status_word(1, STATUS_ALIVE)).then_some(())
    });
    let (circuit, token) = (joined.near.id, joined.near.token);
    let ask = |client: &mut Client, token, generation| {
        client.ask(&Request::Resume { circuit, token, generation }, &[]).0
    };
    let nothing = Reply::Plain { why: Plain::System };
    let mut stranger = Client::hello(&lab.control(1), "stranger");
    for wrong in [0, token ^ 1, other.near.token, joined.far.token] {
        assert_eq!(ask(&mut stranger, wrong, 0), nothing);
        assert_eq!(ask(&mut joined.client, wrong, 0), nothing);
    }
    assert_eq!(ask(&mut joined.client, token, 1), nothing);
    assert!(matches!(ask(&mut joined.client, token, 0), Reply::Resumed { generation: 1, .. }));
}

#[test]
fn circuit_that_is_cut_off_dies_in_time_and_the_rest_goes_on() {
    let lab = ring(3, &format!("{PUMP}\nresume_ms = 400"));
    let joined = join(&lab, 2);
    let other = join(&lab, 3);
    for (host, port) in [(1, "c1"), (2, "c2")] {
        let request = Request::Cut { port: port.to_owned() };
        assert_eq!(Client::hello(&lab.control(host), "lab").ask(&request, &[]).0, Reply::Done);
    }
    let reason = |word: u32| word & 0xff;
    until("dead here", || (reason(joined.client.status(&joined.near)) == STATUS_CABLE).then_some(()));
    until("dead there", || (reason(joined.server.status(&joined.far)) == STATUS_CABLE).then_some(()));
    assert_eq!(other.client.status(&other.near), STATUS_ALIVE);
    pass(&other.client, &other.near, &other.far, 9);
}

#[test]
fn host_that_does_not_answer_is_gone_round_and_its_late_stores_reach_nobody() {
    let mut lab = ring(4, PUMP);
    let joined = join(&lab, 3);
    let between = lab.status(2)["counters"]["transits"] == 1;
    let between = if between { 2 } else { 4 };
    let pid = rustix::process::Pid::from_child(lab.daemon(between));
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let good = status_word(1, STATUS_ALIVE);
    until("it goes on", || (joined.client.status(&joined.near) == good).then_some(()));
    until("there too", || (joined.server.status(&joined.far) == good).then_some(()));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    lab.wait(between, "nothing passes there any more", |status| status["counters"]["transits"] == 0);
    assert_eq!(joined.client.status(&joined.near), good);
    lab.wait(between, "it is used again", |status| status["hosts"].as_array().unwrap().len() == 3);
}

#[test]
fn circuit_takes_the_other_way_where_one_has_no_memory() {
    let mut lab = Lab::new();
    let small = |cable, listens| TestPort { cable, listens, window: "16M" };
    lab.configure(1, 1, &[port("c1", true), port("c4", false)], "");
    lab.configure(2, 2, &[small("c2", true), small("c1", false)], "");
    lab.configure(3, 3, &[port("c3", true), port("c2", false)], "");
    lab.configure(4, 4, &[port("c4", true), port("c3", false)], "");
    (1..=4).for_each(|host| lab.start(host));
    for host in [1, 3] {
        lab.wait(host, "two ways to all", |status| {
            let hosts = status["hosts"].as_array().unwrap();
            hosts.len() == 3 && hosts.iter().all(|host| host["ways"].as_array().unwrap().len() == 2)
        });
    }
    let streams: Vec<Joined> = (0..30).map(|_| join(&lab, 3)).collect();
    let through = |host: usize| lab.status(host)["counters"]["transits"].as_u64().unwrap();
    assert_eq!(through(2) + through(4), 30);
    assert!(through(4) >= 15, "{} through the host with little memory", through(2));
    let own = join(&lab, 2);
    lab.wait(1, "the host with little memory has some for its own streams", |status| {
        let mine = |circuit: &&serde_json::Value| circuit["hops"] == 1;
        status["circuits"].as_array().unwrap().iter().filter(mine).count() == 1
    });
    drop((streams, own));
}

#[test]
fn moving_stream_is_shown_as_such() {
    let lab = ring(3, PUMP);
    let joined = join(&lab, 2);
    for (host, port) in [(1, "c1"), (1, "c3")] {
        let request = Request::Cut { port: port.to_owned() };
        assert_eq!(Client::hello(&lab.control(host), "lab").ask(&request, &[]).0, Reply::Done);
    }
    let status = lab.wait(1, "it moves", |status| {
        status["circuits"][0]["state"] == "moving" && status["hosts"].as_array().unwrap().is_empty()
    });
    assert_eq!(joined.client.status(&joined.near) & 0xff, STATUS_MOVING);
    assert!(status["counters"]["moves"].as_u64().unwrap() >= 1);
    let request = Request::Mend { port: "c3".to_owned() };
    assert_eq!(Client::hello(&lab.control(1), "lab").ask(&request, &[]).0, Reply::Done);
    until("it goes on", || {
        let word = joined.client.status(&joined.near);
        (word & 0xff == STATUS_ALIVE && word >> 8 > 0).then_some(())
    });
}

/// The ring 1-2-3 is opened between 1 and 2, host 4 is put in between, and taken out again; a stream from 1 to 2 lives on
/// all the time. What host 2 is plugged into is a link in the file system, as a cable is a thing that one can replug.
#[test]
fn host_is_put_into_a_running_ring_and_taken_out() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c1", true), port("c3", false)], "");
    lab.configure(2, 2, &[port("c2", true), port("plug", false)], "");
    lab.configure(3, 3, &[port("c3", true), port("c2", false)], "");
    lab.configure(4, 4, &[port("c4", true), port("c1", false)], "");
    let folder = lab.path("");
    let plug = |into: &str| {
        let _ = std::fs::remove_file(folder.join("plug"));
        std::os::unix::fs::symlink(folder.join(into), folder.join("plug")).unwrap();
    };
    plug("c1");
    let control = lab.control(1);
    let cable = |up: bool| {
        let port = "c1".to_owned();
        let request = if up { Request::Mend { port } } else { Request::Cut { port } };
        assert_eq!(Client::hello(&control, "lab").ask(&request, &[]).0, Reply::Done);
    };
    (1..=3).for_each(|host| lab.start(host));
    lab.wait_hosts(1, &[2, 3]);
    let joined = join(&lab, 2);
    let generation = |joined: &Joined| joined.client.status(&joined.near) >> 8;
    let hops =
        |lab: &Lab, hops: u64| lab.wait(1, "so many cables", |status| status["circuits"][0]["hops"] == hops);
    hops(&lab, 1);
    // Else host 2 may wait at the socket of host 1 already when it is let in again.
    plug("c4");
    cable(false);
    hops(&lab, 2);
    lab.start(4);
    cable(true);
    lab.wait_hosts(1, &[2, 3, 4]);
    lab.wait_hosts(2, &[1, 3, 4]);
    lab.wait(4, "both ways round", |status| {
        status["hosts"].as_array().unwrap().iter().all(|host| host["ways"].as_array().unwrap().len() == 2)
    });
    let other = join(&lab, 4);
    assert_eq!(other.client.status(&other.near), STATUS_ALIVE);
    drop(other);
    plug("c1");
    assert_eq!(lab.stop(4), Some(0));
    hops(&lab, 1);
    until("it went on twice", || (generation(&joined) >= 2).then_some(()));
    until("it lives", || (joined.client.status(&joined.near) & 0xff == STATUS_ALIVE).then_some(()));
}
