//! Two daemons on one soft cable, as programs see them.

mod support;

use crosslane_port::Port;
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_shm::wake::Waker;
use crosslane_shm::{Outbound, Store, state};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{
    Plain, Reply, Request, STATUS_ALIVE, STATUS_CABLE, STATUS_PEER_ABORT, STATUS_SHUTDOWN, WakeBy,
};
use crosslane_wire::scratchpad::{DOORBELL_SETUP, Setup};
use crosslane_wire::{Epoch, HostId, PROTOCOL_VERSION};
use serde_json::Value;
use std::net::TcpListener;
use std::os::fd::AsFd;
use support::*;

/// A client on host 1 and a server on host 2, joined.
struct Joined {
    client: Client,
    server: Client,
    listener: TcpListener,
    ends: (Circuit, Circuit),
    sockets: (std::net::TcpStream, std::net::TcpStream),
}

fn join(lab: &Lab) -> Joined {
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(2), "server");
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
    let near = near.unwrap();
    let sockets = finish(socket, &listener);
    let far = server.circuit(&Request::Accept, sockets.1.as_fd()).unwrap();
    Joined { client, server, listener, ends: (near, far), sockets }
}

#[test]
fn circuit_joins_two_hosts() {
    let lab = Lab::pair();
    let mut joined = join(&lab);
    check_joined(&joined.ends.0, &joined.ends.1);
    let status = lab.status(1);
    assert_eq!(status["circuits"][0]["state"], "open");
    assert_eq!(status["circuits"][0]["program"], "client");
    assert_eq!(status["circuits"][0]["peer"], 2);
    assert_eq!(status["ports"][0]["window_used"], window_bare() + (1 << 20) + 4096);
    let unknown = joined.client.circuit(&Request::Accept, joined.sockets.1.as_fd());
    assert_eq!(unknown.unwrap_err(), Reply::Plain { why: Plain::NotAnnounced });
    joined.client.tell(&Request::Close { circuit: joined.ends.0.id, token: 1, abort: true }, &[]);
    assert_eq!(lab.status(1)["circuits"][0]["state"], "open", "a wrong token closes nothing");
    joined.client.close(&joined.ends.0, false);
    lab.wait(1, "closing", |status| status["circuits"][0]["state"] == "closing");
    assert_eq!(joined.server.status(&joined.ends.1), STATUS_ALIVE);
    joined.server.close(&joined.ends.1, false);
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn stream_that_one_end_breaks_off_is_over_for_the_other_at_once() {
    let lab = Lab::pair();
    let joined = join(&lab);
    let Circuit { id: circuit, token, .. } = joined.ends.0;
    let broken = |token| Request::Violated { circuit, token, text: "of no use".to_owned() };
    joined.client.tell(&broken(token + 1), &[]);
    assert_eq!(lab.status(1)["counters"]["violations"], 0);
    assert_eq!(joined.server.status(&joined.ends.1), STATUS_ALIVE, "a wrong token breaks nothing off");
    // Said twice, it is counted once; the programs keep their sockets and wait.
    joined.client.tell(&broken(token), &[]);
    joined.client.tell(&broken(token), &[]);
    until("the far end hears of it", || (joined.server.status(&joined.ends.1) != STATUS_ALIVE).then_some(()));
    assert_eq!(lab.status(1)["counters"]["violations"], 1);
    joined.server.close(&joined.ends.1, false);
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn refusals_have_reasons_and_leave_nothing() {
    let lab = Lab::pair();
    let mut client = Client::hello(&lab.control(1), "client");
    for (local, remote, why) in [
        ("127.86.0.1:0", "127.86.0.2:9", Plain::Refused(Refusal::NoListener)),
        ("127.86.0.1:0", "127.86.0.1:9", Plain::Refused(Refusal::NoListener)),
        ("127.86.0.1:0", "127.86.0.9:9", Plain::Refused(Refusal::NoRoute)),
        ("0.0.0.0:0", "192.0.2.1:9", Plain::NotFabric),
        ("127.86.0.3:0", "127.86.0.2:9", Plain::NotFabric),
    ] {
        let (_socket, circuit) = client.connect_to(local, remote.parse().unwrap());
        assert_eq!(circuit.unwrap_err(), Reply::Plain { why }, "{local} to {remote}");
    }
    let loose =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    let remote = "127.86.0.2:9".parse().unwrap();
    let circuit = client.circuit(&Request::Connect { remote }, loose.as_fd());
    assert_eq!(circuit.unwrap_err(), Reply::Plain { why: Plain::NoPort });
    let plain = lab.status(1)["counters"]["plain"].clone();
    assert_eq!((plain["NoListener"].as_u64(), plain["NoPort"].as_u64()), (Some(2), Some(1)));
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn session_that_dies_frees_everything_and_leaves_the_news_to_tcp() {
    let lab = Lab::pair();
    let joined = join(&lab);
    drop(joined.client);
    drop(joined.sockets);
    lab.wait(1, "the client's end closed", |status| status["circuits"][0]["state"] != "open");
    assert_eq!(joined.server.status(&joined.ends.1), STATUS_ALIVE, "bytes may still lie in its ring");
    drop(joined.server);
    lab.wait_idle(1);
    lab.wait_idle(2);
    let mut client = Client::hello(&lab.control(1), "client");
    let (_socket, circuit) = client.connect_to("127.86.0.1:0", joined.listener.local_addr().unwrap());
    assert_eq!(circuit.unwrap_err(), Reply::Plain { why: Plain::Refused(Refusal::NoListener) });
}

#[test]
fn pending_end_goes_with_its_listener() {
    let lab = Lab::pair();
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(2), "server");
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    server.listen(&listener);
    let (_socket, circuit) = client.connect_to("127.86.0.1:0", address);
    let circuit = circuit.unwrap();
    server.tell(&Request::Unlisten { address }, &[]);
    until("status word", || (client.status(&circuit) == STATUS_PEER_ABORT).then_some(()));
    client.close(&circuit, true);
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn kill_nine_of_a_daemon_and_its_return() {
    let mut lab = Lab::pair();
    let mut joined = join(&lab);
    let (_, receiver) = joined.client.waiter();
    let epoch = lab.status(1)["ports"][0]["epoch"].as_u64().unwrap();
    lab.kill(2);
    wait_readable(receiver.as_fd());
    assert_eq!(joined.client.status(&joined.ends.0), STATUS_CABLE);
    let (_socket, circuit) = joined.client.connect_to("127.86.0.1:0", joined.listener.local_addr().unwrap());
    assert_eq!(circuit.unwrap_err(), Reply::Plain { why: Plain::Refused(Refusal::NoRoute) });
    joined.client.close(&joined.ends.0, true);
    lab.start(2);
    let status = lab.wait(1, "cable up again", |status| status["ports"][0]["link"] == "up");
    assert!(status["ports"][0]["epoch"].as_u64().unwrap() > epoch);
    lab.wait_hosts(1, &[2]);
    lab.wait_hosts(2, &[1]);
    let again = join(&lab);
    check_joined(&again.ends.0, &again.ends.1);
    drop(again);
    drop(joined);
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn orderly_stop_is_told_to_programs_and_neighbours() {
    let mut lab = Lab::pair();
    let joined = join(&lab);
    assert_eq!(lab.stop(2), Some(0));
    assert!(!lab.control(2).exists());
    assert_eq!(joined.server.status(&joined.ends.1), STATUS_SHUTDOWN);
    until("status word", || (joined.client.status(&joined.ends.0) != STATUS_ALIVE).then_some(()));
    lab.wait(1, "host gone", |status| status["hosts"].as_array().unwrap().is_empty());
}

#[test]
fn wakers_are_handed_over_and_woken_by_proxy() {
    let lab = Lab::pair();
    let mut joined = join(&lab);
    let (waiter, receiver) = joined.server.waiter();
    let want = Request::WantWaker { circuit: joined.ends.0.id, token: joined.ends.0.token, waiter };
    let mut inodes = Vec::new();
    while !lab.is_posted() && inodes.len() < 2 {
        let (reply, fds) = joined.client.ask(&want, &[]);
        let Reply::Waker { by: Some(WakeBy::Descriptor { word }) } = reply else { panic!("{reply:?}") };
        let waker = Waker::of(fds.into_iter().next().unwrap(), word).unwrap();
        inodes.push(rustix::fs::fstat(&waker).unwrap().st_ino);
        assert!(waker.wake());
        wait_readable(receiver.as_fd());
        assert!(receiver.clear());
    }
    if lab.is_posted() {
        // A wake by a descriptor would overtake the stores that it is about: the client's own queue of stores has it, behind them.
        let (reply, fds) = joined.client.ask(&want, &[]);
        let Reply::Waker { by: Some(WakeBy::Queue { number }) } = reply else { panic!("{reply:?}") };
        assert!(fds.is_empty());
        joined.ends.0.outbound.wake(number ^ 1);
        joined.ends.0.outbound.wake(number);
        wait_readable(receiver.as_fd());
        assert!(receiver.clear());
        assert_eq!(joined.client.ask(&want, &[]).0, Reply::Waker { by: Some(WakeBy::Queue { number }) });
        inodes = vec![0, 1];
    }
    assert_ne!(inodes[0], inodes[1], "nobody shares a waker");
    joined.client.tell(&Request::Wake { circuit: joined.ends.0.id, token: joined.ends.0.token, waiter }, &[]);
    wait_readable(receiver.as_fd());
    assert!(receiver.clear());
    // Who holds the same end, as a child does, is rung by one that proves it; nobody else is.
    let own = |token| Request::WakeHere { circuit: joined.ends.1.id, token, waiter };
    joined.server.tell(&own(joined.ends.1.token ^ 1), &[]);
    joined.server.waiter();
    assert!(!receiver.clear(), "rung without proof");
    joined.server.tell(&own(joined.ends.1.token), &[]);
    wait_readable(receiver.as_fd());
    let wrong = Request::WantWaker {
        circuit: joined.ends.0.id,
        token: joined.ends.0.token,
        waiter: crosslane_wire::WaiterId(99),
    };
    assert_eq!(joined.client.ask(&wrong, &[]).0, Reply::Waker { by: None });
}

#[test]
fn wakers_that_were_handed_over_are_kept_by_no_daemon() {
    let mut lab = Lab::pair();
    if lab.is_posted() {
        return; // It hands none over, and keeps a few.
    }
    let mut joined = join(&lab);
    let mut held = |host| {
        let pid = lab.daemon(host).id();
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    };
    let before = [held(1), held(2)];
    for _ in 0..300 {
        let (waiter, receiver) = joined.server.waiter();
        let want = Request::WantWaker { circuit: joined.ends.0.id, token: joined.ends.0.token, waiter };
        let (reply, fds) = joined.client.ask(&want, &[]);
        let Reply::Waker { by: Some(WakeBy::Descriptor { word }) } = reply else { panic!("{reply:?}") };
        let waker = Waker::of(fds.into_iter().next().unwrap(), word).unwrap();
        assert!(waker.wake() && receiver.clear());
        drop((waker, receiver));
    }
    // Those that wait for the sleeper's daemon are the sleepers' own, and go with their session.
    assert!(held(1) <= before[0] + 2, "{} descriptors, there were {}", held(1), before[0]);
    drop(joined);
    until("the sleepers' daemon has none left", || (held(2) <= before[1]).then_some(()));
}

#[test]
fn out_of_window_memory_is_refused_and_comes_back() {
    let mut lab = Lab::new();
    let small = |listens| TestPort { cable: "c", listens, window: "16M" };
    lab.configure(1, 1, &[small(true)], "");
    lab.configure(2, 2, &[small(false)], "");
    lab.start(1);
    lab.start(2);
    lab.wait_hosts(1, &[2]);
    lab.wait_hosts(2, &[1]);
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(2), "server");
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    server.listen(&listener);
    let mut held = Vec::new();
    let why = loop {
        let (socket, circuit) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
        match circuit {
            Ok(circuit) => held.push((socket, circuit)),
            Err(reply) => break reply,
        }
        assert!(held.len() < 400);
    };
    assert_eq!(why, Reply::Plain { why: Plain::Refused(Refusal::Quota) });
    assert!(held.len() >= 8);
    drop((client, server, held));
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn hosts_of_one_id_refuse_each_other() {
    let mut lab = Lab::new();
    lab.configure(1, 7, &[port("c", true)], "");
    lab.configure(2, 7, &[port("c", false)], "");
    lab.start(1);
    lab.start(2);
    for number in 1..=2 {
        let status = lab.wait(number, "refused", |status| status["ports"][0]["link"] == "refused");
        assert!(status["ports"][0]["why"].as_str().unwrap().contains("two hosts have the id 7"));
    }
}

/// Words of a neighbour that this test plays.
fn play(lab: &Lab, setup: Setup) -> SoftPort {
    let mut port = SoftPort::connect(SoftConfig::new(lab.path("c"))).unwrap();
    port.set_inbound(0, 1 << 30).unwrap();
    until("link up", || {
        while port.poll_event().is_some() {}
        port.is_up().then_some(())
    });
    let words = setup.to_words();
    for (index, word) in words.into_iter().enumerate().rev() {
        port.write_peer_scratchpad(index, word);
    }
    port.ring_peer_doorbell(1 << DOORBELL_SETUP);
    port
}

#[test]
fn another_protocol_version_and_rubbish_are_refused() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true)], "");
    lab.start(1);
    let good = Setup {
        version: PROTOCOL_VERSION,
        host: HostId(2),
        epoch: Epoch(1),
        window: 1 << 30,
        key: 9,
        flags: 0,
    };
    let refused = |status: &Value, word: &str| {
        status["ports"][0]["link"] == "refused" && status["ports"][0]["why"].as_str().unwrap().contains(word)
    };
    for (setup, word) in [
        (Setup { version: 99, ..good }, "version 99"),
        (Setup { host: HostId(900), ..good }, "900"),
        (Setup { window: 0, ..good }, "window"),
    ] {
        let neighbour = play(&lab, setup);
        lab.wait(1, word, |status| refused(status, word));
        drop(neighbour);
        lab.wait(1, "down", |status| status["ports"][0]["link"] == "down");
    }
}

#[test]
fn connections_by_the_thousand_leak_nothing() {
    let mut lab = Lab::pair();
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(2), "server");
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    server.listen(&listener);
    let descriptors = |lab: &mut Lab, number| {
        let pid = lab.daemon(number).id();
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    };
    let mut before = (0, 0);
    for round in 0..1000 {
        let (socket, near) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
        let near = near.unwrap();
        let (_near, accepted) = finish(socket, &listener);
        let far = server.circuit(&Request::Accept, accepted.as_fd()).unwrap();
        let (first, second) = if round % 2 == 0 { (&near, &far) } else { (&far, &near) };
        let (one, two) = if round % 2 == 0 { (&client, &server) } else { (&server, &client) };
        one.close(first, false);
        two.close(second, false);
        if round == 10 {
            lab.wait_idle(1);
            lab.wait_idle(2);
            // The session that asked for the status may still be counted.
            before = (descriptors(&mut lab, 1), descriptors(&mut lab, 2));
        }
    }
    lab.wait_idle(1);
    lab.wait_idle(2);
    until("descriptors given back", || {
        (descriptors(&mut lab, 1) <= before.0 && descriptors(&mut lab, 2) <= before.1).then_some(())
    });
    assert_eq!(lab.status(1)["counters"]["streams_opened"], 1000);
    assert_eq!(lab.status(2)["counters"]["streams_closed"], 1000);
}

#[test]
fn counts_that_programs_wrote_end_no_daemon() {
    let lab = Lab::pair();
    for _ in 0..3 {
        let stream = joined::join(&lab, 2);
        let (_, memory) = stream.near.state.as_ref().unwrap();
        let state = Outbound::sealed(memory, state::LEN).unwrap();
        (0..8).for_each(|word| state.store_u64(word * 8, u64::MAX / 2 + 1));
        lab.status(1);
        stream.client.close(&stream.near, false);
        stream.server.close(&stream.far, false);
        lab.wait_idle(1);
    }
}
