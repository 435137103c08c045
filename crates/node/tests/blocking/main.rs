//! Descriptors of strangers that block whoever closes or asks them: the daemon serves everybody else meanwhile.

mod served;
#[path = "../support/mod.rs"]
mod support;

use crosslane_passing::send;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::Request;
use crosslane_wire::{BufferId, CircuitId, Reach};
use rustix::net::{SendFlags, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use support::*;

/// How long the last close of a socket takes.
const LINGER: Duration = Duration::from_secs(60);
/// Much less: what others wait at most.
const SOON: Duration = Duration::from_secs(10);

/// A connection whose far end never reads, full, so that its last close waits for [`LINGER`].
struct Lingering {
    near: TcpStream,
    far: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        loop {
            match near.write(&[0; 65536]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        sockopt::set_socket_linger(&near, Some(LINGER)).unwrap();
        Self { near, far }
    }
}

/// A daemon, and what strangers do to it while it stands still, so that their own references are gone when it goes on.
struct Attacked {
    lab: Lab,
    /// Far ends of what was sent.
    kept: Vec<TcpStream>,
}

impl Attacked {
    fn new() -> Self {
        let mut lab = Lab::new();
        lab.configure(1, 1, &[], "");
        lab.start(1);
        Self { lab, kept: Vec::new() }
    }

    fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_child(self.lab.daemon(1));
        kill_process(pid, signal).unwrap();
    }

    /// Sends a packet with so many lingering sockets of which the daemon will have the last references.
    fn send(&mut self, session: &Client, bytes: &[u8], count: usize) {
        let sockets: Vec<Lingering> = (0..count).map(|_| Lingering::new()).collect();
        let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.near.as_fd()).collect();
        send(session.socket(), bytes, &fds, SendFlags::DONTWAIT).unwrap();
        self.kept.extend(sockets.into_iter().map(|socket| socket.far));
    }

    /// A session of another user than the honest ones.
    fn stranger(&self) -> Client {
        use std::os::unix::fs::PermissionsExt;
        let folder = self.lab.path("");
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        Client::hello_as(&self.lab.control(1), 65534).unwrap()
    }

    /// The stranger's requests with descriptors come while the daemon stands still, and then `go`.
    fn attack(&mut self, sends: impl FnOnce(&mut Self)) {
        self.signal(Signal::STOP);
        sends(self);
        self.signal(Signal::CONT);
    }

    /// Other users get circuits and a status, soon.
    fn check_others(&self) {
        let start = Instant::now();
        let mut client = Client::hello(&self.lab.control(1), "client");
        let mut server = Client::hello(&self.lab.control(1), "server");
        for _ in 0..20 {
            let listener = TcpListener::bind("127.86.0.1:0").unwrap();
            server.listen(&listener);
            let (_socket, end) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
            end.unwrap();
            self.lab.status(1);
        }
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

fn share() -> Vec<u8> {
    let (circuit, buffer) = (CircuitId(1), BufferId(1));
    codec::encode(&Request::ExportBuffer { circuit, token: 0, buffer, len: 4096, reach: Reach::Load })
        .unwrap()
}

/// `None`, and says so, if this test cannot be another user.
fn attacked() -> Option<Attacked> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can be two users");
        return None;
    }
    Some(Attacked::new())
}

#[test]
fn last_reference_to_a_lingering_socket_holds_nobody_up() {
    let Some(mut attacked) = attacked() else { return };
    let listen = codec::encode(&Request::Listen).unwrap();
    for request in [share(), listen, vec![255; 7]] {
        let stranger = attacked.stranger();
        attacked.attack(|attacked| attacked.send(&stranger, &request, 1));
        attacked.check_others();
    }
}

#[test]
fn descriptors_of_which_there_are_too_many_hold_nobody_up() {
    let Some(mut attacked) = attacked() else { return };
    for count in [5, 40] {
        let stranger = attacked.stranger();
        attacked.attack(|attacked| attacked.send(&stranger, &share(), count));
        attacked.check_others();
    }
}

#[test]
fn descriptors_that_nobody_reads_hold_nobody_up() {
    let Some(mut attacked) = attacked() else { return };
    let stranger = attacked.stranger();
    attacked.attack(|attacked| {
        // The first one ends the session, and the others go with it.
        send(stranger.socket(), &[0; MAX_MESSAGE + 1], &[], SendFlags::DONTWAIT).unwrap();
        for _ in 0..3 {
            attacked.send(&stranger, &share(), 2);
        }
    });
    attacked.check_others();
}

#[test]
fn descriptors_in_a_queue_that_was_never_accepted_do_not_keep_the_daemon_from_ending() {
    let Some(mut attacked) = attacked() else { return };
    let stranger = attacked.stranger();
    attacked.attack(|attacked| attacked.send(&stranger, &share(), 4));
    attacked.check_others();
    let start = Instant::now();
    attacked.attack(|attacked| {
        attacked.signal(Signal::TERM);
        let waiting = Client::connect(&attacked.lab.control(1)).unwrap();
        attacked.send(&waiting, &share(), 4);
        drop((waiting, stranger));
    });
    assert_eq!(attacked.lab.stop(1), Some(0));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn stuck_session_gets_no_more_threads_nor_descriptors() {
    let Some(mut attacked) = attacked() else { return };
    let sessions: Vec<Client> = (0..8).map(|_| attacked.stranger()).collect();
    let before = descriptors_of(&mut attacked);
    attacked.attack(|attacked| {
        for session in &sessions {
            for _ in 0..4 {
                attacked.send(session, &share(), 4);
            }
        }
    });
    attacked.check_others();
    // Two packets are read, and their descriptors are being closed.
    // What the others had is given back soon.
    until("few descriptors", || (descriptors_of(&mut attacked) <= before + 2 * 4 + 4).then_some(()));
    assert!(threads_of(&mut attacked) < 12);
}

fn descriptors_of(attacked: &mut Attacked) -> usize {
    let pid = attacked.lab.daemon(1).id();
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn threads_of(attacked: &mut Attacked) -> usize {
    let pid = attacked.lab.daemon(1).id();
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}
