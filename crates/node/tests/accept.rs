//! Connections that are accepted before it is known whether their far program took the circuit.

mod support;

use crosslane_client::shared::SharedState;
use crosslane_shm::{Load, Store};
use crosslane_wire::WaiterId;
use crosslane_wire::local::{Plain, Reply, Request, STATUS_ALIVE, STATUS_MOVING};
use crosslane_wire::record::{Header, Kind, mark};
use crosslane_wire::segment::{RING, WANT_DATA};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use support::joined::ring;
use support::*;

/// A circuit from host 1 to host 3 of a ring of four, whose connection waits to be accepted. No handshake was sent.
struct Announced {
    lab: Lab,
    client: Client,
    server: Client,
    near: Circuit,
    sockets: (TcpStream, TcpStream),
    _listener: TcpListener,
}

fn announced() -> Announced {
    let lab = ring(4, "pump = true");
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(3), "server");
    let listener = TcpListener::bind("127.86.0.3:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
    let (near, sockets) = (near.expect("a circuit"), finish(socket, &listener));
    Announced { lab, client, server, near, sockets, _listener: listener }
}

impl Announced {
    /// Both cables of host 1.
    fn cables(&self, up: bool) {
        for port in ["c1", "c4"].map(str::to_owned) {
            let request = if up { Request::Mend { port } } else { Request::Cut { port } };
            assert_eq!(Client::hello(&self.lab.control(1), "lab").ask(&request, &[]).0, Reply::Done);
        }
    }

    /// The circuit is lost, and there is no other way; both ends know.
    fn is_lost(&self) {
        self.cables(false);
        for (host, others) in [(1, 0), (3, 2)] {
            self.lab.wait(host, "host 1 is alone, and the circuit lost", |status| {
                status["circuits"][0]["state"] == "moving"
                    && status["hosts"].as_array().is_some_and(|hosts| hosts.len() == others)
            });
        }
        until("it is lost here", || (self.client.status(&self.near) & 0xff == STATUS_MOVING).then_some(()));
    }

    fn accept(&self) {
        let (_, memory) = SharedState::create().unwrap();
        self.server.tell(&Request::Accept, &[self.sockets.1.as_fd(), memory.as_fd()]);
    }

    /// Nothing is answered for a while.
    fn is_silent(&self) {
        let mut ready = [PollFd::from_borrowed_fd(self.server.socket(), PollFlags::IN)];
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        assert_eq!(poll(&mut ready, Some(&moment)), Ok(0), "an answer before anything was known");
    }

    /// The client's handshake, by hand, and what wakes the hosts between.
    fn greet(&self) {
        let header = Header { len: 0, kind: Kind::Hello, flags: 0, cpu: 0 };
        self.near.outbound.store_u64(RING + 8, header.to_word());
        self.near.outbound.store_u64(RING, mark(self.near.keys.1, 0));
        until("somebody sleeps over it", || {
            let waiter = self.near.inbound.load_u32(WANT_DATA);
            (waiter != 0).then(|| {
                self.client.tell(
                    &Request::Wake {
                        circuit: self.near.id,
                        token: self.near.token,
                        waiter: WaiterId(waiter),
                    },
                    &[],
                );
            })
        });
    }
}

#[test]
fn accept_programs_learn_of_a_connection_before_its_opener_does() {
    let lab = ring(4, "");
    let mut server = Client::hello(&lab.control(3), "server");
    let listener = TcpListener::bind("127.86.0.3:0").unwrap();
    server.listen(&listener);
    assert_eq!(server.announced(), 0);
    // From this host, over one cable, and over two.
    let mut clients = Vec::new();
    for (count, host) in [(1, 3), (2, 2), (3, 1)] {
        let mut client = Client::hello(&lab.control(host), "client");
        let (socket, near) = client.connect_to(&format!("127.86.0.{host}:0"), listener.local_addr().unwrap());
        let near = near.expect("a circuit");
        assert_eq!(server.announced(), count, "a connection from host {host}");
        clients.push((client, socket, near));
    }
}

#[test]
fn handshake_that_is_slower_than_the_connection_is_waited_for() {
    let mut announced = announced();
    announced.accept();
    announced.is_silent();
    announced.greet();
    let (reply, _) = announced.server.answer();
    assert!(matches!(reply, Reply::Circuit { generation: 0, .. }), "{reply:?}");
}

#[test]
fn stream_whose_circuit_is_lost_before_it_is_accepted_goes_on() {
    let mut announced = announced();
    announced.is_lost();
    announced.accept();
    announced.is_silent();
    announced.cables(true);
    let (reply, _) = announced.server.answer();
    assert!(matches!(reply, Reply::Circuit { .. }), "{reply:?}");
    until("it goes on", || (announced.client.status(&announced.near) & 0xff == STATUS_ALIVE).then_some(()));
}

#[test]
fn circuit_that_its_program_never_had_is_none_however_it_moved() {
    let mut announced = announced();
    announced.is_lost();
    announced.client.close(&announced.near, true);
    announced.accept();
    announced.is_silent();
    announced.cables(true);
    assert_eq!(announced.server.answer().0, Reply::Plain { why: Plain::NotAnnounced });
    announced.lab.wait_idle(1);
    announced.lab.wait_idle(3);
}

#[test]
fn circuit_that_its_program_gave_up_is_none_though_a_host_between_has_it() {
    let mut announced = announced();
    announced.client.close(&announced.near, true);
    announced.lab.wait(3, "it is known there", |status| status["circuits"][0]["dead"] == "Abort");
    announced.accept();
    assert_eq!(announced.server.answer().0, Reply::Plain { why: Plain::NotAnnounced });
    announced.lab.wait_idle(3);
}
