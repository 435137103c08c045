//! Short of descriptors: segments cannot be had, the link and everything else goes on. Alone in its process, since it
//! lowers the limit.

mod support;

use crosslane_port::soft::frame::Frame;
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{Event, Port, PortError};
use crosslane_shm::Store;
use crosslane_wire::SegmentRange;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::AsFd;
use std::time::Duration;
use support::{Stranger, cable_path, next_event};

fn page(index: u64) -> SegmentRange {
    SegmentRange { offset: index * 4096, len: 4096 }
}

fn had(victim: &mut SoftPort, index: u64) -> bool {
    match victim.map_outbound(0, page(index)) {
        Ok(_) => true,
        Err(PortError::System { errno: Errno::MFILE, .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn soft_cable_keeps_to_its_share() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    let stranger = Stranger::connect(&path);
    let registers = stranger.greet(&mut victim);
    let memory = crosslane_shm::mem::new_segment("test", 4096).unwrap();
    let announce = |index| {
        let frame = Frame::Segment { window: 0, range: page(index) };
        assert!(stranger.send(&frame.encode(), &[memory.as_fd()]));
    };
    (0..20).for_each(announce);
    let got = (0..20).filter(|index| had(&mut victim, *index)).count();
    assert_eq!(got, 16, "a quarter of 64");
    assert!(stranger.frame(&Frame::Freed { window: 0, range: page(0) }, None));
    announce(20);
    assert!(had(&mut victim, 20), "what was freed makes room");

    // The process as a whole has none left. What was freed is closed by another thread, which may be late.
    assert!(stranger.frame(&Frame::Freed { window: 0, range: page(1) }, None));
    assert_eq!(victim.poll_event(), None);
    let mut all = Vec::new();
    let refused = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        all.extend(std::iter::from_fn(|| memory.try_clone().ok()));
        announce(21);
        assert_eq!(victim.poll_event(), None);
        let refused = !had(&mut victim, 21);
        assert!(stranger.frame(&Frame::Freed { window: 0, range: page(21) }, None));
        assert_eq!(victim.poll_event(), None);
        refused
    });
    assert!(refused, "{} descriptors are open", all.len());
    drop(all);
    announce(21);
    assert!(had(&mut victim, 21));
    registers.store_u32(0x80, 1);
    assert_eq!(next_event(&mut victim), Event::Doorbell(1));
    assert!(victim.is_up());
}
