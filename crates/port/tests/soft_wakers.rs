//! Wakers that come and go without end leave a cable what it had. Alone in its process, since it lowers the limit of
//! descriptors.

mod support;

use crosslane_port::{Port, PortError};
use crosslane_shm::wake::{FarWaker, Receiver};
use crosslane_wire::SegmentRange;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::AsFd;
use support::{cable_path, joined};

/// Clients of a server that come and go.
const CLIENTS: u64 = 50_000;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn leak_no_wakers_of_fifty_thousand_clients() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: Some(128) }).unwrap();
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    a.set_inbound(0, 1 << 20).unwrap();
    let sleeper = Receiver::new().unwrap();
    let before = open_descriptors();
    for client in 0..CLIENTS {
        let waker = sleeper.waker().unwrap();
        let handle = a.export_waker(waker.as_fd(), waker.word()).unwrap();
        drop(waker);
        let taken = b.import_waker(handle, sleeper.word()).unwrap().expect("there is room");
        if client % 1000 == 0 {
            let FarWaker::Own(taken) = taken else { panic!("{taken:?}") };
            assert!(taken.wake() && sleeper.clear());
            assert!(
                matches!(b.import_waker(handle, sleeper.word()), Err(PortError::NotThere)),
                "one can be taken once"
            );
        }
    }
    // What came with the handshake may have been closed aside meanwhile.
    assert!(open_descriptors() <= before);
    for index in 0..16 {
        let range = SegmentRange { offset: index * 4096, len: 4096 };
        a.carve_inbound(0, range).unwrap();
        b.carve_outbound(0, range).expect("a stream still gets its segment");
    }
}
