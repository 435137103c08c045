//! What a program tells a daemon that is slow to read.

use crosslane_client::{Session, SessionError};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{ChannelInfo, CircuitId, SegmentInfo, Tuple, Way, segment::segment_len};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::{AsFd, OwnedFd};
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

/// How many messages lie in the daemon's socket; they are taken out.
fn drain(daemon: &OwnedFd) -> usize {
    let mut bytes = [0; MAX_MESSAGE];
    std::iter::from_fn(|| rustix::net::recv(daemon, &mut bytes[..], RecvFlags::DONTWAIT).ok()).count()
}

#[test]
fn notes_are_dropped_rather_than_waited_for() {
    const MORE: usize = 1000;
    let (session, daemon) = pair();
    let mut sent = 0;
    while !is_full(&session) {
        session.tell(&note()).unwrap();
        sent += 1;
    }
    for _ in 0..MORE {
        session.tell(&note()).unwrap();
    }
    let got = drain(&daemon);
    assert!((sent..sent + MORE).contains(&got), "{got} of {sent} and {MORE} more");
    session.tell(&note()).unwrap();
    assert_eq!(drain(&daemon), 1);
}

#[test]
fn answer_that_was_not_waited_for_is_given_back() {
    let (session, daemon) = pair();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let patience = Duration::from_millis(10);
    let answer = session.circuit_within(&Request::Accept, socket.as_fd(), patience);
    assert!(matches!(answer, Err(SessionError::Late)), "{answer:?}");
    assert!(matches!(session.late_answer(false), Err(SessionError::Late)));
    let segment = SegmentInfo::sealed(segment_len(1 << 16));
    let granted = Reply::Circuit {
        circuit: CircuitId(7),
        token: 9,
        tuple: Tuple { client: ([10, 86, 0, 1], 1).into(), server: ([10, 86, 0, 2], 2).into() },
        client: false,
        rx_key: 1,
        tx_key: 2,
        status: 3,
        generation: 0,
        channel: Box::new(ChannelInfo {
            inbound: segment,
            outbound: segment,
            ring_max: 1 << 16,
            way: Way::DIRECT,
        }),
        retained: false,
        twin: false,
    };
    rustix::net::send(&daemon, &codec::encode(&granted).unwrap(), SendFlags::empty()).unwrap();
    session.late_answer(true).unwrap();
    let mut bytes = [0; MAX_MESSAGE];
    let mut next = || {
        let (len, _) = rustix::net::recv(&daemon, &mut bytes[..], RecvFlags::empty()).unwrap();
        codec::decode::<Request>(&bytes[..len]).unwrap()
    };
    assert_eq!(next(), Request::Accept);
    assert_eq!(next(), Request::Close { circuit: CircuitId(7), token: 9, abort: true });
}
