//! Listeners that were shown to the daemon and listen no more.

mod support;

use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply};
use std::net::TcpListener;
use support::*;

/// A server on host 1 or 2 that has shown a listener, and a client on host 1.
fn scene(host: usize) -> (Lab, Client, Client, TcpListener) {
    let lab = Lab::pair();
    let client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(host), "server");
    let listener = TcpListener::bind(format!("127.86.0.{host}:0")).unwrap();
    server.listen(&listener);
    (lab, client, server, listener)
}

const NOBODY_LISTENS: Reply = Reply::Plain { why: Plain::Refused(Refusal::NoListener) };

#[test]
fn a_closed_listener_gets_no_streams_nor_does_a_plain_one_in_its_place() {
    for host in [1, 2] {
        let (_lab, mut client, _server, listener) = scene(host);
        let address = listener.local_addr().unwrap();
        assert!(client.connect_to("127.86.0.1:0", address).1.is_ok());
        drop(listener);
        assert_eq!(client.connect_to("127.86.0.1:0", address).1.unwrap_err(), NOBODY_LISTENS);
        let _plain = TcpListener::bind(address).unwrap();
        assert_eq!(client.connect_to("127.86.0.1:0", address).1.unwrap_err(), NOBODY_LISTENS);
    }
}

#[test]
fn one_closing_of_a_shared_port_ends_all_that_the_session_showed_there() {
    let (lab, mut client, mut server, listener) = scene(2);
    for _ in 0..4 {
        server.listen(&listener);
    }
    let address = listener.local_addr().unwrap();
    drop(listener);
    server.tell(&crosslane_wire::local::Request::Unlisten { address }, &[]);
    lab.wait(2, "forgotten", |status| status["listeners"].as_array().is_some_and(Vec::is_empty));
    assert_eq!(client.connect_to("127.86.0.1:0", address).1.unwrap_err(), NOBODY_LISTENS);
}
