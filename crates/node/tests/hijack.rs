//! Whoever announces a connection that is not its own gets nothing, and takes nothing.

mod support;

use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply, Request, STATUS_ALIVE};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use support::*;

const NOT_ANNOUNCED: Reply = Reply::Plain { why: Plain::NotAnnounced };

/// A victim's socket and an impostor's at one address and port, and a server that both may announce a connection to.
struct Scene {
    lab: Lab,
    victim: (Client, OwnedFd),
    impostor: (Client, OwnedFd),
    server: Client,
    listener: TcpListener,
}

/// A socket that shares its port with others that let it.
fn shared_socket(local: SocketAddr) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    rustix::net::bind(&socket, &local).unwrap();
    socket
}

fn local_of(socket: &OwnedFd) -> SocketAddr {
    rustix::net::getsockname(socket).unwrap().try_into().unwrap()
}

/// The server on the same host, or on the other one.
fn scene(server_host: usize) -> Option<Scene> {
    let lab = Lab::pair();
    let nobody = Client::of_nobody(&lab.control(1), "impostor")?;
    let mut server = Client::hello(&lab.control(server_host), "server");
    let listener = TcpListener::bind(format!("127.86.0.{server_host}:0")).unwrap();
    server.listen(&listener);
    let own = shared_socket("127.86.0.1:0".parse().unwrap());
    let other = shared_socket(local_of(&own));
    let victim = (Client::hello(&lab.control(1), "victim"), own);
    Some(Scene { lab, victim, impostor: (nobody, other), server, listener })
}

impl Scene {
    fn connect(&self) -> Request {
        Request::Connect { remote: self.listener.local_addr().unwrap() }
    }

    fn announce(&mut self, is_victim: bool) -> Result<Circuit, Reply> {
        let connect = self.connect();
        let (client, socket) = if is_victim { &mut self.victim } else { &mut self.impostor };
        client.circuit(&connect, socket.as_fd())
    }

    /// The victim connects, and the server's program has the connection.
    fn make(&self) -> TcpStream {
        rustix::net::connect(&self.victim.1, &self.listener.local_addr().unwrap()).unwrap();
        self.listener.accept().unwrap().0
    }

    fn accept(&mut self, accepted: &TcpStream) -> Result<Circuit, Reply> {
        self.server.circuit(&Request::Accept, accepted.as_fd())
    }
}

/// On which host the server is, and whether the impostor announces first.
const CASES: [(usize, bool); 4] = [(1, false), (1, true), (2, false), (2, true)];

#[test]
fn connection_that_two_announce_is_had_by_the_one_whose_it_is() {
    for (server, first) in CASES {
        let Some(mut scene) = scene(server) else { return };
        let early = first.then(|| scene.announce(false));
        let own = scene.announce(true).expect("the victim's circuit");
        let late = (!first).then(|| scene.announce(false));
        let taken = early.or(late).unwrap();
        assert_eq!(scene.victim.0.status(&own), STATUS_ALIVE, "another's announcement ended it");
        let accepted = scene.make();
        let there = scene.accept(&accepted).expect("the accepted end");
        check_joined(&own, &there);
        if let Ok(taken) = taken {
            until("the impostor's end is broken off", || {
                (scene.impostor.0.status(&taken) != STATUS_ALIVE).then_some(())
            });
        }
    }
}

#[test]
fn plain_connection_stays_plain_whoever_announced_it() {
    for server in [1, 2] {
        let Some(mut scene) = scene(server) else { return };
        scene.announce(false).expect("nothing is known against it yet");
        let accepted = scene.make();
        assert_eq!(scene.accept(&accepted).unwrap_err(), NOT_ANNOUNCED, "server on host {server}");
    }
}

#[test]
fn plain_connection_stays_plain_though_the_impostor_left_before_it_was_accepted() {
    for server in [1, 2] {
        let Some(mut scene) = scene(server) else { return };
        let taken = scene.announce(false).expect("nothing is known against it yet");
        let accepted = scene.make();
        scene.impostor.0.close(&taken, false);
        scene.lab.wait(server, "it is closed", |status| {
            let circuits = status["circuits"].as_array().unwrap();
            circuits
                .iter()
                .all(|circuit| circuit["dead"] != serde_json::Value::Null || circuit["state"] == "closing")
        });
        assert_eq!(scene.accept(&accepted).unwrap_err(), NOT_ANNOUNCED, "server on host {server}");
    }
}

/// The impostor had such a connection itself, left the end behind in order, and reset the connection.
#[test]
fn connection_does_not_get_what_an_earlier_one_of_its_addresses_left_behind() {
    for server in [1, 2] {
        let Some(mut scene) = scene(server) else { return };
        let left = scene.announce(false).expect("it will be its own");
        let plain = local_of(&scene.victim.1);
        let next = shared_socket("127.86.0.1:0".parse().unwrap());
        let own = std::mem::replace(&mut scene.impostor.1, next);
        rustix::net::connect(&own, &scene.listener.local_addr().unwrap()).unwrap();
        scene.impostor.0.close(&left, false);
        scene.lab.wait(server, "it is closed in order", |status| {
            let mut ends = status["circuits"].as_array().unwrap().iter();
            ends.any(|end| end["role"] == "server" && end["dead"].is_null() && end["far_closed"] == true)
        });
        sockopt::set_socket_linger(&own, Some(std::time::Duration::ZERO)).unwrap();
        drop(own);
        let earlier = scene.listener.accept().unwrap().0;
        // Our daemon may have a copy of the socket in hand for a moment yet, and the kernel the connection.
        until("the impostor's connection is reset", || earlier.peer_addr().is_err().then_some(()));
        rustix::net::connect(&scene.victim.1, &scene.listener.local_addr().unwrap()).unwrap();
        let (accepted, from) = scene.listener.accept().unwrap();
        assert_eq!(from, plain);
        assert_eq!(scene.accept(&accepted).unwrap_err(), NOT_ANNOUNCED, "server on host {server}");
    }
}

#[test]
fn connection_that_waits_to_be_accepted_is_not_announced_again() {
    for server in [1, 2] {
        let Some(mut scene) = scene(server) else { return };
        let own = scene.announce(true).expect("the victim's circuit");
        let accepted = scene.make();
        let refused = Reply::Plain { why: Plain::Refused(Refusal::Protocol) };
        assert_eq!(scene.announce(false).unwrap_err(), refused, "server on host {server}");
        let there = scene.accept(&accepted).expect("the accepted end");
        check_joined(&own, &there);
    }
}

#[test]
fn program_that_is_gone_before_it_is_accepted_has_still_sent_what_it_sent() {
    for server in [1, 2] {
        let Some(mut scene) = scene(server) else { return };
        scene.announce(true).expect("the victim's circuit");
        let accepted = scene.make();
        let path = scene.lab.control(1);
        let next = (Client::hello(&path, "next"), shared_socket("127.86.0.1:0".parse().unwrap()));
        drop(std::mem::replace(&mut scene.victim, next));
        scene.lab.wait(1, "its end is closed", |status| {
            let circuits = status["circuits"].as_array().unwrap();
            circuits.iter().all(|circuit| circuit["role"] != "client" || circuit["state"] == "closing")
        });
        scene.accept(&accepted).expect("its end, closed in order");
    }
}

#[test]
fn another_hosts_address_is_nobodys_to_announce() {
    let Some(mut scene) = scene(2) else { return };
    let foreign = shared_socket("127.86.0.2:0".parse().unwrap());
    let refused = Reply::Plain { why: Plain::NotFabric };
    let connect = scene.connect();
    assert_eq!(scene.impostor.0.circuit(&connect, foreign.as_fd()).unwrap_err(), refused);
}

#[test]
fn announcement_of_a_port_again_takes_the_place_of_the_users_own_earlier_socket() {
    for server in [1, 2] {
        let Some(mut scene) = scene(server) else { return };
        let before = scene.announce(true).expect("a circuit");
        let again = shared_socket(local_of(&scene.victim.1));
        let before = (before, std::mem::replace(&mut scene.victim.1, again));
        let own = scene.announce(true).expect("another circuit");
        scene.lab.wait(1, "the earlier end is broken off", |status| {
            let circuits = status["circuits"].as_array().unwrap();
            circuits
                .iter()
                .filter(|circuit| circuit["role"] == "client" && circuit["state"] == "open")
                .count()
                == 1
        });
        drop(before);
        let accepted = scene.make();
        check_joined(&own, &scene.accept(&accepted).expect("the accepted end"));
    }
}
