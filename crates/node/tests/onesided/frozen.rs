//! Far programs and daemons that are frozen: no call waits for ever, and none of what was posted is lost.

use super::death::{Program, freeze};
use super::support::{Client, Lab, PATIENCE};
use super::{address, fabric, peer, serve};
use crosslane::fabric::Fabric;
use crosslane::memory::{Access, Notices};
use crosslane::peer::{Error, Peer};
use crosslane::stream;
use crosslane_client::SessionError;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long the calls of these tests wait.
const SHORT: Duration = Duration::from_millis(50);
/// Bytes of a put that fills a ring soon.
const LONG: usize = 100_000;

#[track_caller]
fn timed_out<T>(outcome: Result<T, Error>) {
    let error = outcome.err().expect("nobody is there to do it");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("frozen"), "{error}");
}

fn long(seed: usize) -> Vec<u8> {
    (0..LONG).map(|at| u8::try_from((at + seed) % 251).unwrap()).collect()
}

#[test]
fn calls_end_in_time_while_the_owner_is_frozen_and_all_is_executed_when_it_goes_on() {
    let lab = Lab::pair();
    let mut program = Program::start("owner", lab.control(2), "");
    let (address, remote) = program.owned();
    let mut peer = Peer::connect(fabric(&lab, 1), address).unwrap();
    peer.set_timeout(Some(SHORT));
    program.freeze();

    let kept = peer.start_fetch_add(&remote, 0, 1).unwrap();
    assert_eq!(peer.wait_within(&kept, SHORT).unwrap(), None);
    timed_out(peer.fetch_add(&remote, 0, 1));
    timed_out(peer.compare_swap(&remote, 8, 0, 5));
    timed_out(peer.get(&remote, 0, &mut vec![0; 3 * LONG]));
    let put = peer.put(&remote, 16, b"posted").unwrap();
    timed_out(peer.wait(put));
    timed_out(peer.flush());
    assert!(!peer.flush_within(SHORT).unwrap());
    let mut whole = 0;
    let refused = loop {
        match peer.put(&remote, LONG as u64, &long(whole)) {
            Ok(_) => whole += 1,
            Err(error) => break error,
        }
    };
    timed_out::<()>(Err(refused));
    assert!(whole > 2, "the ring took {whole} puts");
    timed_out(peer.put(&remote, 3 * LONG as u64, &long(7)));
    timed_out(peer.fence());
    timed_out(peer.notify(&remote, 1));
    timed_out(Peer::connect_within(fabric(&lab, 1), address, SHORT));

    program.thaw();
    peer.set_timeout(Some(PATIENCE));
    assert_eq!(peer.wait_within(&kept, PATIENCE).unwrap(), Some(0));
    peer.flush().unwrap();
    assert_eq!(peer.fetch_add(&remote, 0, 1).unwrap(), 2, "each addition was executed once");
    assert_eq!(peer.fetch_add(&remote, 8, 0).unwrap(), 5);
    let mut got = [0; 6];
    peer.get(&remote, 16, &mut got).unwrap();
    assert_eq!(&got, b"posted");
    // The last put may have been posted in part: pieces from its start.
    let mut got = vec![0; LONG];
    peer.get(&remote, LONG as u64, &mut got).unwrap();
    let (last, before) = (long(whole), long(whole - 1));
    assert!((0..LONG).all(|at| got[at] == last[at] || got[at] == before[at]));
    let rest = LONG - LONG % 65536;
    assert!(got[rest..] == before[rest..] || got[rest..] == last[rest..]);
    peer.put(&remote, LONG as u64, &last).unwrap();
    peer.get(&remote, LONG as u64, &mut got).unwrap();
    assert!(got == last);
}

#[test]
fn requester_whose_notifications_nobody_takes_is_told_so() {
    let lab = Lab::pair();
    let memory = serve(&lab, 2);
    let region = memory.register(64).unwrap();
    let remote = region.share(Access::ALL).unwrap();
    let mut peer = peer(&lab, 1, &memory);
    peer.set_timeout(Some(SHORT));
    let all = u64::from(Notices::MOST) + 10;
    for value in 0..all {
        peer.notify(&remote, value).unwrap();
    }
    timed_out(peer.flush());
    for value in 0..all {
        assert_eq!(memory.notices().wait(Some(PATIENCE)).unwrap().map(|notice| notice.value), Some(value));
    }
    peer.set_timeout(Some(PATIENCE));
    peer.flush().unwrap();
}

#[test]
fn streams_wait_no_longer_than_they_are_told() {
    let lab = Lab::pair();
    let listener = fabric(&lab, 2).listen(address(2)).unwrap();
    assert!(listener.accept_within(SHORT).unwrap().is_none());
    let client = fabric(&lab, 1).connect(listener.address()).unwrap();
    let server = listener.accept_within(PATIENCE).unwrap().expect("it has come");
    let done = |outcome: Result<(), stream::Error>| match outcome {
        Err(stream::Error::TimedOut { done, after: SHORT, .. }) => done,
        outcome => panic!("{outcome:?}"),
    };
    client.set_receive_timeout(Some(SHORT));
    client.set_send_timeout(Some(SHORT));
    assert_eq!(done(client.receive(&mut [0; 9]).map(drop)), 0);
    server.send(b"abc").unwrap();
    assert_eq!(done(client.receive_all(&mut [0; 9])), 3);

    let bytes: Vec<u8> = (0..20_000_000).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let sent = done(client.send(&bytes));
    assert!(sent > 0 && sent < bytes.len());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut got = vec![0; bytes.len()];
            server.receive_all(&mut got).unwrap();
            assert!(got == bytes, "what was sent before the time was over is lost or doubled");
        });
        client.set_send_timeout(None);
        client.send(&bytes[sent..]).unwrap();
    });
}

/// The kernel's connection does not come about: its queue at the listener is full.
#[test]
fn connecting_ends_in_time() {
    let lab = Lab::pair();
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut owner = Client::hello(&lab.control(2), "owner");
    owner.listen(&listener);
    let remote = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(one) = TcpStream::connect_timeout(&remote, SHORT) {
        filling.push(one);
    }
    let outcome = fabric(&lab, 1).connect_within(remote, SHORT);
    assert!(matches!(outcome, Err(stream::Error::TimedOut { after: SHORT, .. })), "{outcome:?}");
}

#[test]
fn frozen_daemon_holds_up_no_call_for_long() {
    let mut lab = Lab::pair();
    let fabric = fabric(&lab, 1);
    let listener = fabric.listen(address(1)).unwrap();
    let client = fabric.connect(listener.address()).unwrap();
    let server = listener.accept().unwrap();
    freeze(lab.daemon(1));
    let start = Instant::now();
    let opened = Fabric::open_at(&lab.control(1));
    assert!(matches!(opened, Err(stream::Error::Session(SessionError::Late))), "{opened:?}");
    let connected = fabric.connect(listener.address());
    assert!(matches!(connected, Err(stream::Error::Session(SessionError::Late))), "{connected:?}");
    // Streams that need no daemon go on.
    client.set_receive_timeout(Some(SHORT));
    let waited = client.receive(&mut [0; 9]);
    assert!(matches!(waited, Err(stream::Error::TimedOut { .. })), "{waited:?}");
    server.send(b"still here").unwrap();
    client.set_receive_timeout(None);
    client.receive_all(&mut [0; 10]).unwrap();
    assert!(start.elapsed() < PATIENCE);
}
