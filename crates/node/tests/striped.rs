//! The second circuits of striped streams: who gets them, over which cable, and when they end.

mod support;

use crosslane_client::shared::SharedState;
use crosslane_shm::{Load, Store};
use crosslane_wire::HostId;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply, Request};
use serde_json::Value;
use std::net::TcpListener;
use std::os::fd::AsFd;
use support::joined::{join, ring};
use support::*;

/// Two hosts that `cables` join.
fn pair(cables: &[&'static str], more: &str) -> Lab {
    let mut lab = Lab::new();
    for host in 1..=2_u16 {
        let ports: Vec<_> = cables.iter().map(|cable| port(cable, host == 1)).collect();
        lab.configure(host.into(), host, &ports, more);
    }
    (1..=2).for_each(|host| lab.start(host));
    for host in 1..=2 {
        lab.wait(host, "all ways", |status| {
            status["hosts"][0]["ways"].as_array().is_some_and(|ways| ways.len() == cables.len())
        });
    }
    lab
}

/// Asks for the second circuit of `first`.
fn twin(client: &mut Client, (circuit, token): (crosslane_wire::CircuitId, u64)) -> Result<Circuit, Reply> {
    let (_state, memory) = SharedState::create().unwrap();
    client.tell(&Request::Twin { circuit, token }, &[memory.as_fd()]);
    client.granted()
}

/// A striped stream to host 2: the two sessions, and both circuits' ends there and here.
fn striped(lab: &Lab) -> ([Client; 2], [[Circuit; 2]; 2], [std::net::TcpStream; 2]) {
    let [mut client, mut server] =
        [(1, "client"), (2, "server")].map(|(at, name)| Client::hello(&lab.control(at), name));
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
    let near = near.expect("a circuit");
    let near_twin = twin(&mut client, (near.id, near.token)).expect("another circuit");
    let (ours, theirs) = finish(socket, &listener);
    // Whoever has accepted needs no listener any more.
    drop(listener);
    let (_state, memory) = SharedState::create().unwrap();
    server.tell(&Request::Accept, &[theirs.as_fd(), memory.as_fd()]);
    let (reply, fds) = server.answer();
    let Reply::Circuit { circuit, token, twin: true, .. } = reply else { panic!("not striped: {reply:?}") };
    let far = circuit_of(&reply, fds);
    let far_twin = twin(&mut server, (circuit, token)).expect("the other circuit");
    ([client, server], [[near, near_twin], [far, far_twin]], [ours, theirs])
}

fn rows(lab: &Lab, host: usize) -> Vec<Value> {
    lab.status(host)["circuits"].as_array().unwrap().clone()
}

#[test]
fn twin_has_a_circuit_of_its_own_over_another_cable() {
    let lab = pair(&["c1", "c2"], "resilience = \"reset\"");
    let ([client, server], [[near, near_twin], [far, far_twin]], _sockets) = striped(&lab);
    assert_ne!(near.id, near_twin.id);
    assert_eq!((near.tuple, far.tuple), (near_twin.tuple, far_twin.tuple));
    for (number, (from, to)) in [(&near, &far), (&near_twin, &far_twin)].into_iter().enumerate() {
        from.outbound.store_u64(0, 70 + number as u64);
        assert_eq!(to.inbound.load_u64(0), 70 + number as u64);
    }
    let status = lab.status(1);
    assert_eq!(
        (&status["counters"]["streams_open"], &status["counters"]["streams_opened"]),
        (&1.into(), &1.into())
    );
    assert_eq!(rows(&lab, 1).iter().filter(|row| !row["twin_of"].is_null()).count(), 1);
    // Streams that may not move end with their cable.
    let cut = Request::Cut { port: "c1".to_owned() };
    assert_eq!(Client::hello(&lab.control(1), "lab").ask(&cut, &[]).0, Reply::Done);
    lab.wait(1, "one of the two is dead", |status| {
        status["circuits"].as_array().unwrap().iter().filter(|row| !row["dead"].is_null()).count() == 1
    });
    client.close(&near, false);
    server.close(&far, false);
    (1..=2).for_each(|host| lab.wait_idle(host));
}

#[test]
fn twin_is_closed_with_its_stream_and_with_its_program() {
    let lab = pair(&["c1", "c2"], "");
    let ([client, server], [[near, _], [far, _]], sockets) = striped(&lab);
    client.close(&near, false);
    lab.wait(2, "the far side hears of both", |status| {
        status["circuits"].as_array().unwrap().iter().all(|row| row["far_closed"] == true)
    });
    server.close(&far, false);
    (1..=2).for_each(|host| lab.wait_idle(host));
    drop(sockets);
    drop(striped(&lab));
    (1..=2).for_each(|host| lab.wait_idle(host));
}

#[test]
fn twin_is_there_only_where_another_path_is_as_short() {
    let no_way = |reply: Result<Circuit, Reply>| {
        let why = Plain::Refused(Refusal::NoRoute);
        assert_eq!(reply.err(), Some(Reply::Plain { why }));
    };
    for (lab, has) in [(pair(&["c1"], ""), false), (ring(3, ""), false), (ring(3, "all_ways = true"), true)] {
        let mut client = Client::hello(&lab.control(1), "client");
        let mut server = Client::hello(&lab.control(2), "server");
        let listener = TcpListener::bind("127.86.0.2:0").unwrap();
        server.listen(&listener);
        let (_socket, near) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
        let near = near.expect("a circuit");
        let other = twin(&mut client, (near.id, near.token));
        if has {
            assert!(other.is_ok());
        } else {
            no_way(other);
        }
    }
}

#[test]
fn twin_is_nobodys_without_the_token_and_comes_before_the_connection() {
    let lab = pair(&["c1", "c2"], "");
    let not_announced = |reply: Result<Circuit, Reply>| {
        assert_eq!(reply.err(), Some(Reply::Plain { why: Plain::NotAnnounced }));
    };
    let mut plain = join(&lab, 2);
    let (near, far) = ((plain.near.id, plain.near.token), (plain.far.id, plain.far.token));
    not_announced(twin(&mut plain.server, far));
    not_announced(twin(&mut plain.client, near));
    let ([mut client, _server], [[near, near_twin], _], _sockets) = striped(&lab);
    not_announced(twin(&mut client, (near.id, near.token ^ 1)));
    let mut stranger = Client::hello(&lab.control(1), "stranger");
    not_announced(twin(&mut stranger, (near.id, 0)));
    not_announced(twin(&mut client, (near_twin.id, near_twin.token)));
    // A program that adopts the stream gets the same end.
    let adopted = twin(&mut stranger, (near.id, near.token)).expect("the end");
    assert_eq!((adopted.id, adopted.token), (near_twin.id, near_twin.token));
    assert_eq!(lab.status(1)["hosts"][0]["id"], HostId(2).0);
}
