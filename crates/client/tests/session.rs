//! What a program tells a daemon that is slow to read.

use crosslane_client::Session;
use crosslane_wire::CircuitId;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Plain, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn pair() -> (Session, OwnedFd) {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    (Session::from_socket(ours), theirs)
}

fn close(number: u64) -> Request {
    Request::Close { circuit: CircuitId(number), token: number, abort: false }
}

fn note() -> Request {
    Request::Note { fd: 1, remote: ([10, 86, 0, 1], 1).into(), why: Plain::Rule }
}

fn is_full(session: &Session) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(session.socket(), PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0
}

#[test]
fn many_closes_at_once_all_reach_a_daemon_that_is_behind() {
    const CLOSES: u64 = 5000;
    let (session, daemon) = pair();
    let deadline = Instant::now() + Duration::from_secs(30);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_full(&session) {
                assert!(Instant::now() < deadline, "never full");
                std::thread::yield_now();
            }
            let mut bytes = [0; MAX_MESSAGE];
            for number in 0..CLOSES {
                let (len, _) = rustix::net::recv(&daemon, &mut bytes[..], RecvFlags::empty()).unwrap();
                assert_eq!(codec::decode::<Request>(&bytes[..len]).unwrap(), close(number));
            }
        });
        for number in 0..CLOSES {
            session.tell(&close(number)).unwrap();
        }
    });
}

#[test]
fn notes_are_dropped_rather_than_waited_for() {
    let (session, _daemon) = pair();
    while !is_full(&session) {
        session.tell(&note()).unwrap();
    }
    session.tell(&note()).unwrap();
}
