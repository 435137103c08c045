//! The simulated port: the conformance suite under several kinds of cable, and its faults.

use crosslane_port::conformance::{self, Cable};
use crosslane_port::sim::{Side, SimCable, SimConfig, SimPort};
use crosslane_port::{DownReason, Event, Port};
use crosslane_shm::{Load, Store};
use crosslane_wire::SegmentRange;

/// Under test.
struct Simulated {
    cable: SimCable,
    a: SimPort,
    b: Option<SimPort>,
}

impl Simulated {
    fn new(seed: u64, config: SimConfig) -> Self {
        let cable = SimCable::new(seed, config);
        let (a, b) = (cable.plug(Side::A).unwrap(), cable.plug(Side::B).unwrap());
        Self { cable, a, b: Some(b) }
    }
}

impl Cable for Simulated {
    type Port = SimPort;

    fn a(&mut self) -> &mut SimPort {
        &mut self.a
    }

    fn b(&mut self) -> &mut SimPort {
        self.b.as_mut().expect("side b lives")
    }

    fn pass(&mut self) {
        self.cable.advance(997);
    }

    fn kill_b(&mut self) {
        self.b = None;
    }

    fn revive_b(&mut self) {
        self.b = Some(self.cable.plug(Side::B).unwrap());
    }

    fn rubbish_from_b(&mut self) {
        self.cable.rubbish(Side::A);
    }
}

fn conform(config: &SimConfig) {
    for seed in 0..100 {
        println!("seed {seed}, {config:?}");
        conformance::run(|| Simulated::new(seed, config.clone()));
    }
}

#[test]
fn sim_conforms_without_delay() {
    conform(&SimConfig { windows: 3, ..SimConfig::default() });
}

#[test]
fn sim_conforms_with_posted_writes() {
    conform(&SimConfig { delay_ns: 800, jitter_ns: 1500, train_ns: 5000, ..SimConfig::default() });
}

#[test]
fn sim_conforms_with_write_combining() {
    conform(&SimConfig { delay_ns: 300, jitter_ns: 900, combine: true, ..SimConfig::default() });
}

/// A pair that is up, with one segment from A to B.
fn joined(
    seed: u64,
    config: SimConfig,
) -> (SimCable, SimPort, SimPort, crosslane_port::sim::SimInbound, crosslane_port::sim::SimOutbound) {
    let cable = SimCable::new(seed, config);
    let (mut a, mut b) = (cable.plug(Side::A).unwrap(), cable.plug(Side::B).unwrap());
    assert_eq!((a.poll_event(), b.poll_event()), (Some(Event::LinkUp), Some(Event::LinkUp)));
    b.set_inbound(0, 1 << 20).unwrap();
    let range = SegmentRange { offset: 0, len: 65536 };
    let memory = b.map_inbound(0, range).unwrap();
    let window = a.map_outbound(0, range).unwrap();
    (cable, a, b, memory, window)
}

#[test]
fn sim_posted_store_is_not_visible_when_its_fence_returns() {
    let config = SimConfig { delay_ns: 500, ..SimConfig::default() };
    let (cable, _a, _b, memory, window) = joined(1, config);
    window.store_u64(0, 1);
    window.fence();
    assert_eq!((memory.load_u64(0), cable.next_due()), (0, Some(500)));
    cable.advance(499);
    assert_eq!(memory.load_u64(0), 0);
    cable.advance(1);
    assert_eq!(memory.load_u64(0), 1);
}

/// Writes payload, then the index, with or without the fence of law 4; whether a reader ever saw them the wrong way
/// round.
fn reader_was_deceived(seed: u64, fenced: bool) -> bool {
    let config = SimConfig { delay_ns: 100, jitter_ns: 400, combine: true, ..SimConfig::default() };
    let (cable, _a, _b, memory, window) = joined(seed, config);
    (1..50u64).any(|round| {
        window.write(4096, &round.to_le_bytes().repeat(16));
        if fenced {
            window.store_fence();
        }
        window.store_u64(0, round);
        (0..40).any(|_| {
            cable.advance(50);
            let mut payload = [0; 128];
            memory.read(4096, &mut payload);
            memory.load_u64(0) == round && payload[..] != round.to_le_bytes().repeat(16)
        })
    })
}

#[test]
fn sim_shows_a_missing_fence() {
    let seeds = 0..50;
    assert!(seeds.clone().all(|seed| !reader_was_deceived(seed, true)));
    assert!(seeds.clone().filter(|seed| reader_was_deceived(*seed, false)).count() > 40);
}

#[test]
fn sim_cable_that_is_lost_loses_what_is_under_way() {
    let config = SimConfig { delay_ns: 500, ..SimConfig::default() };
    let (cable, mut a, mut b, memory, window) = joined(2, config);
    window.store_u64(0, 1);
    a.ring_peer_doorbell(1);
    cable.cut();
    cable.mend();
    cable.advance(10_000);
    let down = Event::LinkDown(DownReason::Cable);
    assert_eq!(
        [a.poll_event(), a.poll_event(), a.poll_event()],
        [Some(down.clone()), Some(Event::LinkUp), None]
    );
    assert_eq!([b.poll_event(), b.poll_event(), b.poll_event()], [Some(down), Some(Event::LinkUp), None]);
    assert_eq!((memory.load_u64(0), a.read_scratchpad(0)), (0, 0));
}

#[test]
fn sim_doorbells_and_scratchpads_may_be_stale_after_a_link_up() {
    let config =
        SimConfig { delay_ns: 500, stale_doorbells: true, stale_scratchpads: true, ..SimConfig::default() };
    let (cable, a, mut b, ..) = joined(3, config);
    a.write_peer_scratchpad(5, 55);
    cable.advance(500);
    a.ring_peer_doorbell(4);
    a.write_peer_scratchpad(5, 66);
    cable.cut();
    cable.mend();
    cable.advance(500);
    let events: Vec<_> = std::iter::from_fn(|| b.poll_event()).collect();
    assert_eq!(events, [Event::LinkDown(DownReason::Cable), Event::LinkUp, Event::Doorbell(4)]);
    assert_eq!(b.read_scratchpad(5), 55);
    cable.stale_doorbell(Side::B, 8);
    assert_eq!(b.poll_event(), Some(Event::Doorbell(8)));
}

#[test]
fn sim_peer_that_restarts_is_another_port() {
    let (cable, mut a, mut b, memory, window) = joined(4, SimConfig::default());
    let mut again = cable.plug(Side::B).unwrap();
    assert_eq!(a.poll_event(), Some(Event::LinkDown(DownReason::PeerGone)));
    assert_eq!((a.poll_event(), again.poll_event()), (Some(Event::LinkUp), Some(Event::LinkUp)));
    assert_eq!((b.poll_event(), b.is_up()), (None, false));
    b.ring_peer_doorbell(1);
    window.store_u64(0, 1);
    assert_eq!((a.poll_event(), memory.load_u64(0)), (None, 0));
    drop(b);
    assert!(a.is_up(), "the old port's end is not the new one's");
}

/// What happens in a life full of faults, as text.
fn diary(seed: u64) -> String {
    use std::fmt::Write;
    let config = SimConfig {
        delay_ns: 200,
        jitter_ns: 1000,
        combine: true,
        train_ns: 2000,
        mean_ns_between_cuts: Some(50_000),
        longest_cut_ns: 10_000,
        mean_ns_between_false_doorbells: Some(20_000),
        ..SimConfig::default()
    };
    let cable = SimCable::new(seed, config);
    let (mut a, mut b) = (cable.plug(Side::A).unwrap(), cable.plug(Side::B).unwrap());
    let mut text = String::new();
    for step in 0..2000u32 {
        a.write_peer_scratchpad(0, step);
        a.ring_peer_doorbell(1 << (step % 32));
        cable.advance(250);
        while let Some(event) = b.poll_event() {
            writeln!(text, "{} {event:?} {}", cable.now(), b.read_scratchpad(0)).unwrap();
        }
        while a.poll_event().is_some() {}
    }
    text
}

#[test]
fn sim_seed_repeats_all_faults() {
    let seeds: Vec<_> = (0..20).map(diary).collect();
    assert!(seeds.iter().all(|diary| diary.contains("LinkDown(Cable)") && diary.contains("Doorbell")));
    assert_eq!(seeds, (0..20).map(diary).collect::<Vec<_>>());
    assert_ne!(seeds[0], seeds[1]);
}
