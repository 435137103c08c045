//! The soft port: the conformance suite, and what belongs to it alone.

mod support;

use crosslane_port::conformance::{self, Cable};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{DownReason, Event, Mapped, Port, PortError};
use crosslane_shm::{Load, Store};
use crosslane_wire::SegmentRange;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;
use support::{DEADLINE, Stranger, cable_path, joined, next_event, wait};
use tempfile::TempDir;

/// Under test: which side dies and comes back is the listening or the connecting one.
struct Soft {
    _dir: TempDir,
    path: PathBuf,
    b_listens: bool,
    a: SoftPort,
    b: Option<SoftPort>,
}

impl Soft {
    fn new(b_listens: bool) -> Self {
        let (dir, path) = cable_path();
        let (a, b) = (plug(&path, !b_listens), plug(&path, b_listens));
        Self { _dir: dir, path, b_listens, a, b: Some(b) }
    }
}

fn plug(path: &std::path::Path, listens: bool) -> SoftPort {
    let config = SoftConfig { windows: 3, ..SoftConfig::new(path) };
    if listens { SoftPort::listen(config).unwrap() } else { SoftPort::connect(config).unwrap() }
}

impl Cable for Soft {
    type Port = SoftPort;

    fn a(&mut self) -> &mut SoftPort {
        &mut self.a
    }

    fn b(&mut self) -> &mut SoftPort {
        self.b.as_mut().expect("side b lives")
    }

    fn pass(&mut self) {
        let ports: Vec<_> = [&self.a].into_iter().chain(&self.b).collect();
        wait(&ports);
    }

    fn kill_b(&mut self) {
        self.b = None;
    }

    fn revive_b(&mut self) {
        self.b = Some(plug(&self.path, self.b_listens));
    }

    fn rubbish_from_b(&mut self) {
        if self.b_listens {
            // Its port stays; what a lying listener can send is the same frames.
            return;
        }
        self.kill_b();
        while self.a.is_up() {
            let _ = self.a.poll_event();
        }
        let stranger = Stranger::connect(&self.path);
        let registers = stranger.greet(&mut self.a);
        for offset in (0..4096).step_by(4) {
            registers.store_u32(offset, 0x5bd1_e995_u32.wrapping_mul(u32::try_from(offset).unwrap() | 1));
        }
        assert!(matches!(next_event(&mut self.a), Event::Doorbell(_)));
        stranger.send(b"rubbish", &[]);
        assert!(matches!(next_event(&mut self.a), Event::LinkDown(DownReason::Violation(_))));
        self.revive_b();
    }
}

#[test]
fn soft_conforms() {
    conformance::run(|| Soft::new(false));
}

#[test]
fn soft_conforms_the_other_way_round() {
    conformance::run(|| Soft::new(true));
}

#[test]
fn soft_socket_file_has_its_mode_and_goes_with_its_port() {
    let (_dir, path) = cable_path();
    for mode in [0o600, 0o666] {
        let port = SoftPort::listen(SoftConfig { mode, ..SoftConfig::new(&path) }).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        assert!(matches!(SoftPort::listen(SoftConfig::new(&path)), Err(PortError::InUse(_))));
        drop(port);
        assert!(!path.exists());
    }
}

#[test]
fn soft_probe_does_not_disturb_a_link() {
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    for _ in 0..20 {
        assert!(matches!(SoftPort::listen(SoftConfig::new(&path)), Err(PortError::InUse(_))));
    }
    assert_eq!((a.poll_event(), b.poll_event()), (None, None));
    assert!(a.is_up() && b.is_up());
}

#[test]
fn soft_peer_that_comes_second_waits() {
    let (_dir, path) = cable_path();
    let (mut a, b) = joined(&path);
    let mut second = SoftPort::connect(SoftConfig::new(&path)).unwrap();
    for _ in 0..5 {
        wait(&[&second]);
        assert_eq!((second.poll_event(), a.poll_event()), (None, None));
    }
    assert_eq!(second.down_reason(), Some(DownReason::Stuck));
    drop(b);
    assert_eq!(next_event(&mut a), Event::LinkDown(DownReason::PeerGone));
    assert_eq!(next_event(&mut a), Event::LinkUp);
    assert_eq!(next_event(&mut second), Event::LinkUp);
}

#[test]
fn soft_configuration_that_is_bad_is_named() {
    let (dir, path) = cable_path();
    let long = dir.path().join("x".repeat(120));
    for outcome in [SoftPort::listen(SoftConfig::new(&long)), SoftPort::connect(SoftConfig::new(&long))] {
        assert!(matches!(outcome, Err(PortError::System { .. })));
    }
    assert!(SoftPort::listen(SoftConfig::new(dir.path().join("no/such/place"))).is_err());
    for windows in [0, 9] {
        assert!(SoftPort::connect(SoftConfig { windows, ..SoftConfig::new(&path) }).is_err());
    }
    assert!(SoftPort::connect(SoftConfig { window_bytes: 5, ..SoftConfig::new(&path) }).is_err());
    let mut nobody = SoftPort::connect(SoftConfig::new(&path)).unwrap();
    assert_eq!(nobody.poll_event(), None);
    assert!(matches!(nobody.down_reason(), Some(DownReason::Nobody(_))));
    assert!(nobody.timeout().is_some_and(|wait| wait <= std::time::Duration::from_millis(50)));
}

/// Carves and frees one range until the socket is full, as for a peer that is stopped.
fn fill_socket(port: &mut SoftPort, range: SegmentRange) {
    for _ in 0..100_000 {
        match port.map_inbound(0, range) {
            Ok(_) => port.free_inbound(0, range),
            Err(PortError::Full(_)) => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a socket without end");
}

#[test]
fn soft_peer_that_does_not_read_blocks_nothing() {
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    a.set_inbound(0, 1 << 20).unwrap();
    let range = SegmentRange { offset: 8192, len: 8192 };
    a.map_inbound(1, range).expect_err("no translation");
    fill_socket(&mut a, range);
    for _ in 0..100 {
        a.ring_peer_doorbell(2);
        a.set_inbound(1, 1 << 20).unwrap();
        assert_eq!(a.poll_event(), None);
    }
    // The peer reads again: the bell is there although there was no room to wake it, and then all the rest.
    assert_eq!(next_event(&mut b), Event::Doorbell(2));
    let deadline = Instant::now() + DEADLINE;
    let memory = loop {
        assert!(Instant::now() < deadline);
        assert_eq!((a.poll_event(), b.poll_event()), (None, None));
        match a.map_inbound(0, range) {
            Err(PortError::Full(_)) => wait(&[&a, &b]),
            outcome => break outcome.unwrap(),
        }
    };
    b.map_outbound(0, range).unwrap().store_u64(0, 1);
    assert_eq!(memory.load_u64(0), 1);
}

#[test]
fn soft_range_carved_anew_is_fresh_memory() {
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    a.set_inbound(0, 1 << 20).unwrap();
    let range = SegmentRange { offset: 8192, len: 8192 };
    for life in 1..500 {
        let memory = a.map_inbound(0, range).unwrap();
        // By whatever way it hears of the range, the peer has not polled since.
        b.map_outbound(0, range).unwrap().store_u64(0, life);
        assert_eq!(memory.load_u64(0), life);
        a.free_inbound(0, range);
    }
}

#[test]
fn port_is_object_safe() {
    let (_dir, path) = cable_path();
    let (a, b) = joined(&path);
    let mut ports: Vec<Box<Mapped>> = vec![Box::new(a), Box::new(b)];
    let range = SegmentRange { offset: 0, len: 4096 };
    ports[0].set_inbound(0, 4096).unwrap();
    let memory = ports[0].map_inbound(0, range).unwrap();
    ports[1].map_outbound(0, range).unwrap().store_u64(0, 1);
    assert_eq!(memory.load_u64(0), 1);
}

#[test]
fn soft_port_that_is_idle_sleeps() {
    let (_dir, path) = cable_path();
    let (mut a, mut b) = joined(&path);
    while a.poll_event().is_some() || b.poll_event().is_some() {}
    assert_eq!((a.timeout(), b.timeout()), (None, None));
    drop(b);
    assert!(matches!(next_event(&mut a), Event::LinkDown(_)));
    assert_eq!(a.poll_event(), None);
    assert_eq!(a.timeout(), None);
}
