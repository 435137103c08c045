//! No wake-up is ever lost: two threads that sleep on nothing but their event descriptors.

mod support;

use crosslane_port::soft::SoftPort;
use crosslane_port::{Event, Port};
use crosslane_shm::{Load, Store};
use crosslane_wire::SegmentRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use support::{cable_path, joined};

const RANGE: SegmentRange = SegmentRange { offset: 0, len: 4096 };
const BELL: u32 = 1 << 3;

/// Sleeps until an event; only a lost wake-up can make that last.
fn sleep(port: &SoftPort) {
    let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
    let event_fd = port.event_fd();
    let ready = poll(&mut [PollFd::new(&event_fd, PollFlags::IN)], Some(&timeout)).unwrap();
    assert!(ready > 0, "a wake-up was lost");
}

fn in_two_threads(play: fn(&mut SoftPort, bool)) {
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| play(&mut a, true));
        scope.spawn(|| play(&mut b, false));
    });
    assert!(a.is_up() && b.is_up());
}

#[test]
fn doorbell_goes_there_and_back() {
    in_two_threads(|port, first| {
        if first {
            port.ring_peer_doorbell(BELL);
        }
        for _ in 0..5000 {
            while port.poll_event() != Some(Event::Doorbell(BELL)) {
                sleep(port);
            }
            port.ring_peer_doorbell(BELL);
        }
    });
}

/// As a channel's reader does: masks the doorbell while it is awake, unmasks it and looks once more before it sleeps.
#[test]
fn doorbell_masked_while_awake_with_words() {
    in_two_threads(|port, first| {
        port.set_inbound(0, 4096).unwrap();
        let memory = port.map_inbound(0, RANGE).unwrap();
        let window = loop {
            match port.map_outbound(0, RANGE) {
                Ok(window) => break window,
                Err(_) => assert!(port.is_up()),
            }
        };
        for round in 1..5000u64 {
            if first {
                window.store_u64(0, round);
                port.ring_peer_doorbell(BELL);
            }
            port.mask_doorbells(BELL);
            let mut spins = round % 300;
            while memory.load_u64(0) != round {
                if spins > 0 {
                    spins -= 1;
                    continue;
                }
                port.unmask_doorbells(BELL);
                while port.poll_event().is_none() && memory.load_u64(0) != round {
                    sleep(port);
                }
            }
            if !first {
                window.store_u64(0, round);
                port.ring_peer_doorbell(BELL);
            }
        }
    });
}
