//! Listeners that were shown to the daemon and listen no more.

mod support;

use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
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

/// A process that another test is just starting has our descriptors for a moment, too.
fn soon_nobody_listens(client: &mut Client, address: SocketAddr) {
    until("nobody listens", || {
        (client.connect_to("127.86.0.1:0", address).1.err() == Some(NOBODY_LISTENS)).then_some(())
    });
}

#[test]
fn closed_listener_gets_no_streams_nor_does_a_plain_one_in_its_place() {
    for host in [1, 2] {
        let (_lab, mut client, _server, listener) = scene(host);
        let address = listener.local_addr().unwrap();
        assert!(client.connect_to("127.86.0.1:0", address).1.is_ok());
        drop(listener);
        soon_nobody_listens(&mut client, address);
        let _plain = TcpListener::bind(address).unwrap();
        assert_eq!(client.connect_to("127.86.0.1:0", address).1.unwrap_err(), NOBODY_LISTENS);
    }
}

#[test]
fn listener_that_is_closed_at_a_shared_port_ends_all_that_its_session_showed_there() {
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

/// A listener at a port that others of its user may have, too.
fn sibling(address: SocketAddr) -> TcpListener {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 64).unwrap();
    socket.into()
}

/// Of several at one port the kernel chooses by the client's address, and only its choice counts.
#[test]
fn siblings_at_one_port_get_what_the_kernel_gives_them() {
    for host in [1, 2] {
        let (lab, mut client, mut server, shown) = scene(host);
        drop(shown);
        let shown = sibling(format!("127.86.0.{host}:0").parse().unwrap());
        let address = shown.local_addr().unwrap();
        server.listen(&shown);
        let plain = sibling(address);
        for listener in [&shown, &plain] {
            listener.set_nonblocking(true).unwrap();
        }
        let (mut streams, mut others, mut used) = (0, 0, BTreeSet::new());
        let accepts = || {
            until("it is somebody's", || {
                let got = [&shown, &plain].map(|listener| listener.accept().is_ok());
                got.contains(&true).then_some(got[0])
            })
        };
        while streams < 4 || others < 4 {
            let (socket, circuit) = client.connect_to("127.86.0.1:0", address);
            let local = TcpStream::from(socket.try_clone().unwrap()).local_addr().unwrap();
            rustix::net::connect(&socket, &address).unwrap();
            let is_shown = accepts();
            if used.insert(local) {
                assert_eq!(circuit.is_ok(), is_shown, "{circuit:?}");
                *(if is_shown { &mut streams } else { &mut others }) += 1;
            }
            assert!(used.len() < 128, "{streams} and {others}");
        }
        // What is left of these connections hides the kernel's choice: either listener may be it, and one is plain.
        for local in &used {
            let (socket, circuit) = client.connect_to(&local.to_string(), address);
            assert_eq!(circuit.unwrap_err(), NOBODY_LISTENS);
            rustix::net::connect(&socket, &address).unwrap();
            accepts();
        }
        drop(plain);
        for local in &used {
            let (socket, circuit) = client.connect_to(&local.to_string(), address);
            assert!(circuit.is_ok(), "{circuit:?}");
            rustix::net::connect(&socket, &address).unwrap();
            drop(until("it is accepted", || shown.accept().ok()));
        }
        drop(shown);
        soon_nobody_listens(&mut client, address);
        for _ in 0..16 {
            assert_eq!(client.connect_to("127.86.0.1:0", address).1.unwrap_err(), NOBODY_LISTENS);
        }
        drop(lab);
    }
}

#[test]
fn listener_lives_as_long_as_a_copy_of_its_descriptor_and_not_when_it_was_shut_down() {
    for host in [1, 2] {
        let (_lab, mut client, mut server, listener) = scene(host);
        let address = listener.local_addr().unwrap();
        let copy = listener.try_clone().unwrap();
        drop(listener);
        assert!(client.connect_to("127.86.0.1:0", address).1.is_ok(), "a copy listens");
        rustix::net::shutdown(&copy, Shutdown::Read).unwrap();
        assert_eq!(client.connect_to("127.86.0.1:0", address).1.unwrap_err(), NOBODY_LISTENS);
        // By the same socket, which the kernel may give another port.
        rustix::net::listen(&copy, 16).unwrap();
        server.listen(&copy);
        let address = copy.local_addr().unwrap();
        assert!(client.connect_to("127.86.0.1:0", address).1.is_ok(), "it listens again");
        drop(copy);
        soon_nobody_listens(&mut client, address);
    }
}
