//! The ring and its sleeping protocol where stores are under way for a while, over a PCIe bridge: every order in which they may land
//! is tried, with the shipped ring and the shipped [`crosslane_shm::arm`]. Each property is also tried with a part of the cure
//! taken out, and must then fail: else the test would prove nothing.

mod posted;

use crosslane_wire::segment::LINE;
use posted::Order::{self, AsMade, Combined};
use posted::duplex::Talk;
use posted::ends::{Mutation, Pair, Setup};
use posted::explorer::{Chooser, Found, Run, explore};
use posted::resume::{self, Move};
use posted::split::{self, Split};
use std::fmt::Debug;

/// Ticks that stores may be under way: both ways alike, and one slower than the other. Below two a flight that ends too early shows
/// nothing.
const ALIKE: [u64; 2] = [2, 2];
const UNLIKE: [[u64; 2]; 2] = [[1, 3], [3, 1]];

/// Room for all: only the reader sleeps.
const DATA: Setup =
    Setup { order: AsMade, delays: [2, 2], ring: (4 * LINE, 4 * LINE), records: 2, first: 0, mutation: None };
/// Room for one record, beside the line that is kept back: the writer sleeps for the next one's.
const ROOM: Setup = Setup { ring: (2 * LINE, 2 * LINE), ..DATA };
/// It becomes longer at the second record, and is full then.
const GROWTH: Setup = Setup { ring: (2 * LINE, 4 * LINE), records: 3, ..DATA };
/// The reader is far behind: small records are appended to the last one.
const GATHERED: Setup = Setup { ring: (64 * LINE, 64 * LINE), records: 53, first: 50, ..DATA };
/// Both ends send, and credit rides; a burst fills the ring, and needs room for two more.
const TALK: Setup = Setup { ring: (8 * LINE, 8 * LINE), records: 9, first: 6, delays: [1, 1], ..DATA };
const MOVE: resume::Setup =
    resume::Setup { order: AsMade, delays: [2, 2], records: 3, cut: false, mutation: None };

fn run(setup: Setup) -> Found {
    tried(setup, |chooser| Pair::new(setup, chooser))
}

/// What all orders of `setup` lead to.
fn tried<R: Run>(setup: impl Debug, begin: impl Fn(Chooser) -> R) -> Found {
    let found = explore(begin);
    println!("{setup:?}: {} states, {:?}", found.states, found.wrong);
    found
}

/// Nothing goes wrong, in whatever order stores land.
fn holds(setup: Setup, delays: [u64; 2]) {
    for order in [AsMade, Combined] {
        holds_in(order, setup, delays);
    }
}

fn holds_in(order: Order, setup: Setup, delays: [u64; 2]) {
    let found = run(Setup { order, delays, ..setup });
    assert_eq!(found.wrong, None, "{order:?} {delays:?}");
    assert!(found.states > 100, "{found:?}");
}

/// With this taken out, a run is found in which one sleeps for ever.
fn loses_a_wake_up(setup: Setup, mutation: Mutation) {
    for order in [AsMade, Combined] {
        let found = run(Setup { order, mutation: Some(mutation), ..setup });
        let wrong = found.wrong.expect("a run that goes wrong");
        assert!(wrong.contains("sleeps for ever"), "{wrong}");
    }
}

fn tears(setup: Setup, order: Order) -> Option<String> {
    run(Setup { order, mutation: Some(Mutation::NoStoreFence), ..setup }).wrong
}

#[test]
fn sleep_for_data_is_woken() {
    for delays in [ALIKE, UNLIKE[0], UNLIKE[1]] {
        holds(DATA, delays);
    }
}

#[test]
fn sleep_for_room_is_woken() {
    holds(ROOM, ALIKE);
}

#[test]
fn sleep_for_room_is_woken_where_the_way_back_is_slower() {
    holds(ROOM, UNLIKE[0]);
}

#[test]
fn sleep_for_room_is_woken_where_the_way_there_is_slower() {
    holds(ROOM, UNLIKE[1]);
}

#[test]
fn sleep_over_a_growing_ring_is_woken() {
    holds(Setup { records: 2, ..GROWTH }, ALIKE);
}

#[test]
fn sleep_for_room_in_a_ring_that_grew_is_woken() {
    holds_in(AsMade, GROWTH, [1, 1]);
}

#[test]
fn sleep_for_room_in_a_ring_that_grew_is_woken_where_stores_are_combined() {
    holds_in(Combined, GROWTH, [1, 1]);
}

#[test]
fn sleep_with_nothing_under_way_needs_no_second_look() {
    let mutation = Some(Mutation::NoSecondLook);
    for setup in [DATA, ROOM, GROWTH] {
        assert_eq!(run(Setup { delays: [0, 0], mutation, ..setup }).wrong, None);
    }
}

#[test]
fn sleep_without_the_second_look_is_for_ever() {
    for setup in [DATA, ROOM, GROWTH] {
        loses_a_wake_up(setup, Mutation::NoSecondLook);
    }
}

#[test]
fn sleep_after_the_way_out_alone_is_for_ever() {
    for setup in [DATA, ROOM, GROWTH] {
        loses_a_wake_up(setup, Mutation::OnlyOut);
    }
}

#[test]
fn sleep_after_the_way_in_alone_is_for_ever() {
    for setup in [DATA, ROOM, GROWTH] {
        loses_a_wake_up(setup, Mutation::OnlyIn);
    }
}

#[test]
fn sleep_after_a_wake_that_overtook_its_data_needs_arming_anew() {
    for setup in [DATA, ROOM, GROWTH] {
        loses_a_wake_up(setup, Mutation::NotArmedAnew);
    }
}

#[test]
fn sleep_or_not_a_mark_without_the_fence_before_it_shows_a_torn_record() {
    for setup in [DATA, ROOM, GROWTH] {
        let wrong = tears(setup, Combined).expect("a record that is torn");
        assert!(wrong.contains("record"), "{wrong}");
    }
    // Stores that land in their order need no fence.
    assert_eq!(tears(DATA, AsMade), None);
}

#[test]
fn credit_before_the_copy_shows_a_record_of_another_round() {
    for order in [AsMade, Combined] {
        let found = run(Setup { order, records: 3, mutation: Some(Mutation::EarlyCredit), ..ROOM });
        assert!(found.wrong.expect("a run that goes wrong").contains("torn"));
    }
}

#[test]
fn growth_that_is_taken_for_room_overruns_the_reader() {
    for order in [AsMade, Combined] {
        let setup = Setup { order, records: 4, delays: [1, 0], ..GROWTH };
        assert_eq!(run(setup).wrong, None);
        let found = run(Setup { mutation: Some(Mutation::GrowthIsRoom), ..setup });
        assert!(found.wrong.is_some());
    }
}

#[test]
fn gathered_records_are_whole_and_who_waits_for_more_is_woken() {
    holds(GATHERED, [1, 1]);
    loses_a_wake_up(GATHERED, Mutation::NoSecondLook);
    let wrong = tears(GATHERED, Combined).expect("a record that is torn");
    assert!(wrong.contains("record"), "{wrong}");
}

#[test]
fn credit_that_rides_keeps_nobody_asleep() {
    for order in [AsMade, Combined] {
        assert_eq!(tried(order, |chooser| Talk::new(Setup { order, ..TALK }, chooser)).wrong, None);
        let mutation = Some(Mutation::RodeIsEnough);
        let found = tried(order, |chooser| Talk::new(Setup { order, mutation, ..TALK }, chooser));
        assert!(found.wrong.expect("a run that goes wrong").contains("sleeps for ever"));
    }
}

fn splits(setup: split::Setup) -> Option<String> {
    tried(setup, |chooser| Split::new(setup, chooser)).wrong
}

#[test]
fn send_that_meets_the_end_of_the_ring_is_seen_as_a_whole() {
    let ring = 8 * LINE;
    for order in [AsMade, Combined] {
        for ring_max in [ring, 2 * ring] {
            let setup = split::Setup { order, ring_max, no_store_fence: false, in_two: false };
            assert_eq!(splits(setup), None);
            let wrong = splits(split::Setup { in_two: true, ..setup }).expect("a part of it");
            assert!(wrong.contains("a part"), "{wrong}");
        }
    }
    let setup = split::Setup { order: Combined, ring_max: ring, no_store_fence: true, in_two: false };
    assert!(splits(setup).is_some());
}

fn moved(setup: resume::Setup) -> Option<String> {
    tried(setup, |chooser| Move::new(setup, chooser)).wrong
}

#[test]
fn resume_loses_nothing_and_repeats_nothing_though_stores_are_under_way() {
    for order in [AsMade, Combined] {
        for cut in [true, false] {
            for delays in [ALIKE, UNLIKE[0], UNLIKE[1]] {
                assert_eq!(moved(resume::Setup { order, cut, delays, ..MOVE }), None);
            }
        }
    }
}

#[test]
fn resume_with_a_part_of_the_cure_taken_out_goes_wrong() {
    use resume::Mutation::{KeepsNothing, KeepsTheLast, LeavesAtOnce, NoLimit, TakesMeanwhile};
    for order in [AsMade, Combined] {
        for cut in [true, false] {
            for mutation in [KeepsNothing, KeepsTheLast, LeavesAtOnce] {
                let mutation = Some(mutation);
                assert!(moved(resume::Setup { order, cut, mutation, ..MOVE }).is_some());
            }
        }
        // What was under way lands behind the count only where the cable lives.
        for mutation in [NoLimit, TakesMeanwhile] {
            assert!(moved(resume::Setup { order, mutation: Some(mutation), ..MOVE }).is_some());
        }
    }
}
