//! The posted port: the conformance suite under several delays, and what belongs to it alone.

mod support;

use crosslane_port::conformance::{self, Cable};
use crosslane_port::posted::{DELAY_MAX, LATE, PostedConfig, PostedPort, Stores, Timing};
use crosslane_port::soft::SoftConfig;
use crosslane_port::{DownReason, Event, Mapped, Port, PortError};
use crosslane_shm::{Inbound, Load, Outbound, Store, queue};
use crosslane_wire::{Caching, MemoryKind, SegmentRange};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{DEADLINE, Stranger, cable_path, next_event, wait};
use tempfile::TempDir;

const RANGE: SegmentRange = SegmentRange { offset: 0, len: 65536 };

/// Under test: side B connects, dies and comes back.
struct Posted {
    _dir: TempDir,
    path: PathBuf,
    stores: Stores,
    a: PostedPort,
    b: Option<PostedPort>,
}

fn stores(delay_ns: (u32, u32), combine: bool) -> Stores {
    Stores { timing: Timing::Drawn(delay_ns.0, delay_ns.1), seed: 1, combine }
}

fn config(path: &Path, stores: Stores) -> PostedConfig {
    PostedConfig { soft: SoftConfig { windows: 3, ..SoftConfig::new(path) }, stores }
}

impl Posted {
    fn new(stores: Stores) -> Self {
        let (dir, path) = cable_path();
        let a = PostedPort::listen(config(&path, stores)).unwrap();
        let b = PostedPort::connect(config(&path, stores)).unwrap();
        Self { _dir: dir, path, stores, a, b: Some(b) }
    }
}

impl Cable for Posted {
    type Port = PostedPort;

    fn a(&mut self) -> &mut PostedPort {
        &mut self.a
    }

    fn b(&mut self) -> &mut PostedPort {
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
        self.b = Some(PostedPort::connect(config(&self.path, self.stores)).unwrap());
    }

    fn rubbish_from_b(&mut self) {
        self.kill_b();
        while self.a.is_up() {
            let _ = self.a.poll_event();
        }
        let stranger = Stranger::connect(&self.path);
        let registers = stranger.greet(&mut self.a);
        (0..4096).step_by(4).for_each(|offset| registers.store_u32(offset, 0x5bd1_e995));
        assert!(matches!(next_event(&mut self.a), Event::Doorbell(_)));
        stranger.send(b"rubbish", &[]);
        assert!(matches!(next_event(&mut self.a), Event::LinkDown(DownReason::Violation(_))));
        self.revive_b();
    }
}

#[test]
fn posted_conforms_without_delay() {
    for combine in [false, true] {
        conformance::run(|| Posted::new(stores((0, 0), combine)));
    }
}

#[test]
fn posted_conforms_with_a_delay() {
    conformance::run(|| Posted::new(stores((10_000, 10_000), false)));
}

#[test]
fn posted_conforms_with_any_delay_and_write_combining() {
    conformance::run(|| Posted::new(stores((0, 1_000_000), true)));
}

fn timed(cable: &str) -> Stores {
    Stores { timing: Timing::Cable(cable.parse().unwrap()), seed: 1, combine: true }
}

#[test]
fn timed_port_conforms() {
    conformance::run(|| Posted::new(timed("gen3 x4, errors 1e-9")));
}

#[test]
fn timed_port_acknowledges_what_its_peer_has_carried() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, memory, window) = joined(&path, timed("gen4 x8"));
    let acknowledged = |port: &PostedPort| port.pacing().unwrap().acknowledged_bytes;
    (0..32).for_each(|_| window.write(8, &[7; 32 << 10]));
    window.store_fence();
    window.store_u64(0, 1);
    until("they land", || memory.load_u64(0) == 1);
    let look = |a: &mut PostedPort, b: &mut PostedPort| {
        // A lander looks when it has something to do.
        b.write_peer_scratchpad(0, 1);
        let _ = (a.poll_event(), b.poll_event());
    };
    until("b counts them", || {
        look(&mut a, &mut b);
        acknowledged(&b) == a.pacing().unwrap().landed_bytes
    });
    let carried = acknowledged(&b);
    assert!(carried > 1 << 20, "{carried}");
    a.set_link(false);
    until("both see it", || {
        let _ = (a.poll_event(), b.poll_event());
        !a.is_up() && !b.is_up()
    });
    a.set_link(true);
    until_up(&mut a, &mut b);
    let before = a.read_scratchpad(0);
    look(&mut a, &mut b);
    until("b has looked", || {
        look(&mut a, &mut b);
        a.read_scratchpad(0) != before
    });
    assert_eq!(acknowledged(&b), carried, "another life of the link begins at nothing");
}

/// Both ends, up, and a segment of B's as A stores into it.
fn joined(path: &Path, stores: Stores) -> (PostedPort, PostedPort, Inbound, Outbound) {
    let mut a = PostedPort::listen(config(path, stores)).unwrap();
    let mut b = PostedPort::connect(config(path, stores)).unwrap();
    until_up(&mut a, &mut b);
    b.set_inbound(0, 1 << 20).unwrap();
    let memory = b.map_inbound(0, RANGE).unwrap();
    let window = a.map_outbound(0, RANGE).unwrap();
    (a, b, memory, window)
}

fn until_up(a: &mut PostedPort, b: &mut PostedPort) {
    until("a link", || {
        let _ = (a.poll_event(), b.poll_event());
        a.is_up() && b.is_up()
    });
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn posted_port_says_what_it_is() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, ..) = joined(&path, stores((5, 700), true));
    let info = a.info();
    assert_eq!((info.caching, info.posted_ns, info.lossy), (Caching::WriteCombining, 700 + LATE, true));
    let range = SegmentRange { offset: 1 << 17, len: 8192 };
    let inbound = b.carve_inbound(0, range).unwrap().info;
    assert_eq!((inbound.memory, inbound.posted_ns, inbound.lossy), (MemoryKind::Sealed, 700 + LATE, true));
    let outbound = a.carve_outbound(0, range).unwrap().info;
    assert_eq!((outbound.memory, outbound.len, outbound.lossy), (MemoryKind::Queue, 8192, true));
    assert!(!inbound.is_coherent() && !outbound.is_coherent());
    for bad in [(2, 1), (0, DELAY_MAX + 1)] {
        let refused = PostedPort::connect(config(&path, stores(bad, true)));
        assert!(matches!(refused, Err(PortError::Delay(..))));
    }
    let _: Box<Mapped> = Box::new(a);
}

#[test]
fn posted_store_takes_its_time() {
    let (_dir, path) = cable_path();
    let (_a, _b, memory, window) = joined(&path, stores((20_000_000, 20_000_000), true));
    let begin = Instant::now();
    window.store_u64(0, 1);
    window.fence();
    assert!(memory.load_u64(0) == 0 || begin.elapsed() >= Duration::from_millis(20));
    until("it lands", || memory.load_u64(0) == 1);
    assert!(begin.elapsed() >= Duration::from_millis(20));
}

/// Payload, fence, index: from several programs' threads at once, while the doorbell is rung for each.
#[test]
fn posted_doorbell_and_scratchpad_overtake_no_store() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, memory, window) = joined(&path, stores((0, 300_000), true));
    let segment = |a: &mut PostedPort, b: &mut PostedPort, index| {
        let range = SegmentRange { offset: RANGE.len * index, ..RANGE };
        let memory = b.map_inbound(0, range).unwrap();
        (a.carve_outbound(0, range).unwrap(), memory)
    };
    let (other, other_memory) = segment(&mut a, &mut b, 1);
    let other = Outbound::map(&other).unwrap();
    for round in 1..150_u32 {
        let bytes = round.to_le_bytes().repeat(1000);
        window.write(4096, &bytes);
        std::thread::scope(|scope| scope.spawn(|| other.write(3, &bytes)).join().unwrap());
        window.store_fence();
        a.write_peer_scratchpad(3, round);
        a.ring_peer_doorbell(1);
        until("the bell", || {
            let _ = a.poll_event();
            b.poll_event() == Some(Event::Doorbell(1))
        });
        assert_eq!(b.read_scratchpad(3), round);
        for (memory, offset) in [(&memory, 4096), (&other_memory, 3)] {
            let mut seen = vec![0; bytes.len()];
            memory.read(offset, &mut seen);
            assert!(seen == bytes, "the bell overtook a store of round {round}");
        }
    }
}

#[test]
fn posted_payload_is_there_when_its_index_is() {
    for combine in [false, true] {
        let (_dir, path) = cable_path();
        let (_a, _b, memory, window) = joined(&path, stores((0, 200_000), combine));
        for round in 1..300_u64 {
            let bytes = round.to_le_bytes().repeat(300);
            window.write(4096, &bytes);
            window.store_fence();
            window.store_u64(0, round);
            until("the index", || memory.load_u64(0) == round);
            let mut seen = vec![0; bytes.len()];
            memory.read(4096, &mut seen);
            assert!(seen == bytes, "round {round}, combine {combine}");
        }
    }
}

#[test]
fn posted_stores_and_doorbells_under_way_are_lost_with_the_link() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, memory, window) = joined(&path, stores((50_000_000, 50_000_000), true));
    for cut_by_peer in [false, true] {
        window.store_u64(0, 1);
        a.ring_peer_doorbell(4);
        a.write_peer_scratchpad(5, 55);
        if cut_by_peer {
            b.set_link(false)
        } else {
            a.set_link(false)
        }
        until("both see it", || {
            let _ = (a.poll_event(), b.poll_event());
            !a.is_up() && !b.is_up()
        });
        a.set_link(true);
        b.set_link(true);
        until_up(&mut a, &mut b);
        std::thread::sleep(Duration::from_millis(60));
        let events: Vec<_> = std::iter::from_fn(|| b.poll_event()).collect();
        let _ = a.poll_event();
        assert_eq!((events, memory.load_u64(0), b.read_scratchpad(5)), (vec![], 0, 0));
    }
    // Stores of a life that is over cost no time.
    let begin = Instant::now();
    (0..10_000).for_each(|_| window.write(0, &[1; 64]));
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[test]
fn posted_port_with_more_queues_than_one_call_waits_for() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, ..) = joined(&path, stores((0, 10_000), true));
    b.set_inbound(1, 1 << 24).unwrap();
    let ends: Vec<_> = (0..300)
        .map(|index| {
            let range = SegmentRange { offset: index * 4096, len: 4096 };
            (b.map_inbound(1, range).unwrap(), a.map_outbound(1, range).unwrap())
        })
        .collect();
    for round in 1..4 {
        std::thread::sleep(Duration::from_millis(60));
        for (memory, window) in ends.iter().rev() {
            window.store_u64(0, round);
            until("it lands", || memory.load_u64(0) == round);
        }
    }
}

#[test]
fn posted_port_outlives_whatever_programs_write_into_its_queues() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, memory, window) = joined(&path, stores((0, 50_000), true));
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    b.set_inbound(1, 1 << 20).unwrap();
    for round in 0..60 {
        let range = SegmentRange { offset: (round % 16) * 8192, len: 8192 };
        let _own = b.map_inbound(1, range).unwrap();
        let queue = a.carve_outbound(1, range).unwrap();
        let raw = Outbound::sealed(&queue, queue::LEN).unwrap();
        for _ in 0..500 {
            // The words, and the first entries, some of which look right.
            let place = if random() % 2 == 0 { random() % 20 } else { 512 + random() % 64 };
            let value = [random(), random() % 10_000 * 8, (1 << 32) | (random() % 3000), 2 << 32]
                [usize::try_from(random() % 4).unwrap()];
            raw.store_u64(usize::try_from(8 * place).unwrap(), value);
        }
        window.store_u64(0, round + 1);
        until("others' stores land", || memory.load_u64(0) == round + 1);
        b.free_inbound(1, range);
        let _ = (a.poll_event(), b.poll_event());
    }
    a.ring_peer_doorbell(1);
    until("the bell", || {
        let _ = a.poll_event();
        b.poll_event() == Some(Event::Doorbell(1))
    });
}

#[test]
fn posted_idle_port_costs_no_time() {
    let (_dir, path) = cable_path();
    let (mut a, mut b, memory, window) = joined(&path, stores((0, 10_000), true));
    window.store_u64(0, 1);
    until("it lands", || memory.load_u64(0) == 1);
    while a.poll_event().is_some() || b.poll_event().is_some() {}
    assert_eq!(a.timeout(), None);
    let switches = || -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let landers = status.filter(|status| status.starts_with("Name:\tlander"));
        let counts = landers.flat_map(|status| {
            let lines = status.lines().filter(|line| line.starts_with("voluntary")).map(str::to_owned);
            lines.collect::<Vec<_>>()
        });
        counts.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    // Other tests of this process have landers too: at some time these two are alone, or all are quiet.
    until("landers that sleep", || {
        let before = switches();
        std::thread::sleep(Duration::from_millis(100));
        switches() == before
    });
}
