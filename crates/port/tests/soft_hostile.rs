//! The soft port against peers that break the rules: the link goes down with a reason, the port lives on.

mod support;

use crosslane_port::soft::frame::{Frame, VERSION};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{DownReason, Event, Port};
use crosslane_shm::Store;
use crosslane_shm::mem::new_segment;
use crosslane_shm::wake::Receiver;
use crosslane_wire::buffer::memory_len;
use crosslane_wire::{Reach, SegmentRange};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use support::{DEADLINE, Stranger, cable_path, hello, next_event, wait};

fn pages(first: u64, count: u64) -> SegmentRange {
    SegmentRange { offset: first * 4096, len: count * 4096 }
}

fn segment(window: u32, range: SegmentRange) -> Frame {
    Frame::Segment { window, range }
}

/// Runs `lie` on a link that is up and returns why it went down.
fn thrown_out(lie: impl FnOnce(&Stranger)) -> DownReason {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let stranger = Stranger::connect(&path);
    stranger.greet(&mut victim);
    lie(&stranger);
    let reason = match next_event(&mut victim) {
        Event::LinkDown(reason) => reason,
        event => panic!("{event:?}"),
    };
    drop(stranger);
    let honest = Stranger::connect(&path);
    honest.greet(&mut victim);
    reason
}

fn violation(lie: impl FnOnce(&Stranger)) -> String {
    match thrown_out(lie) {
        DownReason::Violation(what) => what,
        reason => panic!("{reason:?}"),
    }
}

#[test]
fn hostile_buffers_are_refused() {
    let handed = |handle, len, reach| Frame::Buffer { handle, len, reach };
    for (len, reach) in [(0, Reach::Store), (100, Reach::Store), (4096, Reach::Load), (8192, Reach::Store)] {
        let why = violation(|peer| assert!(peer.frame(&handed(1, len, reach), Some(memory_len(4096)))));
        assert!(why.contains("segment is"), "{why}");
    }
    let twice = violation(|peer| {
        for _ in 0..2 {
            assert!(peer.frame(&handed(1, 4096, Reach::Store), Some(memory_len(4096))));
        }
    });
    assert!(twice.contains("twice"), "{twice}");
    let bare = violation(|peer| assert!(peer.frame(&handed(1, 4096, Reach::Store), None)));
    assert!(bare.contains("0 descriptors"), "{bare}");
}

#[test]
fn hostile_ranges_are_refused() {
    let wrapping = SegmentRange { offset: u64::MAX - 4095, len: 8192 };
    for bad in [pages(256, 1), pages(255, 2), pages(0, 0), SegmentRange { offset: 3, len: 4096 }, wrapping] {
        assert!(violation(|peer| assert!(peer.frame(&segment(0, bad), Some(4096)))).contains("does not fit"));
    }
    let overlap = violation(|peer| {
        assert!(
            peer.frame(&segment(0, pages(1, 2)), Some(8192))
                && peer.frame(&segment(0, pages(2, 1)), Some(4096))
        );
    });
    assert!(overlap.contains("overlaps"));
    assert!(
        violation(|peer| assert!(peer.frame(&segment(2, pages(0, 1)), Some(4096)))).contains("no window 2")
    );
    let freed = Frame::Freed { window: 0, range: pages(0, 1) };
    assert!(violation(|peer| assert!(peer.frame(&freed, None))).contains("not carved"));
}

#[test]
fn hostile_memory_is_refused() {
    assert!(
        violation(|peer| assert!(peer.frame(&segment(0, pages(0, 2)), Some(4096)))).contains("bytes long")
    );
    let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, 4096).unwrap();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    for bad in [unsealed, pipe] {
        violation(|peer| assert!(peer.send(&segment(0, pages(0, 1)).encode(), &[bad.as_fd()])));
    }
    let waker = Frame::Waker { handle: 1 }.encode();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    assert!(violation(|peer| assert!(peer.send(&waker, &[pipe.as_fd()]))).contains("waker"));
}

#[test]
fn hostile_descriptor_counts_are_refused() {
    let memory = new_segment("test", 4096).unwrap();
    let fd = memory.as_fd();
    let announce = segment(0, pages(0, 1)).encode();
    for count in [0, 2, 3, 8] {
        violation(|peer| assert!(peer.send(&announce, &vec![fd; count])));
    }
    violation(|peer| assert!(peer.send(&Frame::Wake { number: 1 }.encode(), &[fd])));
}

#[test]
fn hostile_frames_out_of_turn_are_refused() {
    assert!(violation(|peer| assert!(peer.frame(&hello(2), Some(4096)))).contains("second hello"));
    let translation = |window, len| Frame::Translation { window, len };
    violation(|peer| assert!(peer.frame(&translation(0, 5), None)));
    violation(|peer| assert!(peer.frame(&translation(7, 4096), None)));
    violation(|peer| {
        assert!(peer.frame(&segment(0, pages(0, 1)), Some(4096)) && peer.frame(&translation(0, 8192), None));
    });
    let waker = Receiver::new().unwrap().waker().unwrap().into_fd();
    let twice = Frame::Waker { handle: 4 }.encode();
    violation(|peer| assert!(peer.send(&twice, &[waker.as_fd()]) && peer.send(&twice, &[waker.as_fd()])));
}

#[test]
fn hostile_peers_do_not_include_one_that_closes() {
    // An empty packet looks the same.
    assert_eq!(thrown_out(|peer| assert!(peer.send(&[], &[]))), DownReason::PeerGone);
}

/// Connects with these first packets; no link may come of it, and the port names the reason.
fn refused(handshake: impl Fn(&Stranger)) -> DownReason {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let stranger = Stranger::connect(&path);
    handshake(&stranger);
    let deadline = Instant::now() + DEADLINE;
    let reason = loop {
        assert_eq!(victim.poll_event(), None);
        assert!(!victim.is_up() && Instant::now() < deadline);
        match victim.down_reason() {
            // Stuck is what stands there while a handshake is waited for.
            None | Some(DownReason::Stuck) => wait(&[&victim]),
            Some(reason) => break reason,
        }
    };
    drop(stranger);
    Stranger::connect(&path).greet(&mut victim);
    reason
}

#[test]
fn hostile_handshakes_are_refused() {
    let other = Frame::Hello { version: VERSION + 1, translations: Vec::new() };
    let reason = refused(|peer| assert!(peer.frame(&other, Some(4096))));
    assert_eq!(reason, DownReason::Version { ours: VERSION, theirs: VERSION + 1 });
    let bad = [
        (segment(0, pages(0, 1)), Some(4096)),
        (hello(2), Some(8192)),
        (hello(2), None),
        (Frame::Hello { version: VERSION, translations: vec![5] }, Some(4096)),
    ];
    for (frame, memory) in bad {
        let reason = refused(|peer| assert!(peer.frame(&frame, memory)));
        assert!(matches!(reason, DownReason::Violation(_)), "{frame:?}: {reason:?}");
    }
}

#[test]
fn hostile_peer_without_a_handshake_makes_room_for_the_next() {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let silent = Stranger::connect(&path);
    assert_eq!(victim.poll_event(), None);
    let next = Stranger::connect(&path);
    next.greet(&mut victim);
    assert!(!silent.send(b"late", &[]));
}

#[test]
fn hostile_peers_that_came_and_went_keep_nobody_waiting() {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let liar = Stranger::connect(&path);
    liar.greet(&mut victim);
    assert!(liar.frame(&hello(2), Some(4096)));
    assert!(matches!(next_event(&mut victim), Event::LinkDown(DownReason::Violation(_))));
    // The port does not listen for a moment: these are in the queue when it does again, with what they said.
    for _ in 0..8 {
        let gone = Stranger::connect(&path);
        assert!(gone.frame(&hello(2), Some(4096)) && gone.frame(&hello(2), Some(4096)));
    }
    let honest = Stranger::connect(&path);
    assert!(honest.frame(&hello(2), Some(4096)));
    // It has not waited for any of them.
    while let Some(left) = victim.timeout().filter(|left| !left.is_zero()) {
        std::thread::sleep(left);
    }
    assert_eq!(victim.poll_event(), Some(Event::LinkUp));
}

#[test]
fn hostile_floods_are_bounded() {
    let flood = |frame: fn(u64) -> Frame, descriptor: &OwnedFd| {
        let (_dir, path) = cable_path();
        let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
        let stranger = Stranger::connect(&path);
        stranger.greet(&mut victim);
        let deadline = Instant::now() + DEADLINE;
        for number in 0.. {
            assert!(Instant::now() < deadline);
            let frame = frame(number);
            let descriptors = &[descriptor.as_fd()][..frame.descriptors()];
            while !stranger.send(&frame.encode(), descriptors) {
                match victim.poll_event() {
                    Some(Event::LinkDown(reason)) => return reason,
                    event => assert_eq!(event, None),
                }
            }
        }
        unreachable!("numbers do not end")
    };
    let waker = Receiver::new().unwrap().waker().unwrap().into_fd();
    let reason = flood(|handle| Frame::Waker { handle }, &waker);
    assert_eq!(reason, DownReason::Violation("too many wakers".into()));
    let buffer = new_segment("test", memory_len(4096)).unwrap();
    let handed = |handle| Frame::Buffer { handle, len: 4096, reach: Reach::Store };
    assert_eq!(flood(handed, &buffer), DownReason::Violation("too many buffers".into()));
    let memory = new_segment("test", 4096).unwrap();
    let reason = flood(
        |number| match number {
            0 => Frame::Translation { window: 0, len: 1 << 40 },
            number => segment(0, pages(number, 1)),
        },
        &memory,
    );
    assert_eq!(reason, DownReason::Violation("too many segments".into()));
}

#[test]
fn hostile_wakes_without_end_do_not_hold_up_the_port() {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let stranger = Stranger::connect(&path);
    let registers = stranger.greet(&mut victim);
    for round in 0..2000u32 {
        while stranger.send(&Frame::Wake { number: round }.encode(), &[]) && round % 7 != 0 {}
        registers.store_u32(0x80, round);
        registers.store_u32(0x40, round);
        registers.store_u32(0x44, round);
        let _ = victim.poll_event();
        victim.ring_peer_doorbell(round);
    }
    assert!(victim.is_up());
}
