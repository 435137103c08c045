//! Descriptors do not pile up over many lives. Alone in its process, since it counts them.

mod support;

use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{Event, Port};
use crosslane_shm::wake::Receiver;
use crosslane_wire::SegmentRange;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use support::{cable_path, joined, next_event};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What the peer sent is closed by another thread.
fn until(probe: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !probe() {
        assert!(Instant::now() < end, "{} descriptors", open_descriptors());
        std::thread::yield_now();
    }
}

/// Uses all that holds descriptors, and frees half of it.
fn live(a: &mut SoftPort, b: &mut SoftPort) {
    a.set_inbound(0, 1 << 20).unwrap();
    for index in 0..50 {
        let range = SegmentRange { offset: index * 4096, len: 4096 };
        a.carve_inbound(0, range).unwrap();
        b.carve_outbound(0, range).unwrap();
        let waker = a.export_waker(Receiver::new().unwrap().waker().unwrap().as_fd(), 1).unwrap();
        if index % 3 != 0 {
            b.import_waker(waker, 1).unwrap();
        }
        if index % 2 == 0 {
            a.free_inbound(0, range);
        }
    }
    (0..50).for_each(|index| a.free_inbound(0, SegmentRange { offset: index * 4096, len: 4096 }));
}

#[test]
fn leak_no_descriptors_of_clients_pile_up() {
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    live(&mut a, &mut b);
    drop(b);
    assert!(matches!(next_event(&mut a), Event::LinkDown(_)));
    let before = open_descriptors();
    for _ in 0..20 {
        let mut b = SoftPort::connect(SoftConfig::new(&path)).unwrap();
        assert_eq!(b.poll_event(), None);
        assert_eq!(next_event(&mut a), Event::LinkUp);
        assert_eq!(next_event(&mut b), Event::LinkUp);
        live(&mut a, &mut b);
        drop(b);
        assert!(matches!(next_event(&mut a), Event::LinkDown(_)));
        until(|| open_descriptors() <= before);
    }
    drop(a);
    until(|| open_descriptors() < before);
}
