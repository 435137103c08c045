//! The soft port against peers that break the rules: the link goes down with a reason, the port lives on.

mod support;

use crosslane_port::soft::frame::{Frame, VERSION};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{DownReason, Event, Port, PortError};
use crosslane_shm::Store;
use crosslane_shm::mem::new_slice;
use crosslane_wire::buffer::memory_len;
use crosslane_wire::{Reach, SliceRange};
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use support::{DEADLINE, Stranger, cable_path, hello, next_event, wait};

fn pages(first: u64, count: u64) -> SliceRange {
    SliceRange { offset: first * 4096, len: count * 4096 }
}

fn slice(window: u32, range: SliceRange) -> Frame {
    Frame::Slice { window, range }
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
fn buffers_that_are_none() {
    let handed = |handle, len, reach| Frame::Buffer { handle, len, reach };
    for (len, reach) in [(0, Reach::Store), (100, Reach::Store), (4096, Reach::Load), (8192, Reach::Store)] {
        let why = violation(|peer| assert!(peer.frame(&handed(1, len, reach), Some(memory_len(4096)))));
        assert!(why.contains("slice is"), "{why}");
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
fn ranges_that_are_none() {
    let wrapping = SliceRange { offset: u64::MAX - 4095, len: 8192 };
    for bad in [pages(256, 1), pages(255, 2), pages(0, 0), SliceRange { offset: 3, len: 4096 }, wrapping] {
        assert!(violation(|peer| assert!(peer.frame(&slice(0, bad), Some(4096)))).contains("does not fit"));
    }
    let overlap = violation(|peer| {
        assert!(
            peer.frame(&slice(0, pages(1, 2)), Some(8192)) && peer.frame(&slice(0, pages(2, 1)), Some(4096))
        );
    });
    assert!(overlap.contains("overlaps"));
    assert!(
        violation(|peer| assert!(peer.frame(&slice(2, pages(0, 1)), Some(4096)))).contains("no window 2")
    );
    let freed = Frame::Freed { window: 0, range: pages(0, 1) };
    assert!(violation(|peer| assert!(peer.frame(&freed, None))).contains("not carved"));
}

#[test]
fn memory_that_is_not_what_was_announced() {
    assert!(violation(|peer| assert!(peer.frame(&slice(0, pages(0, 2)), Some(4096)))).contains("bytes long"));
    let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, 4096).unwrap();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    for bad in [unsealed, pipe] {
        violation(|peer| assert!(peer.send(&slice(0, pages(0, 1)).encode(), &[bad.as_fd()])));
    }
    let bell = Frame::Bell { handle: 1 }.encode();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    assert!(violation(|peer| assert!(peer.send(&bell, &[pipe.as_fd()]))).contains("eventfd"));
}

#[test]
fn descriptors_too_many_too_few_or_unasked() {
    let memory = new_slice("test", 4096).unwrap();
    let fd = memory.as_fd();
    let announce = slice(0, pages(0, 1)).encode();
    for count in [0, 2, 3, 8] {
        violation(|peer| assert!(peer.send(&announce, &vec![fd; count])));
    }
    violation(|peer| assert!(peer.send(&Frame::Wake { number: 1 }.encode(), &[fd])));
}

#[test]
fn frames_out_of_turn() {
    assert!(violation(|peer| assert!(peer.frame(&hello(2), Some(4096)))).contains("second hello"));
    assert!(
        violation(|peer| assert!(peer.frame(&Frame::BellGone { handle: 9 }, None))).contains("unknown bell")
    );
    let translation = |window, len| Frame::Translation { window, len };
    violation(|peer| assert!(peer.frame(&translation(0, 5), None)));
    violation(|peer| assert!(peer.frame(&translation(7, 4096), None)));
    violation(|peer| {
        assert!(peer.frame(&slice(0, pages(0, 1)), Some(4096)) && peer.frame(&translation(0, 8192), None));
    });
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let twice = Frame::Bell { handle: 4 }.encode();
    violation(|peer| assert!(peer.send(&twice, &[bell.as_fd()]) && peer.send(&twice, &[bell.as_fd()])));
}

#[test]
fn the_end_of_the_connection_is_no_violation() {
    // An empty packet looks the same.
    assert_eq!(thrown_out(|peer| assert!(peer.send(&[], &[]))), DownReason::PeerGone);
}

/// Connects with these first packets; no link may come of it, and the port names the reason.
fn refused(greeting: impl Fn(&Stranger)) -> DownReason {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let stranger = Stranger::connect(&path);
    greeting(&stranger);
    let deadline = Instant::now() + DEADLINE;
    let reason = loop {
        assert_eq!(victim.poll_event(), None);
        assert!(!victim.is_up() && Instant::now() < deadline);
        match victim.down_reason() {
            // Stuck is what stands there while a greeting is waited for.
            None | Some(DownReason::Stuck) => wait(&[&victim]),
            Some(reason) => break reason,
        }
    };
    drop(stranger);
    Stranger::connect(&path).greet(&mut victim);
    reason
}

#[test]
fn greetings_that_are_none() {
    let other = Frame::Hello { version: VERSION + 1, translations: Vec::new() };
    let reason = refused(|peer| assert!(peer.frame(&other, Some(4096))));
    assert_eq!(reason, DownReason::Version { ours: VERSION, theirs: VERSION + 1 });
    let bad = [
        (slice(0, pages(0, 1)), Some(4096)),
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
fn a_peer_that_never_greets_is_put_out_for_the_next_one() {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let silent = Stranger::connect(&path);
    assert_eq!(victim.poll_event(), None);
    let next = Stranger::connect(&path);
    next.greet(&mut victim);
    assert!(!silent.send(b"late", &[]));
}

#[test]
fn floods_are_bounded() {
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
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let reason = flood(|handle| Frame::Bell { handle }, &bell);
    assert_eq!(reason, DownReason::Violation("too many bells".into()));
    let buffer = new_slice("test", memory_len(4096)).unwrap();
    let handed = |handle| Frame::Buffer { handle, len: 4096, reach: Reach::Store };
    assert_eq!(flood(handed, &buffer), DownReason::Violation("too many buffers".into()));
    let memory = new_slice("test", 4096).unwrap();
    let reason = flood(
        |number| match number {
            0 => Frame::Translation { window: 0, len: 1 << 40 },
            number => slice(0, pages(number, 1)),
        },
        &memory,
    );
    assert_eq!(reason, DownReason::Violation("too many slices".into()));
}

#[test]
fn wake_ups_without_end_do_not_hold_up_the_port() {
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

/// A step of a peer without sense.
#[derive(Clone, Debug)]
enum Step {
    Bytes(Vec<u8>, Vec<Fd>),
    Frame(Frame, Vec<Fd>),
    Register(usize, u32),
}

#[derive(Clone, Copy, Debug)]
enum Fd {
    Slice(u64),
    Open,
    Bell,
    Pipe,
}

impl Fd {
    fn make(self) -> OwnedFd {
        match self {
            Self::Slice(pages) => new_slice("test", pages * 4096).unwrap(),
            Self::Open => memfd_create("test", MemfdFlags::CLOEXEC).unwrap(),
            Self::Bell => eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            Self::Pipe => rustix::pipe::pipe().unwrap().0,
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fd = prop_oneof![4 => (1u64..4).prop_map(Fd::Slice), 1 => Just(Fd::Open), 1 => Just(Fd::Bell), 1 => Just(Fd::Pipe)];
    let range = (0u64..6, 0u64..4).prop_map(|(first, count)| pages(first, count));
    let window = 0u32..4;
    let handle = 0u64..4;
    let frame = prop_oneof![
        8 => (window.clone(), range.clone()).prop_map(|(window, range)| Frame::Slice { window, range }),
        4 => (window.clone(), range).prop_map(|(window, range)| Frame::Freed { window, range }),
        2 => (window, 0u64..20).prop_map(|(window, pages)| Frame::Translation { window, len: pages * 4096 }),
        2 => handle.clone().prop_map(|handle| Frame::Bell { handle }),
        1 => handle.prop_map(|handle| Frame::BellGone { handle }),
        1 => any::<u32>().prop_map(|number| Frame::Wake { number }),
        1 => Just(hello(2)),
    ];
    // Mostly with as many descriptors as belong to the frame, and mostly the right ones.
    let fitting = (frame.clone(), prop::collection::vec(fd.clone(), 1)).prop_map(|(frame, fds)| {
        let fds = match &frame {
            Frame::Slice { range, .. } if range.len > 0 => vec![Fd::Slice(range.len / 4096)],
            Frame::Bell { .. } => vec![Fd::Bell],
            frame if frame.descriptors() == 0 => Vec::new(),
            _ => fds,
        };
        Step::Frame(frame, fds)
    });
    let step = prop_oneof![
        12 => fitting,
        2 => (frame, prop::collection::vec(fd.clone(), 0..4)).prop_map(|(frame, fds)| Step::Frame(frame, fds)),
        1 => (prop::collection::vec(any::<u8>(), 0..120), prop::collection::vec(fd, 0..4))
            .prop_map(|(bytes, fds)| Step::Bytes(bytes, fds)),
        2 => (0usize..1024, any::<u32>()).prop_map(|(word, value)| Step::Register(word * 4, value)),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Arbitrary bytes, frames and descriptors: no panic, no hang, and what the port gives out has the length that
    /// was asked for.
    #[test]
    fn a_peer_without_sense(steps in steps()) {
        let (_dir, path) = cable_path();
        let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
        let stranger = Stranger::connect(&path);
        let registers = stranger.greet(&mut victim);
        for step in steps {
            match step {
                Step::Register(offset, value) => registers.store_u32(offset, value),
                Step::Bytes(bytes, fds) => {
                    let fds: Vec<_> = fds.into_iter().map(Fd::make).collect();
                    stranger.send(&bytes, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
                }
                Step::Frame(frame, fds) => {
                    let fds: Vec<_> = fds.into_iter().map(Fd::make).collect();
                    stranger.send(&frame.encode(), &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
                }
            }
            while victim.poll_event().is_some() {}
            victim.ring_peer_doorbell(3);
            if victim.is_up() {
                let range = pages(1, 2);
                match victim.map_outbound(0, range) {
                    Ok(view) => prop_assert_eq!(Store::len(&view), 8192),
                    Err(error) => prop_assert!(matches!(error, PortError::NotThere | PortError::Down)),
                }
            }
        }
        drop(stranger);
        let deadline = Instant::now() + DEADLINE;
        while victim.is_up() {
            prop_assert!(Instant::now() < deadline);
            let _ = victim.poll_event();
        }
        let honest = Stranger::connect(&path);
        honest.greet(&mut victim);
    }
}
