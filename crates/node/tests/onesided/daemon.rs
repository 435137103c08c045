//! Daemons that are killed and come back: each call says so, and programs go on with what they have.

use super::support::{Lab, PATIENCE, until};
use super::{address, fabric, peer, serve};
use crosslane::memory::{self, Access};
use crosslane::peer::{Error, Peer};
use crosslane::stream;
use crosslane_client::SessionError;
use crosslane_passing::send;
use crosslane_wire::codec;
use crosslane_wire::local::Reply;
use rustix::net::SendFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt::Debug;

#[track_caller]
fn gone<T: Debug>(outcome: Result<T, stream::Error>) {
    assert!(matches!(outcome, Err(stream::Error::DaemonGone)), "{outcome:?}");
}

#[track_caller]
fn gone_for_peer<T: Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Stream(stream::Error::DaemonGone))), "{outcome:?}");
}

#[track_caller]
fn no_daemon<T: Debug>(outcome: Result<T, stream::Error>) {
    assert!(matches!(outcome, Err(stream::Error::Session(SessionError::NoDaemon { .. }))), "{outcome:?}");
}

fn restart(lab: &mut Lab, number: usize) {
    lab.start(number);
    lab.wait_hosts(1, &[2]);
    lab.wait_hosts(2, &[1]);
}

#[test]
fn memory_is_served_on_when_the_daemon_is_back_with_the_keys_that_were_given() {
    let mut lab = Lab::pair();
    let memory = serve(&lab, 2);
    let region = memory.register(4096).unwrap();
    let remote = region.share(Access::ALL).unwrap();
    let fabric = fabric(&lab, 1);
    let mut before = Peer::connect(fabric, memory.address()).unwrap();
    for round in 0..3 {
        assert_eq!(before.fetch_add(&remote, 0, 1).unwrap(), round);
        lab.kill(2);
        let error = until("the requester sees it", || before.fetch_add(&remote, 8, 1).err());
        assert!(matches!(error, Error::Stream(_)), "{error}");
        assert_eq!(memory.notices().wait(Some(std::time::Duration::from_millis(300))).unwrap(), None);
        restart(&mut lab, 2);
        before = until("it is served again", || Peer::connect(fabric, memory.address()).ok());
        before.notify(&remote, round).unwrap();
        let notice = memory.notices().wait(Some(PATIENCE)).unwrap().expect("a notice in time");
        assert_eq!(notice.value, round);
    }
    // Nor does one without a daemon keep its owner from ending.
    lab.kill(2);
    drop(memory);
    drop(before);
    lab.wait_idle(1);
}

/// What comes after it is a daemon of another version.
#[test]
fn memory_that_a_new_daemon_refuses_is_told_so() {
    let mut lab = Lab::pair();
    let memory = serve(&lab, 2);
    lab.kill(2);
    let path = lab.control(2);
    std::fs::remove_file(&path).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let session = rustix::net::accept_with(&socket, flags).unwrap();
    let refusal = codec::encode(&Reply::Error { text: "another version".to_owned() }).unwrap();
    send(&session, &refusal, &[], SendFlags::DONTWAIT).unwrap();
    let notice = memory.notices().wait(Some(PATIENCE));
    assert!(matches!(notice, Err(memory::Error::NoAgent)), "{notice:?}");
}

#[test]
fn requester_hears_at_every_call_that_its_daemon_is_gone() {
    let mut lab = Lab::pair();
    let memory = serve(&lab, 2);
    let region = memory.register(1 << 20).unwrap();
    let remote = region.share(Access::ALL).unwrap();
    let fabric = fabric(&lab, 1);
    let mut peer = peer(&lab, 1, &memory);
    let mut other = Peer::connect(fabric, memory.address()).unwrap();
    let op = other.start_fetch_add(&remote, 0, 1).unwrap();
    other.wait(op).unwrap();
    lab.kill(1);
    gone_for_peer(peer.get(&remote, 0, &mut [0; 100]));
    gone_for_peer(peer.fetch_add(&remote, 0, 1));
    gone_for_peer(peer.compare_swap(&remote, 0, 0, 1));
    gone_for_peer(peer.put(&remote, 0, b"short"));
    gone_for_peer(peer.put(&remote, 0, &[7; 100_000]));
    gone_for_peer(peer.notify(&remote, 1));
    gone_for_peer(peer.fence());
    // One that has posted before it can know: what the owner executed all the same is done, and leaves nothing to flush.
    let (outcome, owed) = until("a call sees it", || match other.put(&remote, 0, b"short") {
        Ok(op) => Some((Err(other.wait(op).err()?), true)),
        Err(error) => Some((Err(error), false)),
    });
    gone_for_peer::<()>(outcome);
    if owed {
        gone_for_peer(other.flush());
    } else {
        other.flush().unwrap();
    }
    no_daemon(fabric.connect(memory.address()));
    no_daemon(fabric.listen(address(1)));
    assert!(matches!(Peer::connect(fabric, memory.address()), Err(Error::Stream(_))));

    restart(&mut lab, 1);
    let mut again = until("the same fabric connects", || Peer::connect(fabric, memory.address()).ok());
    let held = region.load(0).unwrap();
    assert_eq!(again.fetch_add(&remote, 0, 1).unwrap(), held);
}

#[test]
fn listener_goes_on_when_the_daemon_is_back() {
    let mut lab = Lab::pair();
    let (near, far) = (fabric(&lab, 1), fabric(&lab, 2));
    let listener = far.listen(address(2)).unwrap();
    let client = near.connect(listener.address()).unwrap();
    let server = listener.accept().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept());
        let receiving = scope.spawn(|| server.receive(&mut [0; 9]));
        std::thread::sleep(std::time::Duration::from_millis(50));
        lab.kill(2);
        gone(accepting.join().unwrap());
        gone(receiving.join().unwrap());
    });
    gone(server.send(b"x"));
    gone(server.finish());
    no_daemon(listener.accept());
    no_daemon(listener.try_accept());
    drop((client, server));

    restart(&mut lab, 2);
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept_within(PATIENCE));
        let client = until("it is known again", || near.connect(listener.address()).ok());
        let server = accepting.join().unwrap().unwrap().expect("it has come");
        server.send(b"again").unwrap();
        let mut bytes = [0; 5];
        client.receive_all(&mut bytes).unwrap();
        assert_eq!(&bytes, b"again");
    });
    lab.wait_idle(1);
    lab.wait_idle(2);
}
